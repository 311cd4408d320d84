"""What the server makes of the moments: every feature's mean and standard deviation."""

import math
from typing import Any

import numpy as np

from ringfence.protocol.algorithms import Accelerated
from ringfence.protocol.questions import Moments
from ringfence.server.learned import Findings
from ringfence.server.questions.moments import scales
from ringfence.server.rounds import run
from tests.server.quadratics import make_plan, update
from tests.server.surveyed import GRADIENTS, SHARES, surveyed, surveying


def test_the_scales_are_the_features_means_and_deviations_in_their_own_units() -> None:
    random, plan = np.random.default_rng(5), surveyed(Moments(), data=skewed_schema())
    features, targets = random.uniform(-1, 1, (50, 3)) ** 3, random.uniform(-2, 1, 50)
    features[:, 2] = 1.0  # the intercept
    units = np.array([*[plan.data.feature_norm] * 3, plan.data.target_bound])
    columns = np.column_stack([features, targets]) / units
    statistic = np.concatenate([columns.mean(axis=0), (columns**2).mean(axis=0)])
    assert len(statistic) == Moments().length(plan)
    result = scales(plan, Findings(statistic, 0.0))
    assert list(result) == ["a", "b", "intercept", "y"]
    for name, values in zip(result, [*features.T, targets], strict=True):
        np.testing.assert_allclose(result[name], (values.mean(), values.std()), atol=1e-8)


def skewed_schema() -> dict[str, Any]:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    target = {"type": "numeric", "lower": -2.0, "upper": 1.0, "center": 0.0, "scale": 1.0}
    return {"columns": {"a": number, "b": number, "y": target}, "target": "y", "intercept": True}


def test_a_variance_that_noise_made_negative_counts_as_none() -> None:
    plan = surveyed(Moments())
    result = scales(plan, Findings(np.array([0.5, 0.0, 0.0, 0.1, -0.3, 0.25]), 0.1))
    # The longest feature vector is √2, the largest target 1.
    expected = {"x0": (0.5 * math.sqrt(2), 0.0), "x1": (0.0, 0.0), "y": (0.0, 0.5)}
    assert list(result) == list(expected)
    np.testing.assert_allclose(list(result.values()), list(expected.values()))


def test_a_target_of_categories_has_no_scale() -> None:
    schema = skewed_schema()
    schema["columns"]["y"] = {"type": "categorical", "categories": ["no", "yes"]}
    plan = surveyed(Moments(), data=schema, loss={"name": "logistic"})
    assert Moments().length(plan) == 6
    assert list(scales(plan, Findings(np.zeros(6), 0.1))) == ["a", "b", "intercept"]


def test_moments_say_nothing_of_the_smoothness_and_leave_the_steps_as_they_are() -> None:
    algorithm = Accelerated(smoothness=2.0)
    ask = surveying(lambda request, name: update(request, name, np.full(6, 0.1)), GRADIENTS)
    told = run(surveyed(Moments(), rounds=6, algorithm=algorithm), ask)
    plain = run(make_plan(SHARES, rounds=6, algorithm=algorithm), GRADIENTS)
    assert told.weights.tobytes() == plain.weights.tobytes()
    np.testing.assert_allclose(told.findings["moments"].statistic, np.full(6, 0.1))
