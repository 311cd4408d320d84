"""Phases: each on records of its own, the same ones in all its rounds, and together no dearer than they claim."""

import math
from typing import Any

import numpy as np
import pytest

from ringfence.planning import accountant
from ringfence.planning.charges import plan_events
from ringfence.planning.prescribe import Member
from ringfence.protocol.algorithms import Localized, Phase
from ringfence.protocol.messages import NoisyUpdate, Reason
from ringfence.protocol.plan import Plan
from ringfence.silo import mechanism, randomness
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Budget, Ledger
from ringfence.silo.records import Records
from tests.support import MakePlan, ask, ask_all, refusal, vector, watch_draws

ROUNDS = (3, 2, 4)
SIZES = (20, 10, 5)
"""Of phases of 40 records."""


def phased(plan_of: MakePlan, rounds: tuple[int, ...] = ROUNDS, **changes: Any) -> Plan:
    phases = tuple(Phase(rounds=count, penalty=0.1 * 8**i) for i, count in enumerate(rounds))
    return plan_of(algorithm=Localized(smoothness=1.0, phases=phases), rounds=sum(rounds), **changes)


def phase_of_round(rounds: tuple[int, ...]) -> list[int]:
    return [phase for phase, count in enumerate(rounds) for _ in range(count)]


@pytest.mark.parametrize("survey", [False, True])
def test_phase_i_uses_half_as_many_records_as_the_last_always_the_same_and_none_of_another_phase_s(
    gate: Gate, plan_of: MakePlan, survey: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = phased(plan_of, survey=survey)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan)
    gradients = [draws.participation for work, draws in drawn if work.query == "gradient"]
    assert len(gradients) == 9
    sets = [{tuple(np.flatnonzero(p)) for p, own in zip(gradients, phase_of_round(ROUNDS), strict=True) if own == i}
            for i in range(3)]  # fmt: skip
    assert [len(different) for different in sets] == [1, 1, 1]
    parts = [different.pop() for different in sets]
    assert tuple(map(len, parts)) == SIZES
    assert len(set().union(*parts)) == sum(SIZES)


def test_a_restarted_silo_goes_on_with_the_same_records(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = phased(plan_of)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan, [0, 3])
    ledger.close()
    randomness._partition.cache_clear()
    with Ledger.open(ledger.path) as reopened:
        ask_all(Gate(records, reopened), plan, [4, 5])
    zero, three, four, five = (draws.participation for _, draws in drawn)
    assert np.array_equal(three, four)
    assert np.max(zero + three + five) == 1.0


def test_phases_go_by_the_number_of_the_round_and_not_by_the_count_of_answers(
    gate: Gate, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = phased(plan_of)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan, [2, 4, 8])
    assert [work.part for work, _ in drawn] == [0, 1, 2]
    assert [work.batch for work, _ in drawn] == list(SIZES)
    assert refusal(ask(gate, plan, 9)) is Reason.ROUND_OUT_OF_RANGE


def test_the_same_draws_through_gate_and_bare_mechanism_give_the_same_bytes(
    gate: Gate, records: Records, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = phased(plan_of)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    random = np.random.default_rng(5)
    for round in range(plan.exchanges):
        weights = random.normal(size=plan.dimension)
        answer = vector(ask(gate, plan, round, weights))
        work, draws = drawn[round]
        assert answer.tobytes() == mechanism.release(plan, work, weights, records, draws).tobytes()
        # A mean over the phase's records, whatever the plan's batch is.
        used = records.take(np.flatnonzero(draws.participation))
        alone = mechanism.clipped_mean(
            plan.loss,
            plan.clip,
            weights=weights.reshape(4, 1),
            features=used.features,
            norms=used.norms,
            targets=used.targets,
            shares=np.full(len(used), 1 / len(used)),
        )
        np.testing.assert_allclose(answer - draws.noise, alone.reshape(-1), atol=1e-8 * work.sigma)


def test_a_phase_s_noise_grows_with_the_root_of_its_rounds_and_falls_with_its_records(
    gate: Gate, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = phased(plan_of)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan)
    first = plan.silos[0].sigma
    for (work, _), phase in zip(drawn, phase_of_round(ROUNDS), strict=True):
        expected = first * math.sqrt(ROUNDS[phase] / ROUNDS[0]) * SIZES[0] / SIZES[phase]
        assert work.sigma == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rounds", [(1,), (3, 2, 4), (100, 1), (1, 100), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("survey", [False, True])
def test_all_rounds_together_cost_what_the_plan_claims_and_hardly_less(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, rounds: tuple[int, ...], survey: bool
) -> None:
    plan = phased(plan_of, rounds, survey=survey, epsilon=1.3)
    gate.approve(plan)
    ask_all(gate, plan)
    assert 0.999 * 1.3 < ledger.account().spent() <= 1.3


def test_one_whole_phase_costs_as_much_as_all_of_them_and_half_of_each_phase_costs_less(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = phased(plan_of, (4, 4, 4), epsilon=1.0)
    gate.approve(plan)
    ask_all(gate, plan, [0, 2, 4, 5, 9, 11])
    half = ledger.account().spent()
    # Two rounds of four have 1/√2 of the shift.
    shift = accountant.as_one_gaussian(plan_events(plan, plan.silos[0]))
    charged = accountant.as_one_gaussian(ledger.account().charged())
    assert shift is not None
    assert charged is not None
    assert charged == pytest.approx(shift / math.sqrt(2), rel=1e-5)
    assert 0 < half < 1.0
    whole = phased(plan_of, (4, 4, 4), epsilon=1.0)
    gate.end(plan)
    ledger.grant(Budget(5.0, 1e-6))
    gate.approve(whole)
    ask_all(gate, whole, range(4))
    alone = accountant.epsilon(ledger.account().plans[whole.digest()].charged(), 1e-6)
    assert 0.999 < alone <= 1.0


def test_two_phased_plans_divide_the_records_differently_and_their_costs_add_up(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = phased(plan_of, (2, 2)), phased(plan_of, (2, 2))
    drawn = watch_draws(monkeypatch)
    for plan in (first, second):
        gate.approve(plan)
        ask_all(gate, plan)
    assert not np.array_equal(drawn[0][1].participation, drawn[4][1].participation)
    shift = accountant.as_one_gaussian(ledger.account().charged())
    alone = accountant.as_one_gaussian(plan_events(first, first.silos[0]))
    assert alone is not None
    assert shift == pytest.approx(math.sqrt(2) * alone, rel=1e-9)


@pytest.mark.parametrize("records_", [2, 3, 39])
def test_odd_and_tiny_silos_have_phases_of_whole_records(
    records: Records, plan_of: MakePlan, records_: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = int(math.log2(records_))
    plan = phased(plan_of, (1,) * count, members=[Member("clinic", records_, 1.0, 1e-6)])
    drawn = watch_draws(monkeypatch)
    with Ledger.create(tmp_path / "small.ledger", silo="clinic", budget=Budget(1.0, 1e-6)) as ledger:
        gate = Gate(records.take(np.arange(records_)), ledger)
        gate.approve(plan)
        for round in range(count):
            assert isinstance(ask(gate, plan, round), NoisyUpdate)
    assert [draws.participation.sum() for _, draws in drawn] == [records_ >> (i + 1) for i in range(count)]
    assert np.sum([draws.participation for _, draws in drawn], axis=0).max() == 1.0
