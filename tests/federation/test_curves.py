"""Curves whose knots a survey places: through real gates, at the model, and in simulation."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.federation.training import Silo, exact_scores, train
from ringfence.model.common_knots import common_features
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.search import CandidateRequest, propose_search
from ringfence.protocol import (
    FloatArray,
    NoisyUpdate,
    Plan,
    RefusalReason,
    RoundRequest,
    Schema,
    StageTerms,
    parse_schema,
)
from ringfence.protocol.queries.column_distributions import ColumnDistributions
from ringfence.protocol.schema.maps.curves import Spline
from ringfence.server.queries import requested
from ringfence.server.queries.column_distributions import remarks
from ringfence.server.state import ServerState
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records, load_records
from ringfence.simulation import trials
from tests.support import rebuilt, refusal

ROWS = 4000


def schema(width: float = 1.0) -> Schema:
    """Return the schema of a number `x` whose bounds are `width` times as wide as they must be, and others."""
    columns = {
        "x": {"type": "numeric", "lower": -2.0 * width, "upper": 2.0 * width},
        "z": {"type": "numeric", "lower": 0.0, "upper": 1.0, "indicator": True},
        "group": {"type": "categorical", "categories": ["a", "b"]},
        "y": {"type": "numeric", "lower": -1.0, "upper": 4.0},
    }
    return parse_schema({"columns": columns}, target="y")


def written(folder: Path, seed: int, rows: int = ROWS) -> Path:
    """Write a table whose target is the absolute value of a number, where no straight line helps, and some noise."""
    random = np.random.default_rng(seed)
    x, group = random.uniform(-2, 2, rows), random.choice(["a", "b"], rows)
    y = np.abs(x) + 0.3 * (group == "b") + 0.1 * random.standard_normal(rows)
    z = [f"{value:.6f}" if value > 0.1 else "" for value in random.random(rows)]
    path = folder / f"table-{seed}.csv"
    lines = [f"{a},{b},{c},{d}" for a, b, c, d in zip(x.tolist(), z, group, y.tolist(), strict=True)]
    path.write_text("\n".join(["x,z,group,y", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("tables"), 1)


def planned(data: Schema, epsilon: float = 1.0, **asked: Any) -> Plan:
    return make_plan(data, [Member("a", ROWS, epsilon, 1e-6)], PlanRequest(held_out=0.0, **asked))


def errors_of(plan: Plan, records: Mapping[str, Records], seeds: range) -> FloatArray:
    """Return the root mean square error of every simulated run, on its own records."""
    found = []
    for weights, data in trials.simulated_models(plan, list(records.values()), seeds):
        (own,) = records.values()
        encoded = own.encoded(data)
        found.append(np.sqrt(np.mean((encoded.features @ weights - encoded.targets) ** 2)))
    return np.array(found)


def quiet(plan: Plan) -> Plan:
    """Return the plan with so little noise that only rounding differs between a gate and a simulation."""
    (terms,) = plan.silos
    little = tuple(StageTerms(batch=own.batch, sigma=1e-6) for own in terms.stages)
    loud = terms.guarantees[0].model_copy(update={"epsilon": 1e12})
    return rebuilt(plan, silos=(terms.model_copy(update={"stages": little, "guarantees": (loud,)}),))


def test_a_gate_a_simulated_run_and_the_model_agree_about_knots_weights_and_predictions(
    table: Path, tmp_path: Path
) -> None:
    records, plan = load_records(table, schema()), quiet(planned(schema()))
    result = train(plan, {"a": Silo(records, tmp_path / "a.ledger")})
    (simulated,) = trials.simulated_models(plan, [records], [1])
    model = Model.parse(result.model.canonical(), error=PlanError)
    assert model.data.placed(np.zeros(0)) == model.data
    encoded = records.encoded(model.data)
    through_gates = encoded.features @ result.weights
    in_simulation = records.encoded(simulated.data).features @ simulated.weights
    # Directions that hardly vary differ, by what little noise there is.
    assert np.sqrt(np.mean((through_gates - in_simulation) ** 2)) < 0.01
    found = [knot for each in simulated.data.maps or () for knot in each.model_dump()["knots"]]
    assert result.knots is not None
    assert np.allclose(found, result.knots, atol=1e-3)
    predicted = np.array(model.predict_csv(table))
    assert np.allclose(predicted, model.in_units(through_gates), atol=1e-6)
    # |x| is 0 to 2, and its standard deviation .58; no straight line explains any of that.
    assert exact_scores(model, {"a": records}).value < 0.15


def test_curves_find_what_no_straight_line_can_and_width_of_bounds_does_not_matter(table: Path) -> None:
    narrow, wide = ({"a": load_records(table, schema(width))} for width in (1.0, 1000.0))
    straight = errors_of(planned(schema(), curves=0), narrow, range(3)).mean()
    curved, wide_curved = (
        errors_of(planned(schema(width)), own, range(3)).mean() for width, own in ((1.0, narrow), (1000.0, wide))
    )
    # Errors are in units of half the target's bounds, 2.5: without x it is .25, with all of it .04.
    assert straight > 0.2
    assert curved < 0.1
    assert wide_curved < 0.13


def gate_of(plan: Plan, records: Records, folder: Path) -> Gate:
    budget = Budget.of(plan.silos[0].guarantees)
    gate = Gate(records, Ledger.create(folder / "a.ledger", silo="a", budget=budget))
    gate.approve(plan)
    return gate


def first_training_request(plan: Plan) -> tuple[int, FloatArray]:
    round = plan.first_rounds[plan.training_numbers[0]]
    return round, requested(plan.stages[plan.training_numbers[0]].query, ServerState.initial(plan), round)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda knots: knots[::-1],
        lambda knots: np.full_like(knots, knots[0]),
        lambda knots: knots * 1.01,
        lambda knots: knots + 1e-9 * np.arange(len(knots)) + 5.0,
    ],
    ids=["falling", "equal", "beyond the bounds", "shifted out"],
)
def test_a_gate_refuses_knots_that_do_not_fit_before_it_charges(table: Path, tmp_path: Path, spoil: Any) -> None:
    plan = planned(schema())
    gate = gate_of(plan, load_records(table, schema()), tmp_path)
    round, argument = first_training_request(plan)
    bad = argument.copy()
    bad[: len(plan.data.even_knots[0])] = spoil(argument[: len(plan.data.even_knots[0])])
    assert refusal(gate.answer(RoundRequest.at(plan.digest(), round, bad))) is RefusalReason.OUTSIDE_DOMAIN
    short = argument[plan.data.knots :]
    assert refusal(gate.answer(RoundRequest.at(plan.digest(), round, short))) is RefusalReason.MALFORMED
    assert isinstance(gate.answer(RoundRequest.at(plan.digest(), round, argument)), NoisyUpdate)


def test_an_answered_round_is_not_answered_again_for_other_knots(table: Path, tmp_path: Path) -> None:
    plan = planned(schema())
    gate = gate_of(plan, load_records(table, schema()), tmp_path)
    round, argument = first_training_request(plan)
    first = gate.answer(RoundRequest.at(plan.digest(), round, argument))
    assert gate.answer(RoundRequest.at(plan.digest(), round, argument)) == first
    moved = argument.copy()
    moved[1] += 0.01
    assert refusal(gate.answer(RoundRequest.at(plan.digest(), round, moved))) is RefusalReason.ROUND_ANSWERED


def test_no_record_moves_a_gradient_further_than_is_charged_wherever_hostile_knots_are(tmp_path: Path) -> None:
    """Of 60 knots that the gate accepts, some as close as it allows, and two records that differ in everything."""
    plan, random = planned(schema()), np.random.default_rng(5)
    query, rows = plan.training_stages[0].query, 20
    one, other = (load_records(written(tmp_path, seed, rows), schema()) for seed in (7, 8))
    neighbour = tmp_path / "neighbour.csv"
    lines = (tmp_path / "table-7.csv").read_text(encoding="utf-8").splitlines()
    changed = (tmp_path / "table-8.csv").read_text(encoding="utf-8").splitlines()[1]
    neighbour.write_text("\n".join([lines[0], changed, *lines[2:]]) + "\n", encoding="utf-8")
    other = load_records(neighbour, schema())
    _, argument = first_training_request(plan)
    moved = []
    for _ in range(60):
        own = []
        for column in plan.data.open_columns.values():
            places = np.sort(random.random(9)) ** random.choice([0.2, 1.0, 30.0])
            places = np.maximum.accumulate(places + 1e-8 * np.arange(9))
            own.append(column.low + (column.high - column.low) * places / max(1.0, places[-1]))
        axes = argument[plan.data.knots + plan.dimension :]
        asked = np.concatenate([*own, 3.0 * random.standard_normal(plan.dimension), axes])
        if not plan.data.accepts(asked[: plan.data.knots]):
            continue
        both = [compute(query, plan, asked, records, np.ones(rows), rows) for records in (one, other)]
        moved.append(float(np.linalg.norm(both[0] - both[1])))
        assert np.all(np.abs(one.encoded(plan.data.placed(asked[: plan.data.knots])).norms) <= plan.data.feature_norm)
    assert len(moved) > 30
    assert 0 < max(moved) <= query.sensitivity(plan, rows)


def test_looks_are_made_where_they_tell_where_a_column_lies_and_never_with_straight_lines() -> None:
    kinds = {
        (epsilon, curves): [type(stage.query) for stage in planned(schema(), epsilon, curves=curves).stages]
        for epsilon in (0.05, 1.0)
        for curves in (None, 0)
    }
    assert ColumnDistributions in kinds[1.0, None]
    for few in ((0.05, None), (0.05, 0), (1.0, 0)):
        assert ColumnDistributions not in kinds[few]
    rounded = schema().model_copy(update={"radius": 1.0})
    assert not planned(rounded).data.open_curves
    with pytest.raises(PlanError, match="Leave --curves out"):
        planned(schema(), 0.05, curves=4)
    with pytest.raises(PlanError, match="at most 100 straight pieces"):
        PlanRequest(curves=101)


def test_candidates_of_a_search_are_straight_and_say_so_where_curves_are_asked_for() -> None:
    request = PlanRequest(epsilon=2.0)
    members = request.members({"a": ROWS, "b": ROWS})
    proposed = propose_search(schema(), [CandidateRequest({"ridge": own}, request, members) for own in (0.0, 0.1)])
    assert not proposed.candidates[0].plan.data.open_curves
    assert propose_for(request, schema(), {"a": ROWS, "b": ROWS}).plan.data.open_curves
    with pytest.raises(PlanError, match="Candidates have straight lines"):
        propose_search(schema(), [CandidateRequest({"ridge": 0.0}, replace(request, curves=4), members)])


def test_bounds_that_are_far_too_wide_are_remarked_on_after_training_with_better_ones(
    table: Path, tmp_path: Path
) -> None:
    records, plan = load_records(table, schema(100.0)), planned(schema(100.0))
    result = train(plan, {"a": Silo(records, tmp_path / "a.ledger")})
    (line,) = remarks(result.findings)
    assert line.startswith("Column 'x' has bounds from -200 to 200, and its records lie between about -")
    assert "narrow the bounds in the schema" in line


def test_a_knot_that_is_nearly_zero_is_zero_so_that_no_feature_is_too_small_to_compute_with_quickly() -> None:
    data = planned(schema()).data
    knots = data.even_knots_together.copy()
    assert knots[4] == 0.0
    near = knots.copy()
    near[4] = 1e-310
    assert data.placed(near) == data.placed(knots)


def test_two_models_with_other_knots_are_compared_by_their_own_predictions(table: Path, tmp_path: Path) -> None:
    records = load_records(table, schema())
    models = [
        train(
            planned(schema(), epsilon), {"a": Silo(records, tmp_path / f"{epsilon}.ledger", new_beginning="another")}
        ).model
        for epsilon in (1.0, 2.0)
    ]
    assert models[0].data != models[1].data
    common = common_features(*models)
    assert common is not None
    features = records.encoded(common.data).features
    for model, weights in zip(models, (common.one, common.other), strict=True):
        assert np.allclose(features @ weights, model.scores(records.encoded(model.data).features)[:, 0], atol=1e-6)
    straight = train(
        planned(schema(), curves=0), {"a": Silo(records, tmp_path / "0.ledger", new_beginning="another")}
    ).model
    assert common_features(models[0], straight) is None


def test_records_with_maps_refuse_a_plan_without_the_mapped_column_in_words(table: Path) -> None:
    mapped = schema().with_maps((Spline(columns=("x",), knots=5),))
    fewer = schema().model_copy(
        update={"columns": {name: own for name, own in schema().columns.items() if name != "x"}}
    )
    assert load_records(table, mapped).difference(fewer) == "its records were read with another schema"
