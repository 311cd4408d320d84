"""Broken silos are found out through the real gate, by what they send and by what their ledgers claim.

That a sabotage is not found out is at most as probable as `power.miss_rate` computes, from exact distributions, and
`found_out` checks that this is 1e-6 at most. `test_every_mechanism` attacks each mechanism in turn.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.channels import own_noise, shuffler
from ringfence.accounting.events import SectionRelease
from ringfence.errors import AccountingError, PlanError
from ringfence.evidence.audit import game
from ringfence.evidence.audit.game import audit, default_runs, play
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import AuditQuery
from ringfence.evidence.audit.sabotage import SABOTAGES
from ringfence.planning.channels import coins
from ringfence.shuffler import shares
from ringfence.silo.gate import gate, sampling
from ringfence.silo.noise import randomness
from ringfence.silo.queries import gradient
from tests.evidence.audit.power import MOST, NOISY, SMALL, found_out, guesses_missed


@pytest.mark.parametrize(
    ("name", "mode", "runs"),
    [
        ("full", "root-half-noise", 24),
        ("full", "skip-clip", 4),
        ("full", "repeat-round", 24),
        ("full", "with-replacement", 60),
        ("full", "reuse-noise", 40),
        ("fixed", "with-replacement", 120),
        ("one-pass", "with-replacement", 60),
        ("one-pass", "reuse-noise", 40),
        ("correlated", "reuse-noise", 40),
        ("person-mean", "ignore-persons", 3),
        ("person-rows", "ignore-persons", 4),
        ("person-sum", "ignore-persons", 4),
    ],
)
def test_every_sabotage_is_refuted(name: str, mode: str, runs: int) -> None:
    """Here at a large epsilon, where little is enough; `make audit` does this to all of them at the default size."""
    report = found_out(name, SMALL, mode, runs)
    assert report.refuted
    assert list(report.findings())


@pytest.mark.parametrize(
    ("name", "mode", "records", "factor"),
    [("shuffled-alone", "wrong-sensitivity", 8, 2.0), ("shuffled-peer", "forget-peer", 32, math.sqrt(8))],
)
def test_a_wrong_claim_about_counts_is_charged_too_little(name: str, mode: str, records: int, factor: float) -> None:
    """The ledger is fooled, and the adversary is not; `make audit` refutes it, with a hundred runs.

    Fourteen silos' coins out of sixteen are the peer's, who takes them off.
    """
    query = AuditQuery(3.0, 1e-5, records, 1)
    [honest], [fooled] = play(MECHANISMS[name], query, 1), play(MECHANISMS[name], query, 1, mode)
    shifts = [2 * float(np.sqrt(run.observations[0].power()[0])) for run in (honest, fooled)]
    assert fooled.claim.epsilon == pytest.approx(honest.claim.epsilon, rel=0.1)
    assert shifts[1] == pytest.approx(factor * shifts[0], rel=0.1)


def test_second_moments_are_played_between_records_as_far_apart_as_any() -> None:
    """What the adversary sees moves as far as the claim allows, so an audit that passes has tested the bound itself."""
    [honest] = play(MECHANISMS["second-moments"], NOISY, 1)
    shift = 2 * float(np.sqrt(honest.observations[0].power()[0]))
    assert shift == pytest.approx(gaussian_shift(NOISY.epsilon, NOISY.delta), rel=1e-4)


def test_a_shuffled_run_is_claimed_against_its_observer() -> None:
    """The plan's guarantee against the server for a total, against anyone for the silo's own counts; one ledger."""
    for name in ("shuffled", "shuffled-peer", "shuffled-alone"):
        [plan] = MECHANISMS[name].plans(SMALL)
        [run] = play(MECHANISMS[name], SMALL, 1)
        server, anyone = (plan.silos[0].against(observer).epsilon for observer in plan.observers)
        if name != "shuffled-alone":
            assert 0.9 * server < run.claim.epsilon <= server
        else:
            assert run.claim.epsilon == pytest.approx(anyone, rel=1e-5)
            assert run.claim.epsilon > 1.3 * server


@pytest.mark.parametrize("mode", ["half-noise", "wrong-sensitivity"])
def test_too_little_noise_is_refuted_by_the_attack_itself(mode: str) -> None:
    """The shift is twice what is claimed. Misses, by guesses, and false alarms, by squares, come to 1e-6 at most."""
    query, runs = AuditQuery(3.0, 1e-5, 48, 1), 150
    shift = gaussian_shift(query.epsilon, query.delta)
    assert guesses_missed(norm.cdf(shift), 48, norm.cdf(shift / 2), runs, MOST / 2) <= MOST / 2
    report = audit("full", query, runs=runs, sabotage=mode, false_alarm=MOST / 2)
    assert report.game_refutes
    assert report.noise_refutes == (mode == "half-noise")  # with a wrong sensitivity the noise is just as planned
    assert report.epsilon_lower > report.epsilon_claimed


def test_a_choice_is_claimed_as_a_whole_whichever_records_are_attacked() -> None:
    """The server asks all plans in both games: those that train pay for every candidate, the others for comparing."""
    for name in ("choice", "comparison"):
        [run] = play(MECHANISMS[name], AuditQuery(10.0, 1e-5, 48, MECHANISMS[name].rounds), 1)
        assert run.claim.epsilon == pytest.approx(10.0, rel=1e-4)
        sections = [event.section for event, _ in run.claim.events if isinstance(event, SectionRelease)]
        assert set(sections) == {"training", "held-out"}


def test_the_claim_is_what_the_ledger_charged_for_all_plans_together() -> None:
    [run] = play(MECHANISMS["several-plans"], SMALL, 1)
    assert sorted((type(event).__name__, count) for event, count in run.claim.events) == [
        ("GaussianRelease", 1),
        ("PoissonRelease", 1),
    ]
    assert run.claim.epsilon == pytest.approx(10.0, rel=1e-4)
    assert len(run.observations) == 2


def test_runs_share_neither_coins_nor_noise() -> None:
    """Fails by chance with probability 3e-8 at most.

    Thirty-two fair coins agree with 2⁻³². Any value of the noise has probability 2⁻³⁰/√(2π) at most, by its grid, and
    there are 64 numbers.
    """
    first, second = play(MECHANISMS["full"], SMALL, 2)
    assert not np.array_equal(first.coins, second.coins)
    assert not np.any(first.observations[0].numbers == second.observations[0].numbers)


def test_sabotage_is_undone_at_the_end_of_its_block() -> None:
    touched = [(sampling, "draw"), (randomness, "gaussian_noise"), (randomness, "heads"),
               (sampling, "participation"), (gradient, "total"), (own_noise, "shift_of"),
               (shuffler, "BinomialRelease"), (shuffler, "honest_silos"), (shares, "shuffle_messages"),
               (coins, "binomial_shift"), (gate.Gate, "_judge")]  # fmt: skip
    before = [getattr(module, name) for module, name in touched]
    for mode in SABOTAGES:
        with pytest.raises(ZeroDivisionError), SABOTAGES[mode]():
            1 / 0  # noqa: B018
        assert [getattr(module, name) for module, name in touched] == before


def test_the_silos_code_knows_nothing_of_sabotage() -> None:
    files = list(Path(gate.__file__).parents[1].rglob("*.py"))
    assert Path(gradient.__file__) in files
    for file in files:
        assert "sabotage" not in file.read_text()


def test_fewer_canaries_play_more_runs() -> None:
    query = AuditQuery(3.0, 1e-5, 1000, 4)
    assert default_runs("full", query) == game.RUNS
    assert default_runs("full", AuditQuery(3.0, 1e-5, 32, 4)) == 2 * game.RUNS
    assert default_runs("curvature", query) == 4 * game.RUNS
    assert default_runs("shuffled", query) == MECHANISMS["shuffled"].runs


def test_every_plan_of_a_run_has_two_rounds_by_default_so_that_noise_cannot_be_reused_unseen() -> None:
    for name in MECHANISMS:
        query = AuditQuery(3.0, 1e-5, 64, MECHANISMS[name].rounds)
        plans = filter(MECHANISMS[name].reads, MECHANISMS[name].plans(query))
        answered = [stage.most_answers for plan in plans for stage in plan.stages]
        assert answered == [2] * len(answered) or sum(answered) == 2 or "reuse-noise" in MECHANISMS[name].not_played


@pytest.mark.parametrize("name", MECHANISMS)
def test_silos_of_other_sizes_can_be_audited(name: str) -> None:
    """More records than canaries, rounds that do not divide the records, and single rounds: two audits in one test."""
    for query in (AuditQuery(3.0, 1e-6, 101, 3), AuditQuery(1.0, 1e-6, 5, 1)):
        assert not audit(name, query, runs=1 if MECHANISMS[name].runs else 3, false_alarm=MOST / 4).refuted


def test_what_cannot_be_audited_is_refused_in_words() -> None:
    with pytest.raises(PlanError, match=r"no mechanism 'magic'; choose one of full, .*person-sum"):
        audit("magic", SMALL, runs=1)
    with pytest.raises(PlanError, match=r"no sabotage 'arson'; choose one of none, half-noise"):
        audit("full", SMALL, runs=1, sabotage="arson")
    with pytest.raises(PlanError, match="'skip-clip' is not run against 'curvature'"):
        audit("curvature", SMALL, runs=1, sabotage="skip-clip")
    with pytest.raises(PlanError, match="needs a record, or person, for each"):
        audit("one-pass", AuditQuery(1.0, 1e-6, 2, 3), runs=1)
    with pytest.raises(AccountingError, match="runs must be a whole number"):
        audit("full", SMALL, runs=0)
    for bad in ((0.0, 1e-5, 32, 2), (1.0, 1.0, 32, 2), (1.0, 1e-5, 0, 2), (1.0, 1e-5, 32, 0)):
        with pytest.raises(AccountingError):
            AuditQuery(*bad)
