"""The gradient: no record moves the mean by more than twice the clip over the batch, and some do."""

import numpy as np
import pytest

from ringfence.protocol import Gradient
from tests.protocol.plan_document import Edits, numeric, plan_of
from tests.protocol.queries.neighbours import ROUNDING, Record, draw_setting, farthest

LABEL: Edits = {"data.columns.cost": {"type": "categorical", "categories": ["a", "b"]}}
COUNT: Edits = {"data.columns.cost": numeric(0.0, 10.0)}
CLASSES: Edits = {"data.columns.cost": {"type": "categorical", "categories": ["a", "b", "c"]}}
LOSSES: dict[str, Edits] = {
    "huber": {},
    "squared": {"training.loss": {"name": "squared"}},
    "absolute": {"training.loss": {"name": "absolute"}},
    "pinball": {"training.loss": {"name": "pinball", "quantile": 0.9}},
    "epsilon-insensitive": {"training.loss": {"name": "epsilon-insensitive", "margin": 0.1}},
    "logistic": LABEL | {"training.loss": {"name": "logistic"}},
    "hinge": LABEL | {"training.loss": {"name": "hinge"}},
    "softmax": CLASSES | {"training.loss": {"name": "softmax", "classes": 3}},
    "poisson": COUNT | {"training.loss": {"name": "poisson", "zero": -1.0}},
    "gamma": {"training.loss": {"name": "gamma", "zero": -1.5}, "data.columns.cost": numeric(2.0, 10.0)},
    "negative-binomial": COUNT | {"training.loss": {"name": "negative-binomial", "zero": -1.0, "dispersion": 0.3}},
    "survival": COUNT
    | {
        "training.loss": {"name": "survival", "zero": -1.0, "cuts": [0.3, 1.1]},
        "data.columns.died": {"type": "categorical", "categories": ["no", "yes"]},
        "data.event": "died",
    },
    "ordinal": CLASSES | {"training.loss": {"name": "ordinal", "classes": 3}},
    "multi-squared": {
        "training.loss": {"name": "multi-squared", "targets": 2},
        "data.columns.height": numeric(0.0, 2.5),
        "data.more_targets": ["height"],
    },
    "offset and weight": COUNT
    | {
        "training.loss": {"name": "poisson", "zero": -1.0},
        "data.columns.years": numeric(0.5, 4.0),
        "data.exposure": "years",
        "data.columns.weight": numeric(0.0, 3.0),
        "data.weight": "weight",
    },
}
CLIPS = (1e-6, 0.3, 1e6)
every_loss = pytest.mark.parametrize("loss", LOSSES)


@every_loss
def test_some_record_moves_it_as_far_as_that_so_that_the_claim_is_no_larger_than_needed(loss: str) -> None:
    plan, random = plan_of(LOSSES[loss]), np.random.default_rng(4)
    query = Gradient(clip=1e-3)
    setting = draw_setting(plan, query, random, records=5)
    setting = setting._replace(argument=np.zeros(plan.dimension))
    moved = farthest(setting, random)
    assert 0.8 * setting.limit() < moved <= setting.limit() * ROUNDING
    if plan.loss.outputs == 1:
        assert moved == pytest.approx(setting.limit(), rel=1e-6)


def test_a_record_without_features_adds_nothing() -> None:
    plan, random = plan_of({}), np.random.default_rng(7)
    setting = draw_setting(plan, Gradient(clip=1.0), random, records=4)
    nothing = Record(np.zeros(plan.data.width), 1.0)
    assert np.array_equal(setting.answer(nothing), setting.answer(nothing, takes_part=False))


def test_requests_carry_weights_that_lie_in_the_domain() -> None:
    plan, query = plan_of({}), Gradient(clip=1.0)
    assert query.argument_length(plan) == plan.dimension
    assert query.accepts(plan, np.full(5, 4.0))
    assert not query.accepts(plan, np.full(5, 4.1))
    assert not query.accepts(plan, np.full(5, np.nan))


def test_clipped_gradients_of_several_outputs_are_not_covered_by_loss_bounds() -> None:
    plan = plan_of(LOSSES["softmax"])
    assert Gradient(clip=0.3).uncovered(plan) == "clipped gradients of several outputs"
    assert Gradient(clip=100.0).uncovered(plan) == ""
    assert Gradient(clip=0.3).uncovered(plan_of({})) == ""
