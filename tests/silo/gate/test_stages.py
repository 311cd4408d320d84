"""Stages follow each other: a survey before the training is one more round, charged first, answered once."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import DisjointBatchRelease, GaussianRelease
from ringfence.planning.one_question import make_survey
from ringfence.planning.request import Member
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import NoisyUpdate, RefusalReason, RoundRequest
from ringfence.protocol.plan import Plan, StageTerms
from ringfence.protocol.questions import Curvature, Moments
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema
from ringfence.silo import mechanism
from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from tests.support import (
    MakePlan,
    about_moments,
    ask,
    ask_all,
    charged_when_drawn,
    own_terms,
    rebuilt,
    refusal,
    shift_in,
    spent,
    vector,
    watch_draws,
)

Statistic = Literal["curvature", "moments"]
STATISTICS: list[Statistic] = ["curvature", "moments"]


def surveyed(plan_of: MakePlan, statistic: Statistic = "curvature", **changes: Any) -> Plan:
    plan = plan_of(survey=True, **{"algorithm": "accelerated", **changes})
    return plan if statistic == "curvature" else about_moments(plan)


def truth(plan: Plan, records: Records) -> FloatArray:
    """Compute the statistic in the plainest way."""
    if plan.stages[0].question.name == "moments":
        scaled = records.features / plan.data.feature_norm
        return np.concatenate([scaled.mean(axis=0), (scaled**2).mean(axis=0)])
    squares = sum(np.outer(x, x) for x in records.features) / len(records)
    return np.array([np.linalg.norm(squares, 2)])


@pytest.mark.parametrize("statistic", STATISTICS)
def test_round_0_of_a_surveyed_plan_is_the_statistic_plus_the_noise_drawn(
    gate: Gate, records: Records, plan_of: MakePlan, statistic: Statistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = surveyed(plan_of, statistic)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    answer = vector(ask(gate, plan, 0))
    ((work, draws),) = drawn
    assert (work.number, work.stage.question.name) == (0, statistic)
    assert work.sigma == own_terms(plan, 0).sigma
    assert answer.shape == (work.stage.question.length(plan),) == ((1,) if statistic == "curvature" else (8,))
    np.testing.assert_allclose(answer - draws.noise, truth(plan, records), atol=2.0 ** grid_exponent(work.sigma))
    bare = mechanism.release(plan, work, np.zeros(4), records, draws)
    assert answer.tobytes() == bare.tobytes()


@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_survey_is_charged_by_its_sensitivity_before_it_is_drawn(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, statistic: Statistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = surveyed(plan_of, statistic)
    gate.approve(plan)
    seen = charged_when_drawn(monkeypatch, ledger.path)
    ask(gate, plan, 0)
    assert seen == [1]
    ((event, count),) = ledger.account().charged()
    assert isinstance(event, GaussianRelease)
    exact = plan.stages[0].question.sensitivity(plan, 40) / own_terms(plan, 0).sigma
    assert count == 1
    assert exact <= shift_in(event) <= exact * (1 + 1e-6)


def test_a_repeated_survey_gets_the_stored_bytes_and_costs_nothing(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    first = ask(gate, plan, 0)
    before = spent(ledger)
    ask(gate, plan, 1)
    after = spent(ledger)
    assert before < after
    for asked in (gate, Gate(records, ledger)):
        assert ask(asked, plan, 0).to_bytes() == first.to_bytes()
        assert refusal(ask(asked, plan, 0, 0.1)) is RefusalReason.ROUND_ANSWERED
    assert spent(ledger) == after


def test_gradients_follow_a_survey_up_to_the_last_round(gate: Gate, plan_of: MakePlan) -> None:
    plan = surveyed(plan_of, rounds=5)
    gate.approve(plan)
    answers = ask_all(gate, plan)
    assert [len(answer) for answer in answers] == [1, 4, 4, 4, 4, 4]
    assert refusal(ask(gate, plan, plan.rounds)) is RefusalReason.ROUND_OUT_OF_RANGE
    assert refusal(ask(gate, plan, 2**53)) is RefusalReason.ROUND_OUT_OF_RANGE


def test_a_survey_may_be_left_out_but_not_made_up_for(gate: Gate, plan_of: MakePlan) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    assert isinstance(ask(gate, plan, 1), NoisyUpdate)
    assert refusal(ask(gate, plan, 0)) is RefusalReason.ROUND_PASSED


def test_a_plan_without_a_survey_has_gradients_from_round_0_on(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(rounds=3)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan, range(3))
    assert {work.stage.question.name for work, _ in drawn} == {"gradient"}
    assert refusal(ask(gate, plan, 3)) is RefusalReason.ROUND_OUT_OF_RANGE
    assert len(ledger.account().charged()) == 1


@pytest.mark.parametrize("asked", [(0, 1, 2, 3, 4, 5), (1, 2, 5), (0, 3, 5)])
def test_a_survey_shifts_no_batch_of_one_pass(
    gate: Gate, plan_of: MakePlan, asked: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = surveyed(plan_of, sampling="one-pass", rounds=5)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan, asked)
    gradients = [(work, draws) for work, draws in drawn if work.number == 1]
    assert [work.part for work, _ in gradients] == [(i, 8 * i) for i in range(len(gradients))]
    assert np.sum([draws.participation for _, draws in gradients], axis=0).max() == 1.0
    assert all(draws.participation.sum() == 8 for _, draws in gradients)


def test_weights_that_do_not_belong_to_the_plan_are_refused_in_a_survey_too(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    assert refusal(ask(gate, plan, 0, np.full(4, np.nan))) is RefusalReason.OUTSIDE_DOMAIN
    assert refusal(ask(gate, plan, 0, np.full(4, 1e9))) is RefusalReason.OUTSIDE_DOMAIN
    assert ledger.account().charged() == []


def test_a_plan_that_is_a_survey_only_has_one_round_which_costs_all_that_it_claims(
    gate: Gate, ledger: Ledger, schema: Schema
) -> None:
    plan = make_survey(schema, [Member("clinic", 40, 1.0, 1e-6)], Moments(bound="joint"))
    assert plan.dimension == 0
    gate.approve(plan)
    request = RoundRequest.at(plan.digest(), 0, np.zeros(1))
    assert refusal(gate.answer(request)) is RefusalReason.MALFORMED
    assert len(vector(ask(gate, plan, 0))) == 8
    assert refusal(ask(gate, plan, 1)) is RefusalReason.ROUND_OUT_OF_RANGE
    assert 0.999 < spent(ledger) <= 1.0


def test_a_survey_lost_in_a_crash_is_never_drawn_again(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    with monkeypatch.context() as crash:
        crash.setattr(mechanism, "release", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ask(gate, plan, 0)
    assert refusal(ask(Gate(records, ledger), plan, 0)) is RefusalReason.ROUND_LOST
    assert ledger.account().charged() == plan_events(plan, plan.silos[0])[:1]
    assert isinstance(ask(gate, plan, 1), NoisyUpdate)


def test_a_plan_may_ask_any_questions_one_after_the_other_and_each_is_charged_as_its_own(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate looks at a question through its interface: how many stages there are, and of which, is not its concern."""
    plan = plan_of(epsilon=0.5, sampling="one-pass", rounds=5)
    noise = StageTerms(batch=40, sigma=2.0)
    asked = plan.stages[0].model_copy(update={"question": Curvature(), "sampling": Full(), "rounds": 2})
    once = asked.model_copy(update={"question": Moments(), "rounds": 1})
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
    assert [len(answer) for answer in answers] == [1, 1, 4, 4, 4, 8]
    assert [work.number for work, _ in drawn] == [0, 0, 1, 1, 1, 2]
    assert [work.part for work, _ in drawn] == [None, None, (0, 0), (1, 8), (2, 16), None]
    assert refusal(ask(gate, richer, 8)) is RefusalReason.ROUND_OUT_OF_RANGE
    parts = [event for event, _ in ledger.account().charged() if isinstance(event, DisjointBatchRelease)]
    assert [event.part for event in parts] == [0, 1, 2]
    assert {event.partition for event in parts} == {richer.digest()}
    # One pass costs the same in three rounds as in five.
    assert spent(ledger) == pytest.approx(accountant.epsilon(plan_events(richer, richer.silos[0]), 1e-6), rel=1e-9)


def test_a_survey_s_answer_is_in_the_ledger_and_its_exact_value_is_not(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    ask(gate, plan, 0)
    exact = truth(plan, records)[0]
    content = b"".join(Path(path).read_bytes() for path in ledger.path.parent.glob("clinic.ledger*"))
    assert np.float64(exact).tobytes() not in content
    assert repr(float(exact)).encode() not in content
