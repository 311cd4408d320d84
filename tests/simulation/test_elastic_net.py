"""Without noise and cuts, runs with a lasso end where scikit-learn's elastic net and logistic regression do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Schema, WholeSpace, parse_schema
from ringfence.simulation import engine

SIZES = (30, 50, 40)
NUMBER = {"type": "numeric", "lower": -2.0, "upper": 2.0, "center": 0.0, "scale": 1.0}


pytestmark = pytest.mark.usefixtures("double_precision")


def schema(target: Any, *, intercept: bool) -> Schema:
    columns = {**{f"x{place}": NUMBER for place in range(5)}, "y": target}
    return parse_schema({"columns": columns, "intercept": intercept}, target="y")


def trained(data: Schema, x: FloatArray, y: FloatArray, curvature: float, **penalties: float) -> FloatArray:
    """Run 4,000 rounds of the accelerated algorithm without noise, over three silos, by steps that suit the table."""
    members = [Member(f"s{place}", size, epsilon=1.0) for place, size in enumerate(SIZES)]
    request = PlanRequest(algorithm="accelerated", rounds=4000, survey=False, domain=WholeSpace(), **penalties)  # type: ignore[arg-type]
    plan = make_plan(data, members, replace(request, distance=50.0))
    features = np.column_stack([x, np.ones(len(x))]) if data.intercept else x
    smoothness = curvature * float(np.linalg.eigvalsh(features.T @ features / len(x))[-1])
    steps = plan.algorithm.model_copy(update={"upsilon": 0.0, "smoothness": smoothness})
    assert plan.training is not None
    plan = plan.model_copy(update={"training": plan.training.model_copy(update={"algorithm": steps})})
    cuts = np.cumsum(SIZES)[:-1]
    silos = list(zip(np.split(features, cuts), np.split(y, cuts), strict=True))
    streams, runs = engine.from_plans([plan], seeds=[1], dtype=np.float64)
    quiet = runs._replace(sigma=0 * runs.sigma, clip=np.inf * np.ones_like(runs.clip))
    found = engine.simulate(engine.Rules.of(plan), engine.federation(silos, dtype=np.float64), streams, quiet)
    return np.asarray(found[0])


def table(seed: int) -> tuple[FloatArray, FloatArray]:
    generator = np.random.default_rng(seed)
    x = np.clip(generator.normal(size=(sum(SIZES), 5)), -2, 2)
    x[:, 1] = np.clip(0.8 * x[:, 0] + 0.3 * x[:, 1], -2, 2)
    return x, x @ np.array([0.5, 0.0, -0.3, 0.02, 0.0]) + 0.3 + 0.1 * generator.normal(size=len(x))


def test_a_lasso_of_numbers_is_scikit_learn_s() -> None:
    x, y = table(1)
    other = Lasso(alpha=0.05, tol=1e-10, max_iter=100_000).fit(x, y)
    found = trained(schema(NUMBER, intercept=True), x, y, 1.0, lasso=0.05)
    np.testing.assert_allclose(found, [*other.coef_, other.intercept_], atol=1e-4)
    assert (other.coef_ == 0).any()


def test_an_elastic_net_is_scikit_learn_s() -> None:
    x, y = table(2)
    other = ElasticNet(alpha=0.2, l1_ratio=0.3, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(x, y)
    found = trained(schema(NUMBER, intercept=False), x, y, 1.0, lasso=0.06, ridge=0.14)
    np.testing.assert_allclose(found, other.coef_, atol=1e-4)


def test_a_lasso_of_labels_is_scikit_learn_s() -> None:
    x, y = table(3)
    labels = np.where(y > np.median(y), 1.0, -1.0)
    lasso = 0.03
    other = LogisticRegression(
        C=1 / (lasso * len(x)), l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=100_000, random_state=1
    ).fit(x, labels)
    labelled = {"type": "categorical", "categories": ["no", "yes"]}
    found = trained(schema(labelled, intercept=True), x, labels, 0.25, lasso=lasso)
    np.testing.assert_allclose(found, [*other.coef_[0], other.intercept_[0]], atol=1e-4)
