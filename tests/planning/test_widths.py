"""The planner says where maps make a table wider than the budget carries, from public numbers alone."""

from typing import Any

import numpy as np
import pytest

from ringfence.planning.explain import warnings
from ringfence.planning.propose import Proposal, propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.widths import maps_must_remove, noise_in_scores, too_wide
from ringfence.protocol.encoding import encode_features
from ringfence.protocol.schema import parse_schema
from ringfence.simulation import trials

NUMBER = {"type": "numeric", "lower": -1, "upper": 1}


def proposed(*maps: dict[str, Any], epsilon: float = 1.0, records: int = 2000, **wishes: Any) -> Proposal:
    content = {"columns": {"x": NUMBER, "z": NUMBER, "y": NUMBER}, **({"maps": list(maps)} if maps else {})}
    members = [Member("north", records, epsilon, 1e-6), Member("south", records, epsilon, 1e-6)]
    return propose(parse_schema(content, target="y"), members, PlanRequest(**wishes))


def spline(knots: int) -> dict[str, Any]:
    return {"type": "spline", "columns": ["x", "z"], "knots": knots}


def test_nothing_is_said_of_a_table_without_maps_or_of_maps_that_the_budget_carries() -> None:
    assert too_wide(proposed().plan) == ""
    assert maps_must_remove(proposed().plan) == 0.0
    assert too_wide(proposed(spline(5)).plan) == ""
    assert 0 < maps_must_remove(proposed(spline(5)).plan) < 0.5


def test_maps_that_are_wider_than_the_budget_carries_are_named_with_the_remedy() -> None:
    proposal = proposed(spline(60), epsilon=0.5)
    told = too_wide(proposal.plan)
    assert told in warnings(proposal)
    assert "they make 125 features of 3" in told
    assert "Take fewer knots, harmonics, interactions or Fourier features, or a larger epsilon." in told
    assert f"more than {maps_must_remove(proposal.plan):.0%} of what the plain columns leave" in told
    assert too_wide(proposed(spline(60), epsilon=20.0).plan) == ""
    assert too_wide(proposed(spline(60), epsilon=0.5, records=100_000).plan) == ""


@pytest.mark.parametrize("algorithm", ["preconditioned", "minibatch-sgd", "accelerated"])
def test_maps_must_remove_more_the_wider_they_are_and_the_smaller_the_budget(algorithm: str) -> None:
    def share(knots: int, epsilon: float) -> float:
        return maps_must_remove(proposed(spline(knots), epsilon=epsilon, algorithm=algorithm).plan)

    assert share(4, 1.0) < share(8, 1.0) < share(16, 1.0)
    assert share(8, 3.0) < share(8, 1.0) < share(8, 0.5)


def test_the_noise_in_scores_is_as_large_as_it_is_in_runs() -> None:
    """Features that vary alike in all directions, targets of which nothing can be told: what a model scores is noise.

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
    scores = features @ trials.weights(plan, silos, range(40)).T
    best = features @ np.linalg.lstsq(features, targets, rcond=None)[0]
    measured = float(np.mean((scores - best[:, None]) ** 2)) / 0.2**2
    assert 0.25 < measured / noise_in_scores(plan, plan.data.width) < 4
