"""Simulated records fit the schema that they are drawn for, whatever its columns are."""

from typing import Any

import numpy as np
import pytest

from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, Statistics, parse_schema
from ringfence.protocol.schema.columns.numeric import Numeric
from ringfence.protocol.schema.schema import without_target
from ringfence.rehearsal.population import ODDS, Population

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 18, "upper": 90},
    "dose": {"type": "numeric", "lower": 0, "upper": 1000, "center": 20, "scale": 10, "missing": 0},
    "weight": {"type": "numeric", "lower": 30, "upper": 200, "indicator": True},
    "ward": {"type": "categorical", "categories": ["a", "b", "c"], "synonyms": {"a": ["A"]}, "indicator": True},
    "grade": {"type": "categorical", "categories": ["low", "middle", "high"], "ordered": True, "missing": "low"},
    "smoker": {"type": "boolean"},
    "code": {"type": "code", "codes": [1, 2, 7]},
    "day": {"type": "date", "lower": "2020-01-01", "upper": "2025-12-31"},
    "note": {"type": "text", "words": 8},
    "image": {"type": "vector", "length": 4, "norm": 2.0, "extractor": "resnet", "digest": "0" * 64, "indicator": True},
}
TARGETS = {
    "number": {"type": "numeric", "lower": -5, "upper": 20},
    "label": {"type": "categorical", "categories": ["no", "yes"]},
    "class": {"type": "categorical", "categories": ["a", "b", "c", "d"]},
}


def plan_for(target: Any, **more: Any) -> Plan:
    schema = parse_schema({"columns": {**COLUMNS, "y": target}, **more}, target="y")
    return make_plan(schema, [Member("north", 500, 1.0), Member("south", 300, 1.0)], PlanRequest())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("more", [{}, {"person": "patient"}, {"radius": 1.5}], ids=str)
def test_features_and_targets_keep_the_schemas_bounds(target: Any, more: dict[str, Any]) -> None:
    plan = plan_for(target, **more)
    records = Population(plan, np.random.default_rng(1)).records(400)
    assert len(records) == 400
    assert records.difference(plan.data) == ""
    assert np.all(records.norms <= plan.data.feature_norm * (1 + 1e-9))
    assert np.all(np.abs(records.targets) <= max(plan.data.target_bound, plan.loss.categories))
    varying = records.features.std(axis=0)[:-1]
    assert np.mean(varying > 0) > 0.9  # a rare category may be absent


def test_every_population_is_another_one_and_its_records_are_drawn_anew() -> None:
    plan = plan_for(TARGETS["number"])
    one, same, other = (Population(plan, np.random.default_rng(seed)) for seed in (1, 1, 2))
    first = one.records(50).features
    assert np.array_equal(first, same.records(50).features)
    assert not np.array_equal(first, one.records(50).features)
    assert not np.array_equal(first, other.records(50).features)


def test_the_rarer_of_two_classes_has_a_tenth_to_two_fifths_of_the_records() -> None:
    assert ODDS > 0
    plan = plan_for(TARGETS["label"])
    for seed in range(5):
        share = float(np.mean(Population(plan, np.random.default_rng(seed)).records(4000).targets > 0))
        assert 0.1 < min(share, 1 - share) < 0.4


def test_the_best_weights_gain_and_a_model_that_scores_noise_loses() -> None:
    plan = plan_for(TARGETS["number"])
    population = Population(plan, np.random.default_rng(3))
    train, test = population.records(4000), population.records(2000)
    best = np.linalg.lstsq(train.features, train.targets, rcond=None)[0]
    assert 0.2 < population.gain(best, test) < 0.35  # half of the variance is explained: 1 − √½ = 0.29
    noise = np.random.default_rng(4).normal(size=plan.dimension)
    assert population.gain(10 * noise, test) < 0
    constant = np.zeros(plan.dimension)
    constant[-1] = train.targets.mean() / plan.data.intercept
    assert population.gain(constant, test) == pytest.approx(0.0, abs=0.01)


def test_a_column_without_known_bounds_has_cells_of_a_usual_size() -> None:
    content = {"columns": {"amount": {"type": "numeric", "lower": -1e18, "upper": 1e18}, "y": TARGETS["label"]}}
    data = without_target(parse_schema(content, target="y"))
    plan = make_query_plan(data, [Member("north", 500, 1.0)], Statistics(columns=("amount",)))
    records = Population(plan, np.random.default_rng(1)).records(100)
    amount = data.used["amount"]
    assert isinstance(amount, Numeric)
    values = records.table_cells("a test asks for")["amount"].values * amount.unit
    assert 10 < float(np.std(values)) < 1000
