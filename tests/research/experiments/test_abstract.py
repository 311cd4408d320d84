"""A schema for records without a table says of them just what was known: length, norm, target."""

import pytest

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Hinge, Logistic, Loss, Softmax, Squared
from ringfence.research.experiments.abstract import Geometry, schema_of


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Softmax(classes=5), Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize(("width", "norm"), [(1, 1.0), (12, 9.2), (101, 0.01)])
def test_the_schema_has_the_geometry_and_a_target_that_suits_the_loss(loss: Loss, width: int, norm: float) -> None:
    bound = 2.5 if loss.target_kind == "number" else 1.0
    schema = schema_of(Geometry(width, norm, bound), loss)
    assert schema.width == width
    assert schema.feature_norm == pytest.approx(norm)
    assert schema.target_bound == pytest.approx(bound)
    assert list(schema.feature_names) == sorted(schema.feature_names)
    assert (
        make_plan(schema, [Member("silo", 50, 1.0)], PlanRequest(loss=loss, rounds=5)).dimension == width * loss.outputs
    )
