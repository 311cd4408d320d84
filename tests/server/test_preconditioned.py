"""Preconditioned descent: as fast on badly scaled features as on good ones, through real gates and without noise."""

import math
from pathlib import Path

import numpy as np
import pytest

from ringfence import Member, PlanRequest, Silo, make_plan, protocol, train
from ringfence.errors import PlanError
from ringfence.server.rounds import Session
from ringfence.server.state import ServerState
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from ringfence.simulation.trials import simulated_state
from tests.support import rebuilt

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
TIME, EVENT = {**NUMBER, "lower": 0.0}, {"type": "boolean"}


def schema(width: int = 4, target: dict[str, object] | None = None) -> protocol.Schema:
    columns = {**dict.fromkeys((f"x{i}" for i in range(width)), NUMBER), "y": target or NUMBER}
    return protocol.parse_schema({"columns": columns}, target="y")


def badly_scaled(random: np.random.Generator, data: protocol.Schema, condition: float) -> Records:
    """Return records whose features' second moments span a factor of `condition`."""
    width = data.width - 1
    scales = np.geomspace(1.0, condition**-0.5, width)
    features = np.column_stack([random.uniform(-1, 1, (400, width)) * scales, np.ones(400)])
    weights = np.append(0.3 / scales / math.sqrt(width), 0.1)
    return Records(data, features, features @ weights)


def without_noise(plan: protocol.Plan, records: Records) -> protocol.FloatArray:
    """Run the plan with exact answers: what its noise would be, the server still believes."""
    session = Session(plan, np.random.default_rng(0))
    while not session.finished:
        request, stage = session.request(), session.stage
        everybody = np.ones(len(records)), len(records)
        exact = compute(stage.query, plan, protocol.unpack(request.argument), records, *everybody)
        answer = protocol.NoisyUpdate(plan=request.plan, round=request.round, silo="a", vector=protocol.pack(exact))
        session.receive({"a": answer})
    return session.result().weights


def nearly_noiseless(data: protocol.Schema, **asked: object) -> protocol.Plan:
    """Return a plan whose noise is so small that decisions do not care."""
    request = PlanRequest(algorithm="preconditioned", held_out=0.0, curves=0, **asked)  # type: ignore[arg-type]
    plan = make_plan(data, [Member("a", 400, 1.0, 1e-6)], request)
    (terms,) = plan.silos
    quiet = tuple(protocol.StageTerms(batch=own.batch, sigma=1e-5) for own in terms.stages)
    loud = terms.guarantees[0].model_copy(update={"epsilon": 1e9})
    return rebuilt(plan, silos=(terms.model_copy(update={"stages": quiet, "guarantees": (loud,)}),))


@pytest.mark.parametrize("condition", [1.0, 30.0, 1000.0])
def test_the_rounds_it_needs_do_not_grow_with_the_features_condition(condition: float) -> None:
    data = schema()
    records = badly_scaled(np.random.default_rng(1), data, condition)
    found = without_noise(nearly_noiseless(data), records)
    residual = records.features @ found - records.targets
    assert np.sqrt(np.mean(residual**2)) < 0.02 * np.std(records.targets)


def test_a_ridge_draws_the_weights_to_zero() -> None:
    data = schema()
    records = badly_scaled(np.random.default_rng(2), data, 10.0)
    free, drawn = (without_noise(nearly_noiseless(data, ridge=ridge), records) for ridge in (0.0, 1.0))
    optimum = np.linalg.solve(
        records.features.T @ records.features / 400 + np.eye(data.width), records.features.T @ records.targets / 400
    )
    assert np.linalg.norm(drawn) < np.linalg.norm(free)
    assert np.linalg.norm(drawn - optimum) < 0.1 * np.linalg.norm(optimum)


@pytest.mark.parametrize("categories", [["a", "b"], ["a", "b", "c"]], ids=["two", "three"])
def test_it_trains_labels_through_real_gates(categories: list[str], tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    data = schema(3, {"type": "categorical", "categories": categories})
    silos = {}
    for name in ("north", "south"):
        features = np.column_stack([random.uniform(-1, 1, (3000, 3)), np.ones(3000)])
        scores = features[:, :1] * np.linspace(-4, 4, len(categories)) + random.gumbel(size=(3000, len(categories)))
        index = np.argmax(scores, axis=1)
        targets = 2.0 * index - 1 if len(categories) == 2 else index.astype(np.float64)
        silos[name] = Records(data, features, targets)
    members = [Member(name, 3000, 3.0, 1e-6) for name in silos]
    plan = make_plan(data, members, PlanRequest(algorithm="preconditioned", held_out=0.0, curves=0))
    result = train(plan, {name: Silo(own, tmp_path / f"{name}.ledger") for name, own in silos.items()})
    accuracy = result.model.evaluate(silos["north"].features, silos["north"].targets)["accuracy"]
    best = np.argmax(silos["north"].features[:, :1] * np.linspace(-4, 4, len(categories)), axis=1)
    truth = (silos["north"].targets + 1) / 2 if len(categories) == 2 else silos["north"].targets
    # Noise in the weights is of a few hundredths, and moves the border by as much: a tenth is out of its reach.
    assert accuracy > np.mean(best == truth) - 0.1


def test_what_it_cannot_do_is_refused_with_the_remedy() -> None:
    members = [Member("a", 100, 1.0, 1e-6), Member("b", 100, 1.0, 1e-6)]
    for asked in ({"clip": 0.5}, {"sampling": "fixed", "batch": 10}):
        with pytest.raises(PlanError, match="ask for accelerated"):
            make_plan(schema(), members, PlanRequest(algorithm="preconditioned", **asked))
    with pytest.raises(PlanError, match="not for the survival loss"):
        make_plan(
            protocol.parse_schema({"columns": {"x": NUMBER, "t": TIME, "e": EVENT}, "event": "e"}, target="t"),
            members,
            PlanRequest(algorithm="preconditioned"),
        )


def off_centre(random: np.random.Generator, data: protocol.Schema, records: int) -> Records:
    """Return records whose features all lie near one end of their bounds, and a target that one of them explains."""
    width = data.width - 1
    features = np.column_stack([random.uniform(0.4, 1.0, (records, width)), np.ones(records)])
    targets = np.clip(0.5 + 1.5 * (features[:, 0] - 0.7), -1, 1)
    return Records(data, features, targets)


def test_the_means_of_many_features_are_the_direction_that_it_cuts_less() -> None:
    data = schema(1100)
    plan = make_plan(data, [Member("a", 3000, 50.0, 1e-6)], PlanRequest(held_out=0.0, curves=0))
    assert plan.algorithm == protocol.Preconditioned(axes="rank-one")
    assert [stage.query.name for stage in plan.stages] == ["feature-means", "preconditioned-gradient"]
    records = off_centre(np.random.default_rng(4), data, 3000)
    learned = simulated_state(plan, [records], 1)
    axes = learned.settings.axes
    mean = records.features.mean(axis=0) / np.linalg.norm(records.features.mean(axis=0))
    along, across = (
        np.linalg.norm(axes.turned(own[:, None])) for own in (mean, np.eye(data.width)[0] - mean[0] * mean)
    )
    assert along < 0.5 * across


def test_many_features_are_trained_through_real_gates(tmp_path: Path) -> None:
    data, random = schema(1100), np.random.default_rng(5)
    silos = {name: off_centre(random, data, 3000) for name in ("north", "south")}
    plan = make_plan(data, [Member(name, 3000, 30.0, 1e-6) for name in silos], PlanRequest(held_out=0.0, curves=0))
    weights = train(plan, {name: Silo(own, tmp_path / f"{name}.ledger") for name, own in silos.items()}).weights
    fresh = off_centre(random, data, 2000)
    error = np.sqrt(np.mean((fresh.features @ weights - fresh.targets) ** 2))
    # Over ten simulated runs it is .2359, with a standard deviation of .0004; what loss bounds favour comes to .2597.
    assert error < 0.245 < 0.26 < np.std(fresh.targets)


def test_a_run_whose_survey_nobody_answers_trains_by_what_the_schema_says_of_many_features() -> None:
    data = schema(1100)
    plan = make_plan(data, [Member("a", 3000, 50.0, 1e-6)], PlanRequest(held_out=0.0, curves=0))
    settings = ServerState.initial(plan).settings
    # Numbers that are spread evenly have no mean, so the constant is the one direction that stands out.
    others = settings.axes.turned(np.eye(data.width)[:, :1])
    assert np.linalg.norm(settings.axes.turned(np.eye(data.width)[:, -1:])) <= np.linalg.norm(others)
