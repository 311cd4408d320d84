"""The planner warns of maps that are wider than the budget carries, from public numbers alone."""

import math
from typing import Any

import numpy as np
import pytest

from ringfence.planning.explain import explain_proposal
from ringfence.planning.noise_warnings import (
    maps_must_remove,
    noise_in_scores,
    plan_warnings,
    wide_maps_warning,
)
from ringfence.planning.propose import Proposal, propose, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from ringfence.protocol.plan.prospects import guessing_loss, noise_in_weights
from ringfence.protocol.schema.encoding import encode_features
from ringfence.simulation import trials

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
LABEL = {"type": "categorical", "categories": ["no", "yes"]}


def proposed(*maps: dict[str, Any], epsilon: float = 1.0, records: int = 2000, **wishes: Any) -> Proposal:
    content = {"columns": {"x": NUMBER, "z": NUMBER, "y": NUMBER}, **({"maps": list(maps)} if maps else {})}
    members = [Member("north", records, epsilon, 1e-6), Member("south", records, epsilon, 1e-6)]
    return propose(parse_schema(content, target="y"), members, PlanRequest(**wishes))


def spline(knots: int) -> dict[str, Any]:
    return {"type": "spline", "columns": ["x", "z"], "knots": knots}


def test_nothing_is_said_of_a_table_without_maps_or_of_maps_that_the_budget_carries() -> None:
    assert wide_maps_warning(proposed().plan) == ""
    assert maps_must_remove(proposed().plan) == 0.0
    assert wide_maps_warning(proposed(spline(5)).plan) == ""
    assert 0 < maps_must_remove(proposed(spline(5)).plan) < 0.5


def test_maps_that_are_wider_than_the_budget_carries_are_named_with_the_remedy() -> None:
    proposal = proposed(spline(60), epsilon=0.5)
    warning = wide_maps_warning(proposal.plan)
    assert warning in plan_warnings(proposal)
    assert "they make 125 features of 3" in warning
    assert "Take fewer knots, harmonics, interactions or Fourier features, or a larger epsilon." in warning
    assert f"more than {maps_must_remove(proposal.plan):.0%} of what the plain columns leave" in warning
    assert wide_maps_warning(proposed(spline(60), epsilon=20.0).plan) == ""
    assert wide_maps_warning(proposed(spline(60), epsilon=0.5, records=100_000).plan) == ""


@pytest.mark.parametrize("algorithm", ["preconditioned", "minibatch-sgd", "accelerated"])
def test_maps_must_remove_more_the_wider_they_are_and_the_smaller_the_budget(algorithm: str) -> None:
    def share(knots: int, epsilon: float) -> float:
        return maps_must_remove(proposed(spline(knots), epsilon=epsilon, algorithm=algorithm).plan)

    assert share(4, 1.0) < share(8, 1.0) < share(16, 1.0)
    assert share(8, 3.0) < share(8, 1.0) < share(8, 0.5)


def test_the_noise_in_scores_is_as_large_as_it_is_in_runs() -> None:
    """Features that vary alike in all directions, targets that nothing predicts: what a model scores is noise.

    The rule takes the clip for the length of a typical gradient. It is half or twice that, and the noise's square a
    quarter or four times what is said. Each run's mean square over 17 directions has a relative standard deviation of
    about √(2/17), the mean of 40 of 0.055, which is nothing beside; and these seeds are fixed.
    """
    proposal = proposed({"type": "spline", "columns": ["x", "z"], "knots": 7, "degree": 2}, epsilon=1.0)
    plan, random = proposal.plan, np.random.default_rng(1)
    rows = {name: random.uniform(-1, 1, 4000) for name in ("x", "z")}
    features = encode_features(plan.data, rows, source="made up")
    targets = random.normal(0, 0.2, 4000).clip(-1, 1)
    silos = [(features[:2000], targets[:2000]), (features[2000:], targets[2000:])]
    scores = features @ trials.simulated_weights(plan, silos, range(40)).T
    best = features @ np.linalg.lstsq(features, targets, rcond=None)[0]
    measured = float(np.mean((scores - best[:, None]) ** 2)) / 0.2**2
    assert 0.25 < measured / noise_in_scores(plan, plan.data.width) < 4


def proposed_for(columns: int, records: int = 1000, *, target: Any = LABEL, **asked: Any) -> Proposal:
    schema = parse_schema({"columns": {**{f"c{i}": NUMBER for i in range(columns)}, "y": target}}, target="y")
    request = PlanRequest(**{"epsilon": 1.0, "delta": 1e-6, **asked})
    return propose_for(request, schema, dict.fromkeys(["a", "b", "c"], records))


@pytest.mark.parametrize(
    "asked", [{"columns": 8}, {"columns": 500, "records": 100_000}, {"columns": 60, "epsilon": 3.0}]
)
def test_without_maps_and_with_a_usual_epsilon_there_is_no_warning(asked: dict[str, Any]) -> None:
    assert plan_warnings(proposed_for(**asked)) == []


def test_a_bound_above_the_loss_of_guessing_is_said_to_promise_nothing() -> None:
    few, many = (explain_proposal(proposed_for(*asked, algorithm="bounded"))[1] for asked in ((1500,), (3, 100_000)))
    assert "no useful bound: a constant guess is at most 0.693 above" in few
    assert "no useful bound" not in many


def test_an_epsilon_that_protects_nobody_gets_a_word() -> None:
    (warning,) = plan_warnings(proposed_for(8, epsilon=50.0))
    assert "protects almost nobody" in warning


def test_guessing_costs_ln_2_for_two_classes_and_half_a_square_for_numbers() -> None:
    assert guessing_loss(proposed_for(3).plan) == pytest.approx(math.log(2))
    assert guessing_loss(
        proposed_for(3, target={"type": "categorical", "categories": ["a", "b", "c"]}).plan
    ) == pytest.approx(math.log(3))
    assert guessing_loss(proposed_for(3, target=NUMBER).plan) == pytest.approx(0.5)


def test_no_average_of_all_gradients_tells_a_weight_better_than_is_said() -> None:
    """Least squares on features that fill their norm: a Newton step from the rounds' mean gradient has this noise."""
    plan = proposed_for(8, target=NUMBER, loss="squared").plan
    width, norm = plan.data.width, plan.data.feature_norm
    curvature = np.full(width, norm**2 / width)  # of features that share their norm evenly
    number = plan.training_numbers[0]
    rounds = plan.stages[number].rounds
    noise = math.hypot(*(terms.weight * terms.stages[number].sigma / math.sqrt(rounds) for terms in plan.silos))
    newton = noise / curvature
    assert noise_in_weights(plan) == pytest.approx(math.sqrt(np.mean(newton**2)), rel=1e-6)


def test_noise_in_a_model_of_counts_follows_from_the_curvature_of_clipped_gradients() -> None:
    """Over the whole domain e^u curves up to e^18 times as much, and the noise in a weight looked like nothing."""
    plan = proposed_for(8, target={"type": "numeric", "lower": 0.0, "upper": 20.0}, loss="poisson", survey=False).plan
    stage = plan.training_numbers[0]
    clip, norm = plan.stages[stage].query.record_norm(plan), plan.data.feature_norm
    assert clip is not None
    curvature = norm**2 * (2.0 + clip / norm)  # targets are at most 2 of their scale above 0
    noise = math.hypot(*(terms.weight * terms.stages[stage].sigma for terms in plan.silos))
    expected = noise / math.sqrt(plan.stages[stage].rounds) * plan.data.width / curvature
    assert noise_in_weights(plan) == pytest.approx(expected, rel=1e-6)
