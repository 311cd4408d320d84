"""The survival curve of a run: that of Kaplan and Meier where it can be, and intervals that cover it."""

import numpy as np
import statsmodels.api as sm

from ringfence.estimates.survival import survival_points
from ringfence.server.algorithms.survey import project_onto_simplex


def test_without_noise_and_with_nobody_leaving_early_it_is_kaplan_and_meier_s() -> None:
    times = np.random.default_rng(1).exponential(1.0, 400)
    watched, cuts = np.minimum(times, 2.0), (0.5, 1.0, 1.5)
    events = times < 2.0
    part = np.searchsorted(cuts, watched, side="left")
    shares = np.bincount(2 * part + events, minlength=8) / 400
    exact = sm.SurvfuncRight(watched, events * 1)
    for point in survival_points(cuts, shares, 0.0, 400):
        other = exact.surv_prob[np.searchsorted(exact.surv_times, point.time, side="right") - 1]
        assert abs(point.share - other) < 1e-9
        assert point.low < point.share < point.high


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    random, cuts, noise, records = np.random.default_rng(2), (0.5, 1.0), 0.01, 500
    hits = 0
    for _ in range(2000):
        times = random.exponential(1.0, records)
        part = np.searchsorted(cuts, times, side="left")
        shares = np.bincount(2 * part + 1, minlength=6) / records + noise * random.normal(size=6)
        point = survival_points(cuts, project_onto_simplex(shares), noise, records)[1]
        hits += point.low <= np.exp(-1.0) <= point.high
    # Of 2000 intervals of 95 %, fewer than 92.6 % cover with a probability below 1e-6: 4.9 deviations of a binomial.
    assert hits / 2000 >= 0.926
