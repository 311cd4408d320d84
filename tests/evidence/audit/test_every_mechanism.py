"""Every mechanism is attacked through the real gate: honest silos pass, and half of the noise is found out.

No test fails by chance with a probability above 1e-6. An honest audit has two ways to, the guesses and the squares, and
each is allowed half of that. That a sabotage is not found out is at most as probable as `power.miss_rate` computes,
from exact distributions, and `found_out` checks that this is 1e-6 at most. A change of any mechanism's
noise, sampling or sensitivity makes one of the first tests fail. They take minutes, so `make thorough` has them.
"""

import pytest

from ringfence.evidence.audit.game import audit
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import AuditQuery
from tests.evidence.audit.power import MOST, NOISY, SMALL, found_out


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_honest_silo_keeps_its_claim(name: str) -> None:
    """A survey has one canary, and so one number, in every run: it gets more of them, and noise that prevails."""
    alone = MECHANISMS[name].canaries(SMALL) == 1
    query, runs = (NOISY, 200) if alone else (SMALL, 6 if MECHANISMS[name].runs else 40)
    report = audit(name, query, runs=runs, false_alarm=MOST / 2)
    assert list(report.findings()) == []
    assert not report.refuted
    if MECHANISMS[name].runs is None:  # else coins are whole numbers
        assert report.epsilon_claimed == pytest.approx(query.epsilon, rel=1e-4)
    assert report.epsilon_claimed <= query.epsilon or name in ("shuffled-alone", "person-mean")
    assert report.epsilon_lower < report.epsilon_claimed


@pytest.mark.parametrize("name", MECHANISMS)
def test_half_of_the_noise_is_noticed_in_every_mechanism(name: str) -> None:
    """Misses, by the squares: 6e-10 for a survey, 1e-10 for totals, and 2e-14 or less elsewhere."""
    runs = 160 if MECHANISMS[name].canaries(NOISY) == 1 else 5 if name in ("shuffled", "shuffled-peer") else 3
    report = found_out(name, NOISY, "half-noise", runs)
    assert report.noise_refutes
    assert "squared norms" in " ".join(report.findings())


@pytest.mark.parametrize(
    ("mode", "epsilon", "rounds", "runs"),
    [
        ("skip-clip", 10.0, 1, 2),
        ("repeat-round", 1.0, 1, 20),
        ("reuse-noise", 1.0, 2, 18),
        ("with-replacement", 20.0, 1, 16),
    ],
)
def test_every_sabotage_of_counts_is_refuted(mode: str, epsilon: float, rounds: int, runs: int) -> None:
    """By squares, of which few runs have enough. The guesses need more runs: see `make audit`."""
    assert found_out("shuffled-alone", AuditQuery(epsilon, 1e-5, 32, rounds), mode, runs).noise_refutes


def test_shares_that_keep_their_order_are_refuted() -> None:
    """The peer takes its own off the pile; whatever comes first in the rest is the audited silo's."""
    assert found_out("shuffled-peer", AuditQuery(1.0, 1e-5, 32, 2), "keep-order", 16).noise_refutes


def test_candidates_that_are_not_charged_are_refuted_by_the_attack_itself() -> None:
    """The ledger counts the first of three candidates alone: the shift is √3 times what it says.

    Misses, by guesses, are 1e-6 at most (`found_out`).
    """
    report = found_out("choice", AuditQuery(10.0, 1e-5, 48, 6), "forget-tries", 160)
    assert report.game_refutes
    assert report.epsilon_lower > report.epsilon_claimed
    assert report.epsilon_claimed < 6


def test_noise_that_one_candidate_reuses_is_refuted() -> None:
    assert found_out("choice", AuditQuery(10.0, 1e-5, 48, 6), "reuse-noise", 20).noise_refutes
