"""The audits at their default size: `make audit`. Minutes, where `make test` has seconds.

No test fails by chance with a probability above 1e-6. An honest audit has two ways to, the guesses and the squares, and
each is allowed half of that. That a sabotage is not found out is at most as probable as `power.miss_rate` computes,
from exact distributions, which is checked to be 1e-6 at most before it is played.
"""

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from ringfence.evidence.audit.game import AuditReport, audit, default_runs
from ringfence.evidence.audit.lower_bound import epsilon_of_score
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import AuditQuery
from ringfence.evidence.audit.sabotage import NONE, SABOTAGES
from tests.evidence.audit.power import MOST, exposed, guesses_missed, miss_rate, one_run

ALARMS = 200
"""Honest audits that are run to see that none is refuted."""

SABOTAGED = [
    (name, mode) for name, about in MECHANISMS.items() for mode in SABOTAGES if mode not in {NONE, *about.not_played}
]

MORE_RUNS = {
    ("shuffled", "wrong-sensitivity"): 190,
    ("shuffled-peer", "wrong-sensitivity"): 190,
    ("shuffled-alone", "with-replacement"): 190,
}
"""Where the default number of runs would miss more often: once in two thousand and in three hundred times, at most."""


def default_query(name: str) -> AuditQuery:
    """What `ringfence audit` asks if nothing else is said."""
    return AuditQuery(3.0, 1e-5, 64, MECHANISMS[name].rounds)


def honest_audit(name: str, runs: int | None = None) -> AuditReport:
    return audit(name, default_query(name), runs=runs, false_alarm=MOST / 2)


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_honest_silo_keeps_its_claim(name: str) -> None:
    assert list(honest_audit(name).findings()) == []


@pytest.mark.parametrize("rounds", [1, 2, 10])
def test_the_lower_bound_reaches_85_percent_of_the_claim(rounds: int) -> None:
    """By chance it falls short with probability 1e-6 at most: that of guesses, each right as often as the claim allows.

    It takes a third more runs than the default, with which that would be 5e-4.
    """
    query, runs, share = AuditQuery(3.0, 1e-5, 64, rounds), 1600, 0.85
    honest = one_run("full", query)
    claim, [seen] = honest.claim, honest.observations

    def excess(score: float) -> float:
        return epsilon_of_score(claim, score) - share * claim.epsilon

    enough = float(brentq(excess, 0.55, claim.score)) + 1e-6
    p = float(norm.cdf(seen.power().max() ** 0.5))
    assert guesses_missed(p, exposed(honest), enough, runs, MOST) <= MOST
    report = audit("full", query, runs=runs, false_alarm=MOST)
    assert report.epsilon_lower >= share * report.epsilon_claimed


@pytest.mark.parametrize(("name", "mode"), SABOTAGED)
def test_every_sabotage_is_refuted(name: str, mode: str) -> None:
    query = default_query(name)
    runs = MORE_RUNS.get((name, mode), default_runs(name, query))
    assert miss_rate(name, query, mode, runs) <= MOST
    assert audit(name, query, runs=runs, sabotage=mode).refuted


@pytest.mark.parametrize("number", range(ALARMS))
def test_no_false_alarm(number: int) -> None:
    name, mechanism = list(MECHANISMS.items())[number % len(MECHANISMS)]
    assert not honest_audit(name, runs=100 if mechanism.runs is None else 10).refuted
