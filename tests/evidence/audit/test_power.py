"""What is said of the audit's miss rates is never too little, and is said of what broken silos really send."""

import numpy as np
import pytest
from scipy.stats import binom, ncx2

from ringfence.evidence.audit.game import play
from ringfence.evidence.audit.lower_bound import lower_bound_of_mean
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.noise_tests import PlannedNumber, SumOfSquares, p_value
from ringfence.evidence.audit.plans import AuditQuery
from tests.evidence.audit.broken import Drawn, Gaussian, Lattice, broken
from tests.evidence.audit.power import MOST, accepted, exposed, guessed, guesses_missed, one_run, tail


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("deviations", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("variance", [0.25, 1.0, 2.0])
def test_a_tail_is_never_below_the_exact_one(variance: float, deviations: float, above: bool) -> None:
    count, square = 200, 0.3
    law = ncx2(count, count * square / variance, scale=variance)
    total = law.mean() + (deviations if above else -deviations) * law.std()
    exact = law.sf(total) if above else law.cdf(total)
    assert exact <= tail([(Gaussian(square, variance), count)], total, above=above) <= 60 * exact


@pytest.mark.parametrize("total", [0.5, 4.0])
def test_a_tail_of_coins_and_of_draws_is_never_below_the_exact_one(total: float) -> None:
    heads = np.arange(10.0)
    values = 1 + (heads - 4.5) / 1.5
    law = Lattice(binom.logpmf(heads, 9, 0.5), values, 1.0)
    drawn = Drawn(np.log([0.3, 0.7]), [Lattice(np.zeros(1), np.zeros(1), 1.0), law])
    within = binom.pmf(heads, 9, 0.5) @ (values**2 <= total)
    beyond = binom.pmf(heads, 9, 0.5) @ (values**2 >= total)
    assert tail([(law, 1)], total, above=False) >= within
    assert tail([(law, 1)], total, above=True) >= beyond
    assert tail([(drawn, 1)], total, above=False) >= 0.3 + 0.7 * within
    assert tail([(drawn, 1)], total, above=True) >= 0.7 * beyond


def test_what_is_accepted_ends_where_sums_refute() -> None:
    expected, runs = ((PlannedNumber(0.3), 40), (PlannedNumber(0.0), 24)), 5
    planned = SumOfSquares(64 + 40 * 0.09, expected)
    low, high = accepted(planned, runs, MOST)
    many = tuple((number, runs * count) for number, count in expected)
    usual = SumOfSquares(runs * planned.total, many)
    for total, refutes in ((0.999 * low, True), (1.001 * low, False), (0.999 * high, False), (1.001 * high, True)):
        assert (p_value([usual, SumOfSquares(total, many)]) < MOST) == refutes


@pytest.mark.parametrize(("p", "allowed", "runs"), [(0.8, 0.6, 150), (0.8, 0.6, 400), (0.95, 0.7, 100)])
def test_guesses_are_missed_no_more_often_than_is_said(p: float, allowed: float, runs: int) -> None:
    """Exactly: over all numbers of right guesses of one canary in every run."""
    right = np.arange(runs + 1)
    scores = [np.concatenate([np.ones(count), np.zeros(runs - count)]) for count in right]
    missed = np.array([lower_bound_of_mean(score, 1 - MOST) <= allowed for score in scores])
    exact = float(binom.pmf(right, runs, p) @ missed)
    assert exact <= guesses_missed(p, 1, allowed, runs, MOST) <= max(1e3 * exact, 1e-300)


@pytest.mark.parametrize(
    ("name", "mode", "rounds", "runs"),
    [
        *(("full", mode, 2, 12) for mode in ("half-noise", "root-half-noise", "repeat-round", "reuse-noise")),
        ("full", "skip-clip", 1, 12),
        *((name, "with-replacement", 2, 12) for name in ("full", "fixed", "poisson", "one-pass", "correlated")),
        *((name, "repeat-round", 2, 12) for name in ("fixed", "poisson")),
        *((name, "reuse-noise", 2, 12) for name in ("fixed", "correlated", "localized")),
        *(("several-plans", mode, 4, 12) for mode in ("root-half-noise", "with-replacement")),
        *(("shuffled-alone", mode, 2, 4) for mode in ("half-noise", "repeat-round", "with-replacement", "reuse-noise")),
        ("shuffled-alone", "skip-clip", 1, 4),
        ("shuffled", "reuse-noise", 2, 4),
        ("shuffled-peer", "keep-order", 2, 4),
        ("person-mean", "ignore-persons", 2, 4),
        *(("person-rows", mode, 2, 12) for mode in ("ignore-persons", "with-replacement")),
        *(("person-sum", mode, rounds, 12) for mode, rounds in (("ignore-persons", 2), ("skip-clip", 1))),
    ],
)
def test_broken_silos_send_what_their_law_says(name: str, mode: str, rounds: int, runs: int) -> None:
    """Fails by chance with probability 1e-6 at most: two sums, with two sides each, by Chernoff's bound on the law."""
    query = AuditQuery(10.0, 1e-5, 32, rounds)
    found = broken(name, query, mode, one_run(name, query))
    size, sums = zip(*(run.squares() for run in play(MECHANISMS[name], query, runs, mode)), strict=True)
    for laws, squares in ((found.size, size), (found.sums, sums)):
        total = sum(each.total for each in squares)
        for above in (True, False):
            assert not laws or tail([(law, runs * count) for law, count in laws], total, above=above) > MOST / 4


@pytest.mark.parametrize("name", ["full", "poisson", "several-plans", "shuffled-alone"])
def test_coins_are_guessed_as_often_as_is_said(name: str) -> None:
    """Fails by chance with probability 1e-6 at most: right guesses are binomial, and there are two sides."""
    query, runs = AuditQuery(10.0, 1e-5, 32, MECHANISMS[name].rounds), 4 if MECHANISMS[name].runs else 12
    played = list(play(MECHANISMS[name], query, runs, "wrong-sensitivity"))
    total, p = runs * exposed(played[0]), guessed(played[0])
    right = round(sum(run.score() for run in played) / runs * total)
    assert binom.cdf(right, total, p) > MOST / 2
    assert binom.sf(right - 1, total, p) > MOST / 2
