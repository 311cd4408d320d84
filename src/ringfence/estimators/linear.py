"""The estimators: what each predicts, and by which loss it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ringfence.errors import EstimatorError
from ringfence.estimators import tables
from ringfence.estimators.base import FederatedLinearModel
from ringfence.estimators.docstrings import documented
from ringfence.estimators.parameters import (
    ClassifierParameters,
    HuberParameters,
    LossParameters,
    QuantileParameters,
    RegressorParameters,
)
from ringfence.estimators.reading import interval
from ringfence.planning.request import PlanRequest
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.columns import Categorical, Column, ReadColumn
from ringfence.protocol.losses import BaseLoss
from ringfence.protocol.schema import Schema

BOTH_BOUNDS = "Both `target_bounds` and `schema` give the range of the target: give only one of them."


class Classifier(ClassifierParameters, ClassifierMixin, FederatedLinearModel):  # type: ignore[misc]
    """A linear classifier: what all classifiers here share.

    Parameters
    ----------
    classes : sequence of labels, or "observed", default=None
        The labels that may occur, from public knowledge, because even whether a label occurs can depend on one record.
        "observed" takes them from y: use it only if it is public that each of them occurs (a yes/no question that
        everybody was asked); nothing checks that. With a `schema`, the labels that y and `predict` use for the target's
        categories, in the same order.
    class_weight : mapping from label to float, default=None
        How much a label's rows count, from public knowledge; labels that it leaves out count 1. "balanced" is refused:
        how often labels occur is private.

    Attributes
    ----------
    classes_ : array
        The labels: sorted or, with a `schema`, in the order of the target's categories.
    """

    def _target(self, y: Any) -> tuple[list[str], Column]:
        check_classification_targets(y)
        if self.classes is None:
            raise EstimatorError(
                "`classes` is missing: list the labels that may occur, from public knowledge, as classes=['no', 'yes']."
                " They are not taken from y, because whether a label occurs can depend on one record. If it is public "
                "that each of them occurs, say classes='observed'."
            )
        observed = isinstance(self.classes, str) and self.classes == "observed"
        labels = np.unique(y if observed else np.asarray(self.classes))
        if labels.ndim != 1 or len(labels) < 2:
            where = "y has" if observed else "`classes` lists"
            raise EstimatorError(f"{where} only one class, but a classifier needs at least two.")
        self.classes_: NDArray[Any] = labels
        column = Categorical(categories=tuple(str(label) for label in labels))
        return [column.classes[place] for place in self._places(y)], column

    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        if column.is_number:
            raise EstimatorError("The schema's target is numeric, but this is a classifier: use one of the regressors.")
        labels = np.asarray(column.classes if self.classes is None else self.classes)
        if labels.shape != (len(column.classes),):
            raise EstimatorError(
                f"The schema's target has {len(column.classes)} categories, so `classes` must list "
                f"{len(column.classes)} labels."
            )
        self.classes_ = labels
        return [column.classes[place] for place in self._places(column_or_1d(y, warn=True))]

    def _class_weights(self, categories: tuple[str, ...]) -> dict[str, Any]:
        if self.class_weight is None:
            return {}
        if not isinstance(self.class_weight, Mapping):
            raise EstimatorError(
                "`class_weight` must be a mapping from label to a positive number, from public knowledge. 'balanced' "
                "would be computed from how often labels occur, which is private: estimate that privately "
                "(`ringfence statistics`), and give the inverse shares."
            )
        labels = self.classes_.tolist()
        if unknown := [label for label in self.class_weight if label not in labels]:
            raise EstimatorError(
                f"`class_weight` names {unknown[0]!r}, which is not a public class: correct it, or add it to `classes`."
            )
        return {
            "class_weights": {
                category: float(self.class_weight.get(label, 1.0))
                for category, label in zip(categories, labels, strict=True)
            }
        }

    def _places(self, y: NDArray[Any]) -> list[int]:
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        found = [places.get(label, -1) for label in y.tolist()]
        if -1 in found:
            raise EstimatorError(
                f"Row {found.index(-1)} of y (the first is row 0) is not one of the public classes: if it is public "
                "that its label may occur, list it in `classes` or in the schema's categories; else remove the row."
            )
        return found

    def decision_function(self, X: Any) -> FloatArray:
        """Return X @ coef_.T + intercept_: for two classes one number per row (positive: the second), else one each."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label with the largest score."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(np.int64) if scores.ndim == 1 else np.argmax(scores, axis=1)
        predicted: NDArray[Any] = self.classes_[places]
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on these rows, measured without noise: not private. `score_` is."""
        return float(super().score(X, y, sample_weight))


@documented
class FederatedLogisticRegression(Classifier):
    """Logistic regression of two classes, or softmax regression of several, trained privately across silos.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedLogisticRegression
    >>> random = np.random.default_rng(1)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = np.where(X.sum(axis=1) + random.normal(0, 15, 3000) > 200, "ill", "well")
    >>> model = FederatedLogisticRegression(epsilon=1.0, bounds=([0, 50], [120, 250]), classes=["ill", "well"])
    >>> model.fit(X, y, silos=hospitals).predict([[85, 190], [25, 90]])
    array(['ill', 'well'], dtype='<U4')
    >>> round(model.score_, 2)  # accuracy, measured with noise
    0.89
    >>> model.privacy_.silos["north"].run.epsilon
    1.0
    """

    def predict_proba(self, X: Any) -> FloatArray:
        """Return every class's probability, in the order of `classes_`."""
        scores = self._scores(X)
        return self.model_.plan.loss.probabilities(scores)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithms of the probabilities."""
        probabilities: FloatArray = np.log(self.predict_proba(X))
        return probabilities


@documented
class FederatedLinearSVC(Classifier):
    """Linear support vector machine for two classes (hinge loss), trained privately across silos.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedLinearSVC
    >>> random = np.random.default_rng(2)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = np.where(X.sum(axis=1) + random.normal(0, 15, 3000) > 200, "ill", "well")
    >>> model = FederatedLinearSVC(epsilon=1.0, bounds=([0, 50], [120, 250]), classes=["ill", "well"])
    >>> model.fit(X, y, silos=hospitals).predict([[85, 190], [25, 90]])
    array(['ill', 'well'], dtype='<U4')
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _request(self, schema: Schema) -> PlanRequest:
        if len(self.classes_) > 2:
            raise EstimatorError(
                "Only binary classification is supported. One machine per class would spend the budget once per class: "
                "use FederatedLogisticRegression, which learns all classes at once."
            )
        return replace(super()._request(schema), loss="hinge")


class Regressor(RegressorParameters, RegressorMixin, FederatedLinearModel):  # type: ignore[misc]
    """A linear regression: what all regressions here share.

    Parameters
    ----------
    target_bounds : (lower, upper), default=None
        The range of the target, from public knowledge. Training clamps targets outside, so it should hold all that
        matter; noise grows with its width. With a `schema`, the range is in the schema.
    """

    def _target(self, y: Any) -> tuple[FloatArray, Column]:
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):  # NumPy's message quotes a record's target
            raise EstimatorError(
                f"y must hold numbers for {type(self).__name__}; for labels use a classifier, such as "
                "FederatedLogisticRegression."
            ) from None
        return numbers, interval("`target_bounds`", self._given_bounds())

    def _given_bounds(self) -> Any:
        if self.target_bounds is None:
            raise EstimatorError(
                "`target_bounds` is missing: give the range of the target, as target_bounds=(lower, upper), from "
                "public knowledge. It is not taken from y, because bounds read from private records leak them."
            )
        return self.target_bounds

    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        if not column.is_number:
            raise EstimatorError(
                "The schema's target is categorical, but this is a regressor: use one of the classifiers."
            )
        if self.target_bounds is not None:
            raise EstimatorError(BOTH_BOUNDS)
        return tables.texts(column_or_1d(y, warn=True))

    def _learn(self) -> None:
        super()._learn()
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0])

    def predict(self, X: Any) -> FloatArray:
        """Return X @ coef_ + intercept_."""
        return self._scores(X)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² on these rows, measured without noise: not private. `score_` is."""
        return float(super().score(X, y, sample_weight))


@documented
class FederatedLinearRegression(LossParameters, Regressor):
    """Linear regression, trained privately across silos: least squares, or another `loss`.

    Parameters
    ----------
    loss : {"squared", "absolute", "epsilon-insensitive"} or loss, default="squared"
        How errors count. Also a loss of a number, such as your own (`ringfence.losses.custom`), of the target scaled so
        that its bounds are -1 and 1.
    target_bounds : (lower, upper), default=None
        The range of the target, from public knowledge. Training clamps targets outside, so it should hold all that
        matter; noise grows with its width. If y has several columns: two numbers for all of them, or two sequences with
        one number per column. With a `schema`, the range is in the schema.

    Notes
    ----- With squared loss, y may have several columns, which are learned together: a row's gradient for all of them is
    clipped as one, so that one clipping norm and one noise cover them. Each target counts in units of its own range.
    `coef_` has a row per target, and `predict` returns a column per target. With a `schema` that names `more_targets`,
    y has the target's column first and theirs after it, or names them all.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedLinearRegression
    >>> random = np.random.default_rng(3)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = 0.5 * X[:, 0] + 0.2 * X[:, 1] + random.normal(0, 5, 3000)
    >>> model = FederatedLinearRegression(epsilon=1.0, bounds=([0, 50], [120, 250]), target_bounds=(0, 150))
    >>> model.fit(X, y, silos=hospitals).coef_.round(1)
    array([0.5, 0.2])
    """

    _takes_several = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _request(self, schema: Schema) -> PlanRequest:
        named = self.loss in _STRAIGHT if isinstance(self.loss, str) else isinstance(self.loss, BaseLoss)
        if not named or (isinstance(self.loss, BaseLoss) and not self.loss.is_of_numbers):
            raise EstimatorError(
                f"`loss` must be one of {', '.join(_STRAIGHT)}, or a loss for a number that the score itself predicts, "
                "such as one from ringfence.losses.custom. For counts, amounts, times and classes, use their own "
                "estimators."
            )
        if schema.more_targets is None:
            return replace(super()._request(schema), loss=self.loss)
        if self.loss != (least_squares := _STRAIGHT[0]):
            raise EstimatorError(
                f"With several columns of y, only least squares is available: leave `loss` at '{least_squares}'."
            )
        return super()._request(schema)

    def _cells_of_target(
        self, y: Any, names: list[str], targets: list[str]
    ) -> tuple[dict[str, Any], dict[str, Column], dict[str, Any]]:
        self._has_columns = y.ndim == 2
        if not self._has_columns:
            return super()._cells_of_target(y, names, targets)
        first, *more = targets
        roles = {"target": first, **({"more_targets": tuple(more)} if more else {})}
        return dict(zip(targets, y.T, strict=True)), self._columns_of(targets), roles

    def _columns_of(self, targets: list[str]) -> dict[str, Column]:
        bounds = self._given_bounds()
        try:
            lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), len(targets)) for side in bounds)
        except (TypeError, ValueError):
            raise EstimatorError(
                f"`target_bounds` must be (lower, upper): two numbers, or two sequences of {len(targets)} numbers, one "
                "per column of y."
            ) from None
        pairs = zip(targets, lower, upper, strict=True)
        return {name: interval(f"`target_bounds` of column '{name}'", (low, high)) for name, low, high in pairs}

    def _cells_by_schema(self, y: Any, schema: Schema) -> dict[str, list[str]]:
        self._has_columns = schema.more_targets is not None
        if not self._has_columns:
            return super()._cells_by_schema(y, schema)
        if self.target_bounds is not None:
            raise EstimatorError(BOTH_BOUNDS)
        y = tables.as_frame(y)
        if tables.is_frame(y) and set(schema.targets) <= set(y.columns):
            return {name: tables.texts(y[name]) for name in schema.targets}
        numbers = np.asarray(y)
        if numbers.ndim != 2 or numbers.shape[1] != len(schema.targets):
            raise EstimatorError(
                "The schema has several targets, so y must have these columns in this order: "
                f"{', '.join(schema.targets)}."
            )
        return {name: tables.texts(column) for name, column in zip(schema.targets, numbers.T, strict=True)}

    def _learn(self) -> None:
        if self._has_columns:
            FederatedLinearModel._learn(self)
        else:
            super()._learn()

    def predict(self, X: Any) -> FloatArray:
        """Return X @ coef_.T + intercept_: a number per row, or a column per target if y had columns."""
        scores = self._scores(X)
        return scores if self._has_columns else scores[:, 0]


_STRAIGHT = ("squared", "absolute", "epsilon-insensitive")


@documented
class FederatedHuberRegressor(HuberParameters, Regressor):
    """Huber regression, trained privately across silos: squared for small errors, linear for outliers.

    Parameters
    ----------
    threshold : float, default=None
        Where an error counts as large, in the target's units. None means a tenth of the largest distance of a target
        from the middle of its bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedHuberRegressor
    >>> random = np.random.default_rng(4)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = 0.5 * X[:, 0] + 0.2 * X[:, 1] + 5 * random.standard_t(2, 3000)
    >>> model = FederatedHuberRegressor(epsilon=1.0, bounds=([0, 50], [120, 250]), target_bounds=(0, 150), threshold=10)
    >>> model.fit(X, y, silos=hospitals).coef_.round(1)
    array([0.5, 0.2])
    """

    def _request(self, schema: Schema) -> PlanRequest:
        unit, _ = schema.target_scaling
        scaled = None if self.threshold is None else float(self.threshold) / unit
        return replace(super()._request(schema), loss="huber", margin=scaled)


@documented
class FederatedQuantileRegressor(QuantileParameters, Regressor):
    """Regression of a quantile (pinball loss), trained privately across silos.

    Parameters
    ----------
    quantile : float, default=0.5
        Which quantile to learn; 0.5 is the median.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedQuantileRegressor
    >>> random = np.random.default_rng(5)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = 0.5 * X[:, 0] + 0.2 * X[:, 1] + random.normal(0, 5, 3000)
    >>> settings = dict(epsilon=1.0, bounds=([0, 50], [120, 250]), target_bounds=(0, 150))
    >>> model = FederatedQuantileRegressor(quantile=0.9, **settings).fit(X, y, silos=hospitals)
    >>> model.predict([[50, 120]]).round()
    array([55.])
    """

    def _request(self, schema: Schema) -> PlanRequest:
        return replace(super()._request(schema), loss="pinball", quantile=float(self.quantile))
