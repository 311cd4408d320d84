"""The audits at their default size: `make audit`. Minutes, where `make test` has seconds.

A true claim is refuted with probability 2e-6 at most in each audit.
"""

import pytest

from ringfence.audit.game import LOCAL_SGD, Report, audit, default_rounds
from ringfence.audit.local import NOISE
from ringfence.audit.mechanisms import MECHANISMS, Question
from ringfence.audit.sabotage import NONE, SABOTAGES

ALARMS = 200
"""Honest audits that are run to see that none is refuted."""

SABOTAGED = [
    *(
        (name, mode)
        for name, about in MECHANISMS.items()
        for mode in SABOTAGES
        if mode not in {NONE, *about.not_played}
    ),
    *((LOCAL_SGD, mode) for mode in NOISE if mode != NONE),
]


def default_audit(name: str, sabotage: str = NONE, runs: int | None = None) -> Report:
    """What `ringfence audit` plays if nothing else is said."""
    return audit(name, Question(3.0, 1e-5, 64, default_rounds(name)), sabotage=sabotage, runs=runs)


@pytest.mark.parametrize("name", [*MECHANISMS, LOCAL_SGD])
def test_an_honest_silo_keeps_its_claim(name: str) -> None:
    assert list(default_audit(name).findings()) == []


@pytest.mark.parametrize("rounds", [1, 2, 10])
def test_the_lower_bound_reaches_85_percent_of_the_claim(rounds: int) -> None:
    """By chance it falls short with probability below 1e-4: it is five deviations of the score away."""
    report = audit("full", Question(3.0, 1e-5, 64, rounds))
    assert report.epsilon_lower >= 0.85 * report.epsilon_claimed


@pytest.mark.parametrize(("name", "mode"), SABOTAGED)
def test_every_sabotage_is_refuted(name: str, mode: str) -> None:
    assert default_audit(name, mode).refuted


@pytest.mark.parametrize("number", range(ALARMS))
def test_no_false_alarm(number: int) -> None:
    name, mechanism = list(MECHANISMS.items())[number % len(MECHANISMS)]
    assert not default_audit(name, runs=100 if mechanism.runs is None else 10).refuted
