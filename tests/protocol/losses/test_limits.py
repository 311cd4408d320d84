"""Without noise or clip, each loss has the minimum that other software finds for the same model, to 1e-4."""

import math
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor
from sklearn.svm import SVC, SVR
from statsmodels.miscmodels.ordinal_model import OrderedModel

from ringfence.federation.custom_loss import custom_loss
from ringfence.protocol import (
    Absolute,
    BaseLoss,
    EpsilonInsensitive,
    FloatArray,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    NegativeBinomial,
    NonSmooth,
    Ordinal,
    Pinball,
    PoissonLoss,
    Softmax,
    Squared,
    Survival,
)
from ringfence.protocol.losses.targets import residuals_of, values_of

WIDTHS = 10.0 ** -np.arange(1.0, 6.5, 0.5)
"""Over which a kink is smoothed, one after the other: the last moves a minimum by about as much."""
ROWS = 300
RANDOM = np.random.default_rng(1)
X = np.column_stack([RANDOM.normal(size=(ROWS, 2)), np.ones(ROWS)])
LINE = X @ [0.6, -0.8, 0.3]
NUMBERS = LINE + RANDOM.standard_t(3, size=ROWS)
LABELS = np.where(LINE + RANDOM.logistic(size=ROWS) > 0, 1.0, -1.0)
EXPOSURE = RANDOM.uniform(0.5, 3.0, ROWS)
TIMES_COUNTED = RANDOM.integers(0, 4, ROWS).astype(np.float64)
RIDGE = 0.05


def minimised(loss: BaseLoss, features: FloatArray, targets: FloatArray, ridge: float = 0.0) -> FloatArray:
    """Return the best weights without noise or clip, by the gradient as silos collect it; kinks are smoothed.

    A ridge is of all but the constant, which is the last feature, of one output.
    """
    width = features.shape[1]
    pull = np.full(loss.dimension(width), ridge)
    pull[-1] = 0.0

    def objective(weights: FloatArray, smooth: BaseLoss) -> tuple[float, FloatArray]:
        scores = features @ smooth.matrix(weights, width)
        residuals = residuals_of(smooth, scores, targets)
        gradient = smooth.weight_gradients(features.T @ smooth.residual_columns(residuals)).reshape(-1)
        value = float(values_of(smooth, scores, targets).mean() + pull @ weights**2 / 2)
        return value, gradient / len(features) + pull * weights

    options: Any = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 10_000, "maxfun": 100_000}
    weights: FloatArray = np.zeros(loss.dimension(width))
    for smooth in [loss.with_width(float(tau)) for tau in WIDTHS] if isinstance(loss, NonSmooth) else [loss]:
        weights = minimize(objective, weights, (smooth,), jac=True, method="L-BFGS-B", options=options).x
    return weights


def squared(score: Any, target: Any) -> Any:
    return 0.5 * (score - target) ** 2


def like(expected: Any, found: FloatArray) -> None:
    """Compare weights with those of another software's estimator, or with its list of them."""
    if hasattr(expected, "coef_"):
        expected = [*np.ravel(expected.coef_), *np.ravel(expected.intercept_)]
    np.testing.assert_allclose(found, np.asarray(expected), atol=1e-4)


@pytest.mark.parametrize("own", [False, True], ids=["squared", "custom"])
def test_squared_error_is_scikit_learn_s_and_weighted_that_of_statsmodels(own: bool) -> None:
    loss: Loss = custom_loss(squared, largest_score=20.0, largest_target=20.0) if own else Squared()
    like(LinearRegression().fit(X[:, :2], NUMBERS), minimised(loss, X, NUMBERS))
    weighted = np.column_stack([NUMBERS, EXPOSURE, TIMES_COUNTED])
    like(sm.WLS(NUMBERS - EXPOSURE, X, weights=TIMES_COUNTED).fit().params, minimised(loss, X, weighted))


def test_logistic_is_scikit_learn_s_and_with_an_offset_that_of_statsmodels() -> None:
    other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X[:, :2], LABELS)
    like(other, minimised(Logistic(), X, LABELS))
    weighted = np.column_stack([LABELS, EXPOSURE, TIMES_COUNTED])
    options: Any = {"family": sm.families.Binomial(), "offset": EXPOSURE, "freq_weights": TIMES_COUNTED}
    model = sm.GLM((LABELS + 1) / 2, X, **options)
    like(model.fit(tol=1e-12).params, minimised(Logistic(), X, weighted))


def test_softmax_is_scikit_learn_s() -> None:
    """Adding a number to all scores of a record changes nothing: both begin at 0, where they add up to 0."""
    noise = np.random.default_rng(2).gumbel(size=(ROWS, 3))
    classes = np.argmax(np.column_stack([LINE, -LINE, 0 * LINE]) + noise, axis=1)
    other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X[:, :2], classes)
    found = minimised(Softmax(classes=3), X, classes.astype(np.float64)).reshape(3, 3)
    like(np.vstack([other.coef_.T, other.intercept_]), found)


@pytest.mark.parametrize("loss", [*(Pinball(quantile=share) for share in (0.2, 0.5, 0.9)), Absolute()], ids=str)
def test_quantiles_are_those_of_scikit_learn_s_linear_programme(loss: Loss) -> None:
    other = QuantileRegressor(quantile=loss.aimed_share or 0.5, alpha=0.0, solver="highs").fit(X[:, :2], NUMBERS)
    like(other, minimised(loss, X, NUMBERS))


def test_huber_is_the_robust_regression_of_statsmodels_at_its_scale() -> None:
    model = sm.RLM(NUMBERS, X, M=sm.robust.norms.HuberT(t=1.345)).fit(update_scale=False, tol=1e-12, maxiter=1000)
    like(model.params, minimised(Huber(threshold=1.345 * model.scale), X, NUMBERS))


def test_hinge_and_epsilon_insensitive_are_support_vector_machines() -> None:
    settings: Any = {"kernel": "linear", "C": 1 / (RIDGE * ROWS), "tol": 1e-8}
    like(SVC(**settings).fit(X[:, :2], LABELS), minimised(Hinge(), X, LABELS, RIDGE))
    regression = SVR(epsilon=0.3, **settings).fit(X[:, :2], NUMBERS)
    like(regression, minimised(EpsilonInsensitive(margin=0.3), X, NUMBERS, RIDGE))


@pytest.mark.parametrize(
    ("loss", "family", "least"),
    [
        (PoissonLoss(), sm.families.Poisson(), 0.0),
        (Gamma(), sm.families.Gamma(link=sm.families.links.Log()), 1e-3),
        (NegativeBinomial(dispersion=0.5), sm.families.NegativeBinomial(alpha=0.5), 0.0),
    ],
    ids=["poisson", "gamma", "negative-binomial"],
)
def test_log_links_have_the_minimum_of_statsmodels_with_exposure_and_weights(
    loss: Loss, family: Any, least: float
) -> None:
    random = np.random.default_rng(3)
    means = EXPOSURE * np.exp(LINE / 2) * random.gamma(2.0, 0.5, ROWS)
    targets = np.maximum(means, least) if least else random.poisson(means)
    weighted = np.column_stack([targets, np.log(EXPOSURE), TIMES_COUNTED])
    model = sm.GLM(targets, X, family=family, offset=np.log(EXPOSURE), freq_weights=TIMES_COUNTED)
    like(model.fit(tol=1e-12, maxiter=1000).params, minimised(loss, X, weighted))


def test_ordinal_is_a_logistic_regression_of_all_thresholds_at_once() -> None:
    places = np.searchsorted([-1.0, 0.5, 1.5], LINE + np.random.default_rng(4).logistic(size=ROWS))
    rows = [[*x[:2], *threshold] for x in X for threshold in np.eye(3)]
    above = [float(place > k) for place in places for k in range(3)]
    exact = sm.GLM(np.array(above), np.array(rows), family=sm.families.Binomial()).fit(tol=1e-12).params
    like(exact, minimised(Ordinal(classes=4), X, places.astype(np.float64)))


def test_where_odds_are_proportional_ordinal_is_the_ordered_model_of_statsmodels() -> None:
    """Its likelihood is of the category alone, and ours of every threshold: both are largest at the true odds.

    The shares of categories are those of proportional odds to 5 digits, so that both minima lie within 1e-4 of these.
    """
    slope, thresholds, many = 0.7, np.array([-1.0, 0.4, 1.2]), 50_000
    values = np.array([-1.0, 0.0, 1.0])
    above = 1 / (1 + np.exp(thresholds - slope * values[:, None]))
    shares = -np.diff(np.column_stack([np.ones(3), above, np.zeros(3)]), axis=1)
    counts = np.round(many * shares).astype(np.int64)
    x, places = np.repeat(values, 4), np.tile(np.arange(4.0), 3)
    weighted = np.column_stack([places, np.zeros(12), counts.reshape(-1) / counts.mean()])
    found = minimised(Ordinal(classes=4), np.column_stack([x, np.ones(12)]), weighted)
    rows = np.repeat(np.arange(12), counts.reshape(-1))
    model = OrderedModel(places[rows].astype(np.int64), x[rows][:, None], distr="logit")
    other = model.fit(method="bfgs", gtol=1e-9, disp=False)
    like([other.params[0], *-model.transform_threshold_params(other.params)[1:-1]], found)


def times_observed(count: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw features, times of proportional hazards up to 2.5, and whether an event ended each."""
    random = np.random.default_rng(seed)
    features = np.column_stack([random.normal(size=(count, 2)), np.ones(count)])
    times = np.minimum(random.exponential(1 / np.exp(features @ [0.6, -0.3, 0.0])), 2.5)
    return features, times, (times < 2.5) * 1.0


def best_weights(cuts: tuple[float, ...], features: FloatArray, times: FloatArray, events: FloatArray) -> FloatArray:
    targets = np.column_stack([times, events, np.zeros(len(times)), np.ones(len(times))])
    return minimised(Survival(cuts=cuts), features, targets)


def test_survival_has_the_minimum_of_a_poisson_regression_of_everybody_s_intervals() -> None:
    features, times, events = times_observed(300, seed=9)
    cuts, rows, spent, ended = (0.4, 1.0), [], [], []
    for x, time, event in zip(features, times, events, strict=True):
        for k, (start, end) in enumerate(zip((0.0, *cuts), (*cuts, math.inf), strict=True)):
            if time > start:
                rows.append([*x[:2], *np.eye(3)[k]])
                spent.append(min(time, end) - start)
                ended.append(event * (time <= end))
    exact = sm.GLM(np.array(ended), np.array(rows), family=sm.families.Poisson(), offset=np.log(spent)).fit().params
    like(exact, best_weights(cuts, features, times, events))


def test_with_a_part_for_every_event_survival_is_the_cox_model_of_statsmodels() -> None:
    features, times, events = times_observed(120, seed=10)
    times = np.minimum(times, times[events > 0].max())  # after the last event, time carries no information
    cox = sm.PHReg(times, features[:, :2], status=events, ties="breslow").fit(disp=False).params
    # Everybody at risk when an event happens was so for the whole part that it ends: both likelihoods are the same.
    cuts = tuple(np.sort(times[events > 0])[:-1].tolist())
    like(cox, best_weights(cuts, features, times, events)[:2])
