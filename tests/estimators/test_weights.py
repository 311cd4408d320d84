"""Weights of rows and classes: what scikit-learn finds, up to little noise; public bounds; and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import ringfence
from ringfence.errors import EstimatorError
from ringfence.planning import defaults
from ringfence.protocol import parse_schema
from tests.estimators.test_generalised import LITTLE_NOISE

FEW_ROUNDS = LITTLE_NOISE | {"max_rounds": 250}

RANDOM = np.random.default_rng(8)
X = RANDOM.uniform(-1, 1, size=(400, 2))
Y = X @ [1.0, 0.5] + X[:, 0] ** 2 + 0.1 * RANDOM.normal(size=400)
LABELS = np.where(X @ [2.0, -1.0] + RANDOM.logistic(size=400) > 0, "yes", "no")
WEIGHTS = RANDOM.uniform(0, 3, size=400)
NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}


def regression(**changes: Any) -> Any:
    settings = {"target_bounds": (-3, 3), "clip": 9.0, **FEW_ROUNDS, **changes}
    return ringfence.FederatedLinearRegression(**settings)


def classifier(**changes: Any) -> Any:
    settings = {"classes": ["no", "yes"], "clip": 9.0, **FEW_ROUNDS, **changes}
    return ringfence.FederatedLogisticRegression(**settings)


def test_weights_of_rows_count_as_in_scikit_learn_in_one_table_a_list_or_a_mapping() -> None:
    exact = LinearRegression().fit(X, Y, sample_weight=WEIGHTS)
    parts = [[own[:150], own[150:]] for own in (X, Y, WEIGHTS)]
    for x, y, weights in [(X, Y, WEIGHTS), parts, [dict(zip("ab", own, strict=True)) for own in parts]]:
        model = regression(sample_weight_bound=3.0).fit(x, y, sample_weight=weights)
        # What 250 rounds leave of the start, 1/R², and the noise are less than this; without weights it is 0.03 off.
        np.testing.assert_allclose([*model.coef_, model.intercept_], [*exact.coef_, exact.intercept_], atol=2e-3)
        assert model.plan_.data.weight_bound == 3.0


def test_weights_of_classes_count_as_in_scikit_learn() -> None:
    model = classifier(class_weight={"yes": 3.0}).fit(X, LABELS)
    exact = LogisticRegression(C=1e9, class_weight={"yes": 3.0}).fit(X, LABELS)
    np.testing.assert_allclose([*model.coef_[0], *model.intercept_], [*exact.coef_[0], *exact.intercept_], atol=0.05)
    assert model.plan_.data.class_weights == {"no": 1.0, "yes": 3.0}


def test_a_schema_takes_both() -> None:
    columns = {"a": NUMBER, "b": NUMBER, "y": {"type": "categorical", "categories": ["no", "yes"]}}
    frame, schema = pd.DataFrame(X, columns=["a", "b"]), parse_schema({"columns": columns}, target="y")
    model = classifier(bounds=None, schema=schema, class_weight={"yes": 3.0}, sample_weight_bound=3.0)
    model.fit(frame, LABELS, sample_weight=WEIGHTS)
    exact = LogisticRegression(C=1e9, class_weight={"yes": 3.0}).fit(X, LABELS, sample_weight=WEIGHTS)
    np.testing.assert_allclose([*model.coef_[0], *model.intercept_], [*exact.coef_[0], *exact.intercept_], atol=0.05)
    assert model.predict(frame).shape == (400,)
    weighted = schema.model_copy(update={"class_weights": {"no": 1.0, "yes": 2.0}})
    with pytest.raises(EstimatorError, match="by the schema's `class_weights` and by `class_weight`"):
        classifier(bounds=None, schema=weighted, class_weight={"yes": 3.0}).fit(frame, LABELS)


def test_the_clip_and_with_it_the_noise_grow_with_the_bounds_and_never_with_the_weights() -> None:
    plain = regression(clip=None, algorithm="accelerated", epsilon=1.0, cap=None, unusual_budget=False)
    params = plain.get_params() | {"sample_weight_bound": 3.0, "cap": (15.0, 1e-5)}
    few, many = (
        type(plain)(**params).fit(X, Y, sample_weight=weights).plan_.training_stages[0].query.clip
        for weights in (WEIGHTS / 3, WEIGHTS)
    )
    schema = type(plain)(**params).fit(X, Y).plan_.data
    assert few == many == pytest.approx(3.0 * defaults.default_clip(schema, defaults.default_loss(schema)))


@pytest.mark.parametrize(
    ("weights", "bound", "says"),
    [
        (WEIGHTS, None, "without a positive `sample_weight_bound`"),
        (WEIGHTS + 1, 3.0, "is not between 0 and `sample_weight_bound`"),
        (-WEIGHTS, 3.0, "is not between 0 and `sample_weight_bound`"),
        (np.full(400, np.nan), 3.0, "is not between 0 and `sample_weight_bound`"),
        (0 * WEIGHTS, 3.0, "All sample weights are zero"),
        (WEIGHTS[:10], 3.0, "one number for each of the 400 rows"),
        (["x"] * 400, 3.0, "one number for each row"),
    ],
)
def test_weights_without_a_public_bound_or_beyond_it_are_refused_without_a_value(
    weights: Any, bound: float | None, says: str
) -> None:
    with pytest.raises(EstimatorError, match=says) as refused:
        regression(sample_weight_bound=bound).fit(X, Y, sample_weight=weights)
    assert "nan" not in str(refused.value)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ("balanced", "'balanced' would be computed from how often labels occur"),
        ({"maybe": 2.0}, "names 'maybe', which is not a public class"),
        ({"yes": -2.0}, "`class_weights` must be above 0"),
    ],
)
def test_class_weights_are_never_read_from_the_labels(weights: Any, says: str) -> None:
    with pytest.raises(EstimatorError, match=says):
        classifier(class_weight=weights).fit(X, LABELS)
