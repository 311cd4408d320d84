"""Where a budget buys nothing, or protects nobody, that is said before anything is spent."""

import math
from typing import Any

import numpy as np
import pytest

from ringfence.planning.explain import explain_proposal, warnings
from ringfence.planning.propose import Proposal, propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol.prospects import guessing_loss, noise_in_weights
from ringfence.protocol.schema import parse_schema

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
LABEL = {"type": "categorical", "categories": ["no", "yes"]}


def proposed(columns: int, records: int = 1000, *, target: Any = LABEL, **asked: Any) -> Proposal:
    schema = parse_schema({"columns": {**{f"c{i}": NUMBER for i in range(columns)}, "y": target}}, target="y")
    request = PlanRequest(**{"epsilon": 1.0, "delta": 1e-6, **asked})
    return propose_for(request, schema, dict.fromkeys(["a", "b", "c"], records))


def test_many_columns_for_a_small_budget_are_told_and_what_to_do() -> None:
    (warning,) = warnings(proposed(1500))
    assert "buys almost nothing" in warning
    assert all(remedy in warning for remedy in ("fewer columns", "1501 weights", "larger epsilon", "shuffler"))


def test_a_text_that_most_weights_are_for_is_named() -> None:
    columns = {"age": NUMBER, "note": {"type": "text", "words": 900}, "y": LABEL}
    schema = parse_schema({"columns": columns}, target="y")
    (warning,) = warnings(propose_for(PlanRequest(epsilon=1.0, delta=1e-6), schema, {"a": 1000, "b": 1000}))
    assert "902 weights, most of them for 900 features of column 'note'" in warning
    assert "most of them" not in warnings(proposed(1500))[0]


@pytest.mark.parametrize(
    "asked", [{"columns": 8}, {"columns": 500, "records": 100_000}, {"columns": 60, "epsilon": 3.0}]
)
def test_a_budget_that_buys_something_is_passed_over(asked: dict[str, Any]) -> None:
    assert warnings(proposed(**asked)) == []


def test_a_bound_above_the_loss_of_guessing_is_said_to_promise_nothing() -> None:
    few, many = (explain_proposal(proposed(*asked, algorithm="bounded"))[1] for asked in ((1500,), (3, 100_000)))
    assert "no useful bound: a constant guess is at most 0.693 above" in few
    assert "no useful bound" not in many


def test_an_epsilon_that_protects_nobody_gets_a_word() -> None:
    (warning,) = warnings(proposed(8, epsilon=50.0))
    assert "protects almost nobody" in warning


def test_guessing_costs_ln_2_for_two_classes_and_half_a_square_for_numbers() -> None:
    assert guessing_loss(proposed(3).plan) == pytest.approx(math.log(2))
    assert guessing_loss(
        proposed(3, target={"type": "categorical", "categories": ["a", "b", "c"]}).plan
    ) == pytest.approx(math.log(3))
    assert guessing_loss(proposed(3, target=NUMBER).plan) == pytest.approx(0.5)


def test_no_average_of_all_gradients_tells_a_weight_better_than_is_said() -> None:
    """Least squares on features that fill their norm: a Newton step from the rounds' mean gradient has this noise."""
    plan = proposed(8, target=NUMBER, loss="squared").plan
    width, norm = plan.data.width, plan.data.feature_norm
    curvature = np.full(width, norm**2 / width)  # of features that share their norm evenly
    number = plan.training_numbers[0]
    rounds = plan.stages[number].rounds
    noise = math.hypot(*(terms.weight * terms.stages[number].sigma / math.sqrt(rounds) for terms in plan.silos))
    newton = noise / curvature
    assert noise_in_weights(plan) == pytest.approx(math.sqrt(np.mean(newton**2)), rel=1e-6)


def test_noise_in_a_model_of_counts_is_told_by_the_curvature_of_cut_gradients() -> None:
    """Over the whole domain e^u curves up to e^18 times as much, and the noise in a weight looked like nothing."""
    plan = proposed(8, target={"type": "numeric", "lower": 0.0, "upper": 20.0}, loss="poisson", survey=False).plan
    stage = plan.training_numbers[0]
    clip, norm = plan.stages[stage].question.record_norm(plan), plan.data.feature_norm
    assert clip is not None
    curvature = norm**2 * (2.0 + clip / norm)  # targets are at most 2 of their scale above 0
    noise = math.hypot(*(terms.weight * terms.stages[stage].sigma for terms in plan.silos))
    expected = noise / math.sqrt(plan.stages[stage].rounds) * plan.data.width / curvature
    assert noise_in_weights(plan) == pytest.approx(expected, rel=1e-6)
