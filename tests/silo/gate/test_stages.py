"""Stages follow each other: a survey before the training is one more round, charged first, answered once."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import cost, plan_events
from ringfence.accounting.events import DisjointBatchRelease, GaussianRelease
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member
from ringfence.protocol import (
    Curvature,
    Full,
    NoisyUpdate,
    Participation,
    Plan,
    RefusalReason,
    RoundRequest,
    Schema,
    StageTerms,
    Statistics,
)
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.gate import mechanism
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.review import reveals
from ringfence.silo.records.records import Records
from tests.support import (
    Drawn,
    MakePlan,
    approved_by,
    ask,
    ask_all,
    charged_when_drawn,
    own_terms,
    rebuilt,
    refusal,
    restaged,
    shift_in,
    spent,
    vector,
    watch_draws,
)


def surveyed(plan_of: MakePlan, **changes: Any) -> Plan:
    return plan_of(survey=True, **{"algorithm": "accelerated", **changes})


def truth(records: Records) -> float:
    """Compute the curvature in the plainest way."""
    return float(np.linalg.norm(sum(np.outer(x, x) for x in records.features) / len(records), 2))


def test_round_0_of_a_surveyed_plan_is_the_statistic_plus_the_noise_drawn(
    gate: Gate, records: Records, plan_of: MakePlan, drawn: Drawn
) -> None:
    plan = approved_by(gate, surveyed(plan_of))
    answer = vector(ask(gate, plan, 0))
    ((work, draws),) = drawn
    assert (work.number, work.stage.query.name) == (0, "curvature")
    assert work.sigma == own_terms(plan, 0).sigma
    assert answer.shape == (work.stage.query.length(plan),) == (1,)
    np.testing.assert_allclose(answer - draws.noise, truth(records), atol=2.0 ** grid_exponent(work.sigma))
    bare = mechanism.release(plan, work, np.zeros(4), records, draws)
    assert answer.tobytes() == bare.tobytes()


def test_a_survey_is_charged_by_its_sensitivity_before_it_is_drawn(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved_by(gate, surveyed(plan_of))
    seen = charged_when_drawn(monkeypatch, ledger.path)
    ask(gate, plan, 0)
    assert seen == [1]
    ((event, count),) = ledger.account().charged()
    assert isinstance(event, GaussianRelease)
    exact = plan.stages[0].query.sensitivity(plan, 40) / own_terms(plan, 0).sigma
    assert count == 1
    assert exact <= shift_in(event) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("asked", [(0, 1, 2, 3, 4, 5), (1, 2, 5), (0, 3, 5)])
def test_a_survey_shifts_no_batch_of_one_pass(
    gate: Gate, plan_of: MakePlan, asked: tuple[int, ...], drawn: Drawn
) -> None:
    plan = approved_by(gate, surveyed(plan_of, sampling="one-pass", rounds=5))
    ask_all(gate, plan, asked)
    gradients = [(work, draws) for work, draws in drawn if work.number == 1]
    assert [work.part for work, _ in gradients] == [(i, 8 * i) for i in range(len(gradients))]
    assert np.sum([draws.participation for _, draws in gradients], axis=0).max() == 1.0
    assert all(draws.participation.sum() == 8 for _, draws in gradients)


def test_a_plan_that_is_a_survey_only_has_one_round_which_costs_all_that_it_claims(
    ledger: Ledger, schema: Schema, records: Records
) -> None:
    cells = {name: Reading(records.features[:, place], None) for place, name in enumerate(("a", "b"))}
    gate = Gate(Records(schema, records.features, records.targets, cells=cells), ledger)
    plan = make_query_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], Statistics(columns=("a", "b")))
    assert plan.dimension == 0
    gate.approve(plan)
    request = RoundRequest.at(plan.digest(), 0, np.zeros(1))
    assert refusal(gate.answer(request)) is RefusalReason.MALFORMED
    assert len(vector(ask(gate, plan, 0))) == plan.stages[0].query.length(plan) > 1
    assert refusal(ask(gate, plan, 1)) is RefusalReason.ROUND_OUT_OF_RANGE
    assert 0.999 < spent(ledger) <= 1.0


def test_a_plan_may_ask_any_queries_one_after_the_other_and_each_is_charged_as_its_own(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate looks at a query through its interface: how many stages there are, and of which, is not its concern."""
    plan = plan_of(epsilon=0.5, sampling="one-pass", rounds=5)
    noise = StageTerms(batch=40, sigma=2.0)
    asked = plan.stages[0].model_copy(update={"query": Curvature(), "sampling": Full(), "rounds": 2})
    once = asked.model_copy(update={"query": Curvature(margin=1.0), "rounds": 1})
    terms = plan.silos[0]
    claim = terms.guarantee.model_copy(update={"epsilon": 1.9})
    richer = rebuilt(
        plan,
        stages=(asked, *plan.stages, once),
        silos=(terms.model_copy(update={"stages": (noise, *terms.stages, noise), "guarantees": (claim,)}),),
    )
    gate.approve(richer)
    drawn = watch_draws(monkeypatch)
    answers = ask_all(gate, richer, [0, 1, 3, 4, 6, 7])
    assert [len(answer) for answer in answers] == [1, 1, 4, 4, 4, 1]
    assert [work.number for work, _ in drawn] == [0, 0, 1, 1, 1, 2]
    assert [work.part for work, _ in drawn] == [None, None, (0, 0), (1, 8), (2, 16), None]
    assert refusal(ask(gate, richer, 8)) is RefusalReason.ROUND_OUT_OF_RANGE
    parts = [event for event, _ in ledger.account().charged() if isinstance(event, DisjointBatchRelease)]
    assert [event.part for event in parts] == [0, 1, 2]
    assert {event.partition for event in parts} == {richer.digest()}
    # One pass costs the same in three rounds as in five.
    assert spent(ledger) == pytest.approx(accountant.epsilon(plan_events(richer, richer.silos[0]), 1e-6), rel=1e-9)


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


def test_the_review_says_how_often_the_silo_answers(plan: Plan) -> None:
    text = reveals(plan, plan.silos[0])
    assert text[0].startswith("In each of 3 rounds, 4 numbers")
    assert any("of 6 rounds, this one answers at most 3" in line for line in text)
    assert not any(
        "take turns" in line for line in reveals(restaged(plan, participation=Participation()), plan.silos[0])
    )


def test_one_pass_has_a_part_for_every_turn_and_uses_all_records(plan_of: MakePlan, gate: Gate) -> None:
    plan = plan_of(members=MEMBERS, rounds=6, participation=Participation(silos=2), sampling="one-pass")
    assert plan.silos[0].stages[0].batch == 40 // ANSWERS
    gate.approve(plan)
    for round in (1, 2, 5):
        assert isinstance(ask(gate, plan, round), NoisyUpdate)
