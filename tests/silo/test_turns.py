"""Where silos take turns, a silo answers so many rounds and no more, whoever asks for which, and pays for so many."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from ringfence.accounting.charges import cost, plan_events
from ringfence.planning.request import Member
from ringfence.protocol.messages import NoisyUpdate, RefusalReason
from ringfence.protocol.plan import Participation, Plan
from ringfence.silo.budget import Budget
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from ringfence.silo.review import reveals
from tests.support import MakePlan, ask, refusal, restaged, spent

MEMBERS = [Member(name, 40, 1.0, 1e-6) for name in ("clinic", "north", "south", "west")]
ANSWERS = 3


@pytest.fixture
def plan(plan_of: MakePlan) -> Plan:
    """A plan of six rounds, each of which asks two silos of four, so that three turns are enough."""
    return plan_of(members=MEMBERS, rounds=6, participation=Participation(silos=2), algorithm="accelerated")


def test_turns_are_as_few_as_suffice_and_the_noise_pays_for_no_more(plan: Plan, plan_of: MakePlan) -> None:
    (stage,) = plan.stages
    assert stage.participation == Participation(silos=2, answers=ANSWERS)
    own = plan.silos[0]
    assert [count for _, count in plan_events(plan, own)] == [ANSWERS]
    assert 0.999 < cost(plan_events(plan, own), own.guarantee) <= 1.0
    everybody = plan_of(members=MEMBERS, rounds=6, algorithm="accelerated")
    for before, now in zip(everybody.silos, plan.silos, strict=True):
        assert now.stages[0].sigma == pytest.approx(before.stages[0].sigma * 0.5**0.5, rel=1e-3)


@pytest.mark.parametrize("rounds", list(itertools.combinations(range(6), 4)), ids=str)
def test_whichever_rounds_a_server_asks_for_no_more_are_answered_than_the_plan_says(
    gate: Gate, ledger: Ledger, plan: Plan, rounds: tuple[int, ...]
) -> None:
    gate.approve(plan)
    for round in rounds[:ANSWERS]:
        first = ask(gate, plan, round)
        assert isinstance(first, NoisyUpdate)
        assert ask(gate, plan, round) == first  # a repeated request is no further turn
    before = spent(ledger)
    for round in rounds[ANSWERS:]:
        assert refusal(ask(gate, plan, round)) is RefusalReason.TURNS_TAKEN
    assert spent(ledger) == before <= plan.silos[0].guarantee.epsilon
    assert ask(gate, plan, rounds[0]) == ask(gate, plan, rounds[0])


def test_a_turn_whose_answer_was_lost_is_a_turn(tmp_path: Path, records: Records, plan: Plan) -> None:
    """What is charged counts, so that a crash gives no answer more."""
    with Ledger.create(tmp_path / "clinic.ledger", silo="clinic", budget=Budget(2.0, 1e-6)) as ledger:
        gate = Gate(records, ledger)
        gate.approve(plan)
        refused = ask(gate, plan, 0, np.inf * 0 + 1e9)  # refused, and not charged
        assert refusal(refused) is RefusalReason.OUTSIDE_DOMAIN
        for round in range(ANSWERS):
            ask(gate, plan, round)
        again = Gate(records, ledger)  # a restart forgets no turn
        assert refusal(ask(again, plan, ANSWERS)) is RefusalReason.TURNS_TAKEN


def test_a_refusal_for_want_of_turns_is_not_final() -> None:
    assert not RefusalReason.TURNS_TAKEN.is_final
    assert "ask others" in RefusalReason.TURNS_TAKEN.explanation


def test_an_operator_is_told_how_often_the_silo_answers(plan: Plan) -> None:
    told = reveals(plan, plan.silos[0])
    assert told[0].startswith("In each of 3 rounds, 4 numbers")
    assert any("of 6 rounds, this one answers at most 3" in line for line in told)
    assert not any(
        "take turns" in line for line in reveals(restaged(plan, participation=Participation()), plan.silos[0])
    )


def test_one_pass_has_a_part_for_every_turn_and_uses_all_records(plan_of: MakePlan, gate: Gate) -> None:
    plan = plan_of(members=MEMBERS, rounds=6, participation=Participation(silos=2), sampling="one-pass")
    assert plan.silos[0].stages[0].batch == 40 // ANSWERS
    gate.approve(plan)
    for round in (1, 2, 5):
        assert isinstance(ask(gate, plan, round), NoisyUpdate)


def test_a_number_of_turns_needs_a_number_of_silos() -> None:
    with pytest.raises(ValueError, match="give the number of silos that a round asks"):
        Participation(answers=3)


def test_a_plan_without_turns_has_the_bytes_that_it_had_before_there_were_any(plan: Plan) -> None:
    assert b'"answers"' in plan.content
    assert b'"answers"' not in restaged(plan, participation=Participation(silos=2)).content
