"""The second moments: no record moves curvature, gradient and scatter together by more than √4.5/n."""

import math
from typing import Any

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.protocol import FloatArray, Plan, SecondMoments, parse_schema
from ringfence.protocol.queries.second_moments import MomentsArgument, independent_features
from ringfence.protocol.schema.encoding import encode_features
from tests.protocol.plan_document import SECOND_MOMENTS_ONLY, Edits, edited, parse, plan_of
from tests.protocol.queries.neighbours import Record, Setting, draw_record, draw_setting

LABEL: Edits = {
    "data.columns.cost": {"type": "categorical", "categories": ["a", "b"]},
    "training.loss": {"name": "logistic"},
}
NUMERIC, LABELLED = plan_of(SECOND_MOMENTS_ONLY), plan_of(SECOND_MOMENTS_ONLY | LABEL)
QUERY = NUMERIC.stages[0].query
assert isinstance(QUERY, SecondMoments)
BOUND = math.sqrt(4.5)
AXES = 4
"""Age, two of three towns, and the constant."""


def draw_asked(plan: Plan, random: np.random.Generator) -> MomentsArgument:
    """Ask anywhere that a hostile server may like: axes that stretch much or little, tiny units or large ones."""
    residual, curvature = np.exp(random.normal(scale=2.0, size=2))
    axes = random.normal(size=(AXES, plan.data.width)) * np.exp(random.normal(scale=2.0, size=(AXES, 1)))
    return MomentsArgument(
        random.normal(size=plan.dimension) * random.choice([0.0, 0.3, 10.0]), residual, curvature, axes
    )


def setting_of(plan: Plan, random: np.random.Generator, records: int, asked: MomentsArgument | None = None) -> Setting:
    assert isinstance(QUERY, SecondMoments)
    setting = draw_setting(plan, QUERY, random, records=records)
    return setting._replace(argument=(asked or draw_asked(plan, random)).packed())


def test_two_records_move_them_as_far_as_that() -> None:
    """Of one direction: the one record's residual just inside of the unit, the other's far beyond, the other way."""
    asked = MomentsArgument(np.zeros(NUMERIC.dimension), 0.5, 1.0, np.eye(AXES, NUMERIC.data.width))
    setting = setting_of(NUMERIC, np.random.default_rng(3), 5, asked)
    features = np.array([1.0, *[0.0] * (NUMERIC.data.width - 1)])
    moved = 5 * setting.moves(Record(features, 0.5 * (1 - 1e-12)), Record(features, -1.0))
    assert moved == pytest.approx(BOUND, rel=1e-8)
    assert moved <= 5 * setting.limit() == pytest.approx(BOUND)


def test_no_optimiser_finds_records_that_move_them_further() -> None:
    """The lemma's function itself, uphill from 300 random pairs of v in the unit ball, h in [0, 1], ρ in [−1, 1]."""

    def square(pairs: FloatArray) -> FloatArray:
        v = pairs[..., :3] / np.maximum(np.linalg.norm(pairs[..., :3], axis=-1, keepdims=True), 1.0)
        h, rho = np.clip(pairs[..., 3], 0.0, 1.0)[..., None], np.clip(pairs[..., 4], -1.0, 1.0)[..., None]
        outer = (v[..., :, None] * v[..., None, :]).reshape(*v.shape[:-1], 9)
        terms = np.concatenate([math.sqrt(0.5) * h * outer, rho * v, math.sqrt(0.5) * rho**2 * outer], axis=-1)
        total: FloatArray = np.sum((terms[:, 0] - terms[:, 1]) ** 2, axis=-1)
        return total

    random = np.random.default_rng(0)
    pairs = random.normal(size=(300, 2, 5)) * random.choice([0.3, 1.0, 3.0], size=(300, 1, 1))
    for step in np.geomspace(1.0, 1e-5, 500):
        tried = pairs + step * random.normal(size=pairs.shape)
        better = square(tried) > square(pairs)
        pairs[better] = tried[better]
    assert float(square(pairs).max()) == pytest.approx(4.5, rel=1e-3)
    assert float(square(pairs).max()) <= 4.5 * (1 + 1e-12)


@pytest.mark.parametrize("plan", [NUMERIC, LABELLED], ids=["number", "label"])
def test_they_are_the_means_of_curvature_gradient_and_squared_gradients_at_the_place_asked(plan: Plan) -> None:
    random = np.random.default_rng(2)
    rows = [draw_record(plan, random) for _ in range(9)]
    asked = MomentsArgument(0.3 * random.normal(size=5), 0.7, 0.4, random.normal(size=(AXES, 5)))
    setting = setting_of(plan, random, 9, asked)._replace(others=rows[1:])
    total = np.zeros(AXES * (AXES + 2))
    one, other = np.triu_indices(AXES)
    for row in rows:
        score, along = float(row.features @ asked.weights), asked.axes @ row.features
        kept = min(1.0, 1.0 / max(float(np.linalg.norm(along)), 1e-9))
        p = 1 / (1 + math.exp(-score))
        residual, bend = (score - row.target, 1.0) if plan is NUMERIC else (p - (row.target > 0), p * (1 - p))
        pull, v = max(-1.0, min(1.0, residual / 0.7)) * kept, along * kept
        squares = np.outer(v, v)[one, other] * np.where(one == other, math.sqrt(0.5), 1.0)
        total += np.concatenate([(abs(residual) < 0.7) * min(1, bend / 0.4) * squares, pull * v, pull**2 * squares])
    np.testing.assert_allclose(setting.answer(rows[0]), total / 9, atol=1e-8)


def test_a_column_s_first_category_is_left_out_where_a_constant_stands_for_it() -> None:
    assert NUMERIC.data.feature_names == ("age", "town=a", "town=b", "town=c", "intercept")
    assert list(independent_features(NUMERIC.data)) == [0, 2, 3, 4]
    assert list(independent_features(NUMERIC.data.model_copy(update={"intercept": 0.0}))) == [0, 1, 2, 3]


NUMBER: dict[str, Any] = {"type": "numeric", "lower": 0.0, "upper": 1.0}
COLUMNS: dict[str, Any] = {
    "age": {**NUMBER, "indicator": True},
    "dose": NUMBER,
    "town": {"type": "categorical", "categories": ["a", "b", "c"], "scale": 0.5, "indicator": True},
    "ward": {"type": "categorical", "categories": ["a", "b"]},
    "cost": NUMBER,
}
SPLINE: dict[str, Any] = {"type": "spline", "columns": ["age"], "knots": 3, "degree": 2}


@pytest.mark.parametrize("intercept", [1.0, 0.0])
@pytest.mark.parametrize("joined", [(), ("age", "dose"), ("dose", "town"), ("town", "ward"), ("age", "dose", "town")])
@pytest.mark.parametrize("curves", [(), (SPLINE,)])
def test_the_features_asked_are_independent_and_all_others_are_sums_of_them(
    curves: tuple[dict[str, Any], ...], joined: tuple[str, ...], intercept: float
) -> None:
    maps = [*curves, *([{"type": "interaction", "columns": list(joined)}] if joined else [])]
    data = parse_schema({"columns": COLUMNS, "maps": maps or None, "intercept": intercept}, target="cost")
    random = np.random.default_rng(0)
    cells = {name: [repr(float(number)) for number in random.uniform(size=1000)] for name in ("age", "dose")}
    cells["age"] = [cell if random.random() < 0.8 else "" for cell in cells["age"]]
    cells |= {
        "town": random.choice(["a", "b", "c", ""], 1000).tolist(),
        "ward": random.choice(["a", "b"], 1000).tolist(),
    }
    features = encode_features(data, cells, source="rows")
    asked = features[:, independent_features(data)]
    assert np.linalg.matrix_rank(asked) == asked.shape[1] == np.linalg.matrix_rank(features)


def test_any_place_may_be_asked_that_can_be_computed_with() -> None:
    assert isinstance(QUERY, SecondMoments)
    asked = draw_asked(NUMERIC, np.random.default_rng(1))
    assert QUERY.accepts(NUMERIC, asked._replace(weights=asked.weights + 1e9).packed())
    assert len(asked.packed()) == QUERY.argument_length(NUMERIC)
    for wrong in (
        asked._replace(residual=0.0),
        asked._replace(curvature=-1.0),
        asked._replace(residual=math.nan),
        asked._replace(axes=asked.axes * math.inf),
    ):
        assert not QUERY.accepts(NUMERIC, wrong.packed())


def test_a_record_that_cannot_be_computed_with_counts_as_zero() -> None:
    asked = MomentsArgument(np.full(5, 2.0**100), 2.0**-100, 2.0**-100, np.full((AXES, 5), 2.0**100))
    setting = setting_of(NUMERIC, np.random.default_rng(0), 3, asked)
    answer = setting.answer(draw_record(NUMERIC, np.random.default_rng(1), stretch=1e100))
    assert np.all(np.abs(answer) <= 1)


def test_a_loss_without_curvature_is_not_asked_about_it() -> None:
    with pytest.raises(PlanError, match="huber loss has no second moments"):
        parse(edited(SECOND_MOMENTS_ONLY | {"training.loss": {"name": "huber", "threshold": 0.5}}))
