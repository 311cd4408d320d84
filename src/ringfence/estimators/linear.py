"""The estimators: what each predicts, and by which loss it learns."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ringfence.errors import EstimatorError
from ringfence.estimators import tables
from ringfence.estimators.base import FederatedLinearModel, documented
from ringfence.estimators.parameters import (
    ClassifierParameters,
    HuberParameters,
    QuantileParameters,
    RegressorParameters,
)
from ringfence.estimators.reading import interval
from ringfence.planning.request import PlanRequest
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.schema import Categorical, Column, Numeric, Schema


class _Classifier(ClassifierParameters, ClassifierMixin, FederatedLinearModel):  # type: ignore[misc]
    """A linear classifier.

    `classes` lists the labels that may occur, from public knowledge: which labels do occur may hang on one record.
    Where it is public that each of them occurs (a yes/no question asked of everybody), classes="observed" takes them
    from y; that is then your statement, and nothing checks it. With a `schema` they are the target's categories, and
    `classes`, if given, the labels that y and `predict` use for them, in the same order.

    `classes_` holds the labels, sorted.
    """

    def _target(self, y: Any) -> tuple[list[str], Column]:
        check_classification_targets(y)
        if self.classes is None:
            raise EstimatorError(
                "`classes` is missing: list the labels that may occur, from public knowledge, as classes=['no', 'yes']."
                " They are not taken from y, because whether a label occurs may hang on one record. If it is public "
                "that each of them occurs, say classes='observed'."
            )
        observed = isinstance(self.classes, str) and self.classes == "observed"
        labels = np.unique(y if observed else np.asarray(self.classes))
        if labels.ndim != 1 or len(labels) < 2:
            where = "y holds" if observed else "`classes` holds"
            raise EstimatorError(f"{where} one class only, and to tell classes apart it takes at least two.")
        self.classes_: NDArray[Any] = labels
        column = Categorical(categories=tuple(str(label) for label in labels))
        return [column.categories[place] for place in self._places(y)], column

    def _targets_by_schema(self, y: Any, column: Numeric | Categorical) -> list[str]:
        if not isinstance(column, Categorical):
            raise EstimatorError("The schema's target is a number: use one of the regressors.")
        labels = np.asarray(column.categories if self.classes is None else self.classes)
        if labels.shape != (len(column.categories),):
            raise EstimatorError(
                f"The schema's target has {len(column.categories)} categories, so `classes` must list as many labels."
            )
        self.classes_ = labels
        return [column.categories[place] for place in self._places(column_or_1d(y, warn=True))]

    def _places(self, y: NDArray[Any]) -> list[int]:
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        found = [places.get(label, -1) for label in y.tolist()]
        if -1 in found:
            raise EstimatorError(
                f"Row {found.index(-1)} of y (the first is row 0) is none of the public classes: list its label in "
                "`classes`, or in the schema's categories, if it is public that it may occur; otherwise remove the row."
            )
        return found

    def decision_function(self, X: Any) -> FloatArray:
        """Return X @ coef_.T + intercept_: one number per row for two classes (positive: the second), else one each."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label with the largest score."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(np.int64) if scores.ndim == 1 else np.argmax(scores, axis=1)
        predicted: NDArray[Any] = self.classes_[places]
        return predicted


@documented
class FederatedLogisticRegression(_Classifier):
    """Logistic regression, for more than two classes by softmax, trained privately across silos."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Return every class's probability, in the order of `classes_`."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return np.concatenate([expit(-scores), expit(scores)], axis=1)
        probabilities: FloatArray = softmax(scores, axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithms of the probabilities."""
        probabilities: FloatArray = np.log(self.predict_proba(X))
        return probabilities


@documented
class FederatedLinearSVC(_Classifier):
    """Linear support vector machine for two classes (hinge loss), trained privately across silos."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _request(self, schema: Schema) -> PlanRequest:
        if len(self.classes_) > 2:
            raise EstimatorError(
                "Only binary classification is supported. A machine per class would cost the budget once per class: "
                "use FederatedLogisticRegression, which learns all classes at once."
            )
        return replace(super()._request(schema), loss="hinge")


class _Regressor(RegressorParameters, RegressorMixin, FederatedLinearModel):  # type: ignore[misc]
    """A linear regression.

    `target_bounds` is (lower, upper), the range of the target from public knowledge; targets beyond are clamped in
    training, so it should be wide enough for the ones that matter, and noise grows with its width. With a `schema`
    it stands there.
    """

    def _target(self, y: Any) -> tuple[FloatArray, Column]:
        if self.target_bounds is None:
            raise EstimatorError(
                "`target_bounds` is missing: say between which values the target lies, as target_bounds=(lower, "
                "upper), from public knowledge. They are not taken from y, because bounds read from private records "
                "leak them."
            )
        return np.asarray(y, dtype=np.float64), interval("`target_bounds`", self.target_bounds)

    def _targets_by_schema(self, y: Any, column: Numeric | Categorical) -> list[str]:
        if not isinstance(column, Numeric):
            raise EstimatorError("The schema's target has categories: use one of the classifiers.")
        if self.target_bounds is not None:
            raise EstimatorError("Both `target_bounds` and `schema` are given, which say the same: leave one out.")
        return tables.texts(column_or_1d(y, warn=True))

    def _learn(self) -> None:
        super()._learn()
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0])

    def predict(self, X: Any) -> FloatArray:
        """Return X @ coef_ + intercept_."""
        return self._scores(X)[:, 0]


@documented
class FederatedLinearRegression(_Regressor):
    """Least-squares regression, trained privately across silos."""

    def _request(self, schema: Schema) -> PlanRequest:
        return replace(super()._request(schema), loss="squared")


@documented
class FederatedHuberRegressor(HuberParameters, _Regressor):
    """Huber regression, trained privately across silos: squared for small errors, linear for outliers.

    `threshold` is where an error counts as large, in the target's units; by default a tenth of the largest distance
    of a target from the middle of its bounds.
    """

    def _request(self, schema: Schema) -> PlanRequest:
        column = schema.target_column
        unit = column.unit if isinstance(column, Numeric) else 1.0
        scaled = None if self.threshold is None else float(self.threshold) / unit
        return replace(super()._request(schema), loss="huber", margin=scaled)


@documented
class FederatedQuantileRegressor(QuantileParameters, _Regressor):
    """Regression of a quantile (pinball loss), trained privately across silos; `quantile` 0.5 is the median."""

    def _request(self, schema: Schema) -> PlanRequest:
        return replace(super()._request(schema), loss="pinball", quantile=float(self.quantile))
