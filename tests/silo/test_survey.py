"""A survey is one more round: charged first, answered once, and never moved further than it is charged for."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ringfence.planning.charges import plan_events, task_event
from ringfence.planning.events import GaussianRelease
from ringfence.planning.prescribe import Member, make_plan
from ringfence.planning.surveys import make_survey
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import NoisyUpdate, Reason
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import survey_length, survey_sensitivity, task
from ringfence.protocol.schema import Schema, parse_schema
from ringfence.silo import mechanism
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.mechanism import Draws, grid_exponent
from ringfence.silo.records import Records
from tests.support import (
    MakePlan,
    about_moments,
    ask,
    ask_all,
    charged_when_drawn,
    refusal,
    shift_in,
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
    if plan.survey is not None and plan.survey.statistic == "moments":
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
    assert work.query == "survey"
    assert work.sigma == plan.silos[0].survey_sigma
    assert answer.shape == (survey_length(plan),) == ((1,) if statistic == "curvature" else (8,))
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
    exact = survey_sensitivity(plan, 40) / (plan.silos[0].survey_sigma or math.nan)
    assert count == 1
    assert exact <= shift_in(event) <= exact * (1 + 1e-6)


def test_a_repeated_survey_gets_the_stored_bytes_and_costs_nothing(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    first = ask(gate, plan, 0)
    spent = ledger.account().spent()
    ask(gate, plan, 1)
    after = ledger.account().spent()
    assert spent < after
    for asked in (gate, Gate(records, ledger)):
        assert ask(asked, plan, 0).to_bytes() == first.to_bytes()
        assert refusal(ask(asked, plan, 0, 0.1)) is Reason.ROUND_ANSWERED
    assert ledger.account().spent() == after


def test_gradients_follow_a_survey_up_to_the_last_exchange(gate: Gate, plan_of: MakePlan) -> None:
    plan = surveyed(plan_of, rounds=5)
    gate.approve(plan)
    answers = ask_all(gate, plan)
    assert [len(answer) for answer in answers] == [1, 4, 4, 4, 4, 4]
    assert refusal(ask(gate, plan, plan.exchanges)) is Reason.ROUND_OUT_OF_RANGE
    assert refusal(ask(gate, plan, 2**53)) is Reason.ROUND_OUT_OF_RANGE


def test_a_survey_may_be_left_out_but_not_made_up_for(gate: Gate, plan_of: MakePlan) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    assert isinstance(ask(gate, plan, 1), NoisyUpdate)
    assert refusal(ask(gate, plan, 0)) is Reason.ROUND_PASSED


def test_a_plan_without_a_survey_has_gradients_from_round_0_on(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(rounds=3)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan, range(3))
    assert {work.query for work, _ in drawn} == {"gradient"}
    assert refusal(ask(gate, plan, 3)) is Reason.ROUND_OUT_OF_RANGE
    assert len(ledger.account().charged()) == 1


@pytest.mark.parametrize("asked", [(0, 1, 2, 3, 4, 5), (1, 2, 5), (0, 3, 5)])
def test_a_survey_shifts_no_batch_of_one_pass(
    gate: Gate, plan_of: MakePlan, asked: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = surveyed(plan_of, sampling="one-pass", rounds=5)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    ask_all(gate, plan, asked)
    gradients = [(work, draws) for work, draws in drawn if work.query == "gradient"]
    assert [(work.part, work.first) for work, _ in gradients] == [(i, 8 * i) for i in range(len(gradients))]
    assert np.sum([draws.participation for _, draws in gradients], axis=0).max() == 1.0
    assert all(draws.participation.sum() == 8 for _, draws in gradients)


def test_weights_that_do_not_belong_to_the_plan_are_refused_in_a_survey_too(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    assert refusal(ask(gate, plan, 0, np.full(4, np.nan))) is Reason.OUTSIDE_DOMAIN
    assert refusal(ask(gate, plan, 0, np.full(4, 1e9))) is Reason.OUTSIDE_DOMAIN
    assert ledger.account().charged() == []


def test_a_plan_that_is_a_survey_only_has_one_exchange_which_costs_all_that_it_claims(
    gate: Gate, ledger: Ledger, schema: Schema
) -> None:
    plan = make_survey(schema, [Member("clinic", 40, 1.0, 1e-6)])
    gate.approve(plan)
    assert len(vector(ask(gate, plan, 0))) == 8
    assert refusal(ask(gate, plan, 1)) is Reason.ROUND_OUT_OF_RANGE
    assert 0.999 < ledger.account().spent() <= 1.0


def test_a_survey_lost_in_a_crash_is_never_drawn_again(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = surveyed(plan_of)
    gate.approve(plan)
    with monkeypatch.context() as crash:
        crash.setattr(mechanism, "release", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ask(gate, plan, 0)
    assert refusal(ask(Gate(records, ledger), plan, 0)) is Reason.ROUND_LOST
    assert ledger.account().charged() == plan_events(plan, plan.silos[0])[:1]
    assert isinstance(ask(gate, plan, 1), NoisyUpdate)


# Sensitivity


def schema_with(target: Literal["label", "number"]) -> Schema:
    """Three features without an intercept, so that a record may be any vector of norm up to √3."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    columns = {"a": number, "b": number, "c": number, "y": label if target == "label" else number}
    return parse_schema({"columns": columns, "intercept": 0.0}, target="y")


def statistic_of(plan: Plan, features: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the survey's answer but for the noise."""
    work = task(plan, plan.silos[0], 0, 0)
    draws = Draws(np.ones(len(targets)), np.zeros(work.length))
    return mechanism.release(plan, work, np.zeros(3), Records(plan.data, features, targets), draws)


def on_sphere(vectors: FloatArray, norm: float) -> FloatArray:
    scaled: FloatArray = vectors * norm / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def bases(random: np.random.Generator, n: int, largest: float) -> list[FloatArray]:
    """Data sets of other records: none but zeros, in one direction, at the bound, inside, and far beyond it."""
    anywhere = random.normal(size=(n, 3))
    return [
        np.zeros((n, 3)),
        np.tile([largest, 0.0, 0.0], (n, 1)),
        on_sphere(anywhere, largest),
        on_sphere(anywhere, largest) * random.uniform(0, 1, (n, 1)),
        100 * anywhere,
    ]


def candidates(random: np.random.Generator, features: FloatArray, largest: float) -> list[FloatArray]:
    """Records to put in: nothing, the eigenvectors, the worst pairs for moments, random ones, and some far too long."""
    _, vectors = np.linalg.eigh(features.T @ features)
    a = 0.2696  # 4 + 2a + 2a⁴ − 4a² is largest: x = e₁ against x' = −a·e₁ + √(1−a²)·e₂
    worst = largest * np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [-a, math.sqrt(1 - a**2), 0.0]])
    at_bound = [*(largest * vectors.T), *worst, *on_sphere(random.normal(size=(4, 3)), largest)]
    return [np.zeros(3), *at_bound, *(1000 * x for x in at_bound[:4]), *random.uniform(-1, 1, (4, 3))]


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("target", ["label", "number"])
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_no_replaced_record_moves_a_survey_further_than_it_is_charged_for_and_some_come_close(
    statistic: Statistic, target: Literal["label", "number"], n: int
) -> None:
    members = [Member("clinic", n, 1.0, 1e-6)]
    plan = make_plan(schema_with(target), members, rounds=3, algorithm="accelerated", survey=True)
    plan = plan if statistic == "curvature" else about_moments(plan)
    largest, sensitivity = plan.data.feature_norm, survey_sensitivity(plan, n)
    terms = plan.silos[0]
    event = task_event(plan, terms, task(plan, terms, 0, 0))
    random = np.random.default_rng(n)
    ends = [-1.0, 1.0] if target == "label" else [-1.0, 1.0, 0.0, -50.0, 50.0]
    farthest = 0.0
    for features in bases(random, n, largest):
        targets = random.choice(ends, size=n)
        answers = []
        for candidate in candidates(random, features, largest):
            for end in ends:
                features[0], targets[0] = candidate, end
                answers.append(statistic_of(plan, features, targets))
        moved = np.linalg.norm(np.array(answers)[:, None] - np.array(answers)[None], axis=2)
        farthest = max(farthest, float(moved.max()))
    assert farthest <= shift_in(event) * work_sigma(plan)
    assert farthest <= sensitivity * (1 + 1e-6)
    # Moments add up what mean, squares and target can do each for itself; no pair of records does it all at once.
    assert farthest >= {"curvature": 0.999, "moments": 0.84}[statistic] * sensitivity


def work_sigma(plan: Plan) -> float:
    return task(plan, plan.silos[0], 0, 0).sigma


def test_records_beyond_the_public_bounds_count_as_if_they_lay_on_them() -> None:
    plan = make_plan(schema_with("number"), [Member("clinic", 3, 1.0, 1e-6)], algorithm="accelerated", survey=True)
    for asked in (plan, about_moments(plan)):
        inside = on_sphere(np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.0], [5.0, 5.0, 0.0]]), plan.data.feature_norm)
        beyond = statistic_of(asked, inside * [[7.0], [1e6], [1.0]], np.array([9.0, -9.0, 0.5]))
        at_bound = statistic_of(asked, inside, np.array([1.0, -1.0, 0.5]))
        np.testing.assert_allclose(beyond, at_bound, atol=1e-12 + 2.0 ** grid_exponent(work_sigma(asked)))


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
