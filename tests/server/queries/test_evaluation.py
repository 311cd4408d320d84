"""A plan trains and then evaluates: asked in two rounds, charged, answered through gates, and read as figures."""

from pathlib import Path

import numpy as np
import pytest

from ringfence import Member, PlanRequest, Silo, make_plan, train
from ringfence.estimates.evaluation import evaluation_report
from ringfence.protocol import Evaluation, Full, Plan, Stage, StageTerms, pack, parse_schema
from ringfence.server.queries.evaluation import EvaluationFindings, argument, evaluation_of_run, receive
from ringfence.server.state import RoundAnswers, ServerState
from ringfence.silo.operator.review import reveals
from ringfence.silo.records.records import Records
from tests.support import rebuilt

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
LABEL = {"type": "categorical", "categories": ["no", "yes"]}
SCHEMA = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "ill": LABEL}}, target="ill")
COUNT, SIGMA = 400, 1e-4


def records(seed: int) -> Records:
    random = np.random.default_rng(seed)
    features = np.column_stack([random.uniform(-1, 1, (COUNT, 2)), np.ones(COUNT)])
    return Records(SCHEMA, features, np.where(features[:, 0] + 0.2 * random.normal(size=COUNT) > 0, 1.0, -1.0))


def evaluating(query: Evaluation, rounds: int = 2) -> Plan:
    """A plan that trains and then asks; every silo allows as much as that costs."""
    members = [Member(name, COUNT, epsilon=5.0, delta=1e-6) for name in ("north", "south")]
    plan = make_plan(SCHEMA, members, PlanRequest(rounds=3, survey=False))
    stage = Stage(query=query, rounds=rounds, sampling=Full())
    silos = []
    for terms in plan.silos:
        stages = (*terms.stages, StageTerms(batch=COUNT, sigma=SIGMA))
        allowed = terms.guarantees[0].model_copy(update={"epsilon": 1e5})
        silos.append(terms.model_copy(update={"stages": stages, "guarantees": (allowed,)}))
    return rebuilt(plan, stages=(*plan.stages, stage), silos=tuple(silos))


def test_a_trained_model_is_evaluated_through_real_gates_and_the_review_says_so(tmp_path: Path) -> None:
    plan, data = evaluating(Evaluation()), {"north": records(1), "south": records(2)}
    result = train(plan, {name: Silo(own, tmp_path / f"{name}.ledger") for name, own in data.items()})
    found = result.findings["evaluation"]
    assert isinstance(found, EvaluationFindings)
    assert [len(one.answers) for one in found.rounds] == [2, 2]
    text = evaluation_report(Evaluation(), plan, found.rounds)
    for name, own in data.items():
        exact = result.model.evaluate(own.features, own.targets)["accuracy"]
        # Noise of 1e-4 on means; the accuracy's is below 2e-4, of which this is far more than five deviations.
        assert text.silos[name].metric("accuracy").value == pytest.approx(exact, abs=2e-3)
    assert "how well a model that the server names predicts 'ill'" in " ".join(reveals(plan, plan.silos[0]))
    assert text.together.sentences()[0].startswith("accuracy ")
    assert evaluation_of_run(plan, result.findings, by_silo=False) == text.model_copy(update={"silos": {}})


def test_the_second_round_s_bin_edges_follow_from_the_first_and_the_plan_s_weights_are_evaluated() -> None:
    weights = np.array([0.5, -0.25, 0.0])
    query = Evaluation(weights=pack(weights))
    plan = evaluating(query)
    learned, round = ServerState.initial(plan), plan.steps
    first = argument(query, learned, round)
    assert query.read(plan, first).weights.tolist() == weights.tolist()
    answer = np.zeros(query.length(plan))
    learned = receive(query, learned, RoundAnswers(1, round, ["north"], answer, {"north": answer}))
    second = argument(query, learned, round + 1)
    assert query.accepts(plan, second)
    asked = [query.read(plan, one) for one in (first, second)]
    assert asked[0].shares["loss"] == 0 < asked[1].shares["loss"]
    assert asked[0].bin_edges["scores"].tolist() != asked[1].bin_edges["scores"].tolist()
    assert argument(query, learned, round + 1).tolist() == second.tolist()


def test_a_stage_of_one_round_asks_for_everything_at_once(tmp_path: Path) -> None:
    query = Evaluation()
    plan = evaluating(query, rounds=1)
    asked = query.read(plan, argument(query, ServerState.initial(plan), plan.steps))
    assert min(asked.shares.values()) > 0
