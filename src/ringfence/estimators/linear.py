"""Linear classifiers and regressors: each predicts from X @ coef_ + intercept_ and learns by its own loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ringfence.errors import EstimatorError
from ringfence.estimators.base import FederatedLinearModel
from ringfence.estimators.fit_data import as_frame, texts
from ringfence.estimators.parameters import ClassifierMixin, Interval, RegressorMixin, estimator_class
from ringfence.estimators.reading import TargetColumns, interval_columns, numeric_column
from ringfence.protocol import BaseLoss, Categorical, Column, FloatArray, Loss, Schema
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.sources import frames

BOTH_BOUNDS = "Both `target_bounds` and `schema` give the range of the target: give only one of them."


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, FederatedLinearModel):
    """A linear classifier: what all classifiers here share.

    Parameters
    ----------
    classes : sequence of labels, or "observed", default=None
        The labels that may occur, from public knowledge, because even whether a label occurs can depend on one record.
        "observed" takes them from y: use it only if it is public that each of them occurs (a yes/no question that
        everybody was asked); nothing checks that. With a `schema`, the labels that y and `predict` use for the target's
        categories, in the same order. Of two, the last is the positive class: `evaluation_` and `summary` speak of it.
    class_weight : mapping from label to float, default=None
        How much a label's rows count, from public knowledge; labels that it leaves out count 1. "balanced" is refused:
        how often labels occur is private.

    Attributes
    ----------
    classes_ : array
        The labels, sorted, as everywhere in scikit-learn: columns of `predict_proba`, rows of `coef_`. Of two,
        `coef_` and `decision_function` are of the second.
    """

    classes: ArrayLike | None = None
    class_weight: Mapping[Any, float] | None = None

    def _target(self, y: Any) -> tuple[list[str], Column]:
        """Return a classifier's labels as text, and their public column, from `classes`."""
        check_classification_targets(y)
        if self.classes is None:
            raise EstimatorError(
                "`classes` is missing: list the labels that may occur, from public knowledge, as classes=['no', 'yes']."
                " They are not taken from y, because whether a label occurs can depend on one record. If it is public "
                "that each of them occurs, say classes='observed'."
            )
        observed = isinstance(self.classes, str) and self.classes == "observed"
        labels = np.unique(y) if observed else np.asarray(self.classes)
        if labels.ndim != 1 or len(np.unique(labels)) < 2:
            where = "y has" if observed else "`classes` lists"
            raise EstimatorError(f"{where} only one class, but a classifier needs at least two.")
        self._set_classes(dict.fromkeys(labels.tolist()))
        column = Categorical(categories=tuple(str(label) for label in self._labels))
        return [column.classes[place] for place in self._places(y)], column

    def _set_classes(self, labels: Iterable[Any]) -> None:
        """Set `classes_`, sorted, from the labels of the target's categories, in the order of these."""
        self._labels = list(labels)
        self.classes_: NDArray[Any] = np.unique(np.asarray(self._labels))

    @property
    def _category_places(self) -> list[int]:
        """The place of each of `classes_` among the target's categories."""
        return [self._labels.index(label) for label in self.classes_.tolist()]

    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        """Return a classifier's labels as the schema's categories."""
        if column.is_number:
            raise EstimatorError("The schema's target is numeric, but this is a classifier: use one of the regressors.")
        labels = np.asarray(column.classes if self.classes is None else self.classes)
        if labels.shape != (len(column.classes),) or len(np.unique(labels)) < len(labels):
            raise EstimatorError(
                f"The schema's target has {len(column.classes)} categories, so `classes` must list "
                f"{len(column.classes)} different labels."
            )
        self._set_classes(labels.tolist())
        return [column.classes[place] for place in self._places(column_or_1d(y, warn=True))]

    def _class_weights(self, categories: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema's field for a classifier's `class_weight`."""
        if self.class_weight is None:
            return {}
        if not isinstance(self.class_weight, Mapping):
            raise EstimatorError(
                "`class_weight` must be a mapping from label to a positive number, from public knowledge. 'balanced' "
                "would be computed from how often labels occur, which is private: estimate that privately "
                "(`ringfence statistics`), and give the inverse shares."
            )
        labels = self._labels
        if unknown := [label for label in self.class_weight if label not in labels]:
            raise EstimatorError(
                f"`class_weight` names {unknown[0]!r}, which is not a public class: correct it, or add it to `classes`."
            )
        weights = [float(self.class_weight.get(label, 1.0)) for label in labels]
        return {"class_weights": dict(zip(categories, weights, strict=True))}

    def _places(self, y: NDArray[Any]) -> list[int]:
        """Return the place of each row's label among the target's categories; EstimatorError if it has none."""
        places = {label: place for place, label in enumerate(self._labels)}
        found = [places.get(label, -1) for label in y.tolist()]
        if -1 in found:
            raise EstimatorError(
                f"Row {found.index(-1)} of y (the first is row 0) is not one of the public classes: if it is public "
                "that its label may occur, list it in `classes` or in the schema's categories; else remove the row."
            )
        return found

    def _set_coefficients(self) -> None:
        """Set a classifier's coefficients in the order of `classes_`; of two classes, of the second."""
        super()._set_coefficients()
        places = self._category_places
        if len(self.coef_) == len(places):
            self.coef_, self.intercept_ = self.coef_[places], self.intercept_[places]
        elif places == [1, 0]:
            self.coef_, self.intercept_ = -self.coef_, -self.intercept_

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


class ProbabilisticClassifier(Classifier):
    """A linear classifier whose loss gives the classes probabilities."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Return every class's probability, in the order of `classes_`."""
        scores = self._scores(X)  # first of all refuses an estimator that is not fitted
        return self.model_.plan.loss.probabilities(scores)


@estimator_class
class FederatedLogisticRegression(ProbabilisticClassifier):
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

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithms of the probabilities."""
        return np.log(self.predict_proba(X))


@estimator_class
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
        """Return scikit-learn's tags of the linear support vector classifier: two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the hinge loss; refuse more than two classes."""
        if len(schema.target_column.classes) > 2:
            raise EstimatorError(
                "Only binary classification is supported. One machine per class would spend the budget once per class: "
                "use FederatedLogisticRegression, which learns all classes at once."
            )
        return {"loss": "hinge"}


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(RegressorMixin, FederatedLinearModel):
    """A linear regression: what all regressions here share.

    Parameters
    ----------
    target_bounds : (lower, upper), default=None
        The range of the target, from public knowledge. Training clamps targets outside, so it should hold all that
        matter; noise grows with its width. With a `schema`, the range is in the schema.
    """

    target_bounds: Interval | None = None
    _has_columns = False
    _figures = ("default", "R²")

    def _target(self, y: Any) -> tuple[FloatArray, Column]:
        """Return a regressor's targets as numbers, and their public column, from `target_bounds`."""
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):  # NumPy's message quotes a record's target
            raise EstimatorError(
                f"y must hold numbers for {type(self).__name__}; for labels use a classifier, such as "
                "FederatedLogisticRegression."
            ) from None
        column = numeric_column("`target_bounds`", self._given_bounds())
        self._require_possible(numbers)
        return numbers, column

    def _require_possible(self, y: FloatArray) -> None:
        """Refuse targets that the loss does not allow, whatever their bounds; by default none."""

    def _given_bounds(self) -> Any:
        """Return a regressor's `target_bounds`; EstimatorError if they are missing."""
        if self.target_bounds is None:
            raise EstimatorError(
                "`target_bounds` is missing: give the range of the target, as target_bounds=(lower, upper), from "
                "public knowledge. It is not taken from y, because bounds read from private records leak them."
            )
        return self.target_bounds

    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        """Return a regressor's targets as text, to be read by the schema."""
        if not column.is_number:
            raise EstimatorError(
                "The schema's target is categorical, but this is a regressor: use one of the classifiers."
            )
        if self.target_bounds is not None:
            raise EstimatorError(BOTH_BOUNDS)
        targets = column_or_1d(y, warn=True)
        self._require_possible(targets)
        return texts(targets)

    def _set_coefficients(self) -> None:
        """Set a regressor's coefficients as a vector and its intercept as a number, unless y had columns."""
        super()._set_coefficients()
        if not self._has_columns:
            self.coef_ = self.coef_[0]
            self.intercept_ = float(self.intercept_[0])

    def predict(self, X: Any) -> FloatArray:
        """Return X @ coef_ + intercept_."""
        return self._scores(X)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² on these rows, measured without noise: not private. `score_` is."""
        return float(super().score(X, y, sample_weight))


@estimator_class
class FederatedLinearRegression(Regressor):
    """Linear regression, trained privately across silos: least squares, or another `loss`.

    Parameters
    ----------
    loss : {"squared", "absolute", "epsilon-insensitive"} or loss, default="squared"
        How errors count. Also a loss of a number, such as your own (`ringfence.custom_loss`), of the target scaled so
        that its bounds are -1 and 1.
    target_bounds : (lower, upper), default=None
        The range of the target, from public knowledge. Training clamps targets outside, so it should hold all that
        matter; noise grows with its width. If y has several columns: two numbers for all of them, or two sequences with
        one number per column. With a `schema`, the range is in the schema.

    Notes
    -----
    With squared loss, y may have several columns, which are learned together: a row's gradient for all of them is
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

    loss: str | Loss = "squared"
    _takes_several = True

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of linear regression, which takes several targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the `loss` of linear regression; several targets need least squares."""
        named = isinstance(self.loss, str) and self.loss in _STRAIGHT
        own = isinstance(self.loss, BaseLoss) and (self.loss.target_kind, self.loss.link) == ("number", "identity")
        if not named and not own:
            raise EstimatorError(
                f"`loss` must be one of {', '.join(_STRAIGHT)}, or a loss for a number that the score itself predicts, "
                "such as one from ringfence.custom_loss. For counts, amounts, times and classes, use their own "
                "estimators."
            )
        if schema.more_targets is None:
            return {"loss": self.loss}
        if self.loss != (least_squares := _STRAIGHT[0]):
            raise EstimatorError(
                f"With several columns of y, only least squares is available: leave `loss` at '{least_squares}'."
            )
        return {}

    def _target_columns(self, y: Any, features: list[str], targets: list[str]) -> TargetColumns:
        """Return a public column for every target of a linear regression."""
        self._has_columns = y.ndim == 2
        if not self._has_columns:
            return super()._target_columns(y, features, targets)
        first, *more = targets
        roles = {"target": first, **({"more_targets": tuple(more)} if more else {})}
        columns = interval_columns("`target_bounds`", "y", self._given_bounds(), targets)
        return TargetColumns(dict(zip(targets, y.T, strict=True)), columns, roles)

    def _target_cells_by_schema(self, y: Any, schema: Schema) -> dict[str, list[str]]:
        """Return the cells of a linear regression's one or several targets, by name."""
        self._has_columns = schema.more_targets is not None
        if not self._has_columns:
            return super()._target_cells_by_schema(y, schema)
        if self.target_bounds is not None:
            raise EstimatorError(BOTH_BOUNDS)
        y = as_frame(y)
        if frames.is_pandas(y) and set(schema.targets) <= set(y.columns):
            return {name: texts(y[name]) for name in schema.targets}
        numbers = np.asarray(y)
        if numbers.ndim != 2 or numbers.shape[1] != len(schema.targets):
            raise EstimatorError(
                "The schema has several targets, so y must have these columns in this order: "
                f"{', '.join(schema.targets)}."
            )
        return {name: texts(column) for name, column in zip(schema.targets, numbers.T, strict=True)}

    def predict(self, X: Any) -> FloatArray:
        """Return X @ coef_.T + intercept_: a number per row, or a column per target if y had columns."""
        scores = self._scores(X)
        return scores if self._has_columns else scores[:, 0]


_STRAIGHT = ("squared", "absolute", "epsilon-insensitive")


@estimator_class
class FederatedHuberRegressor(Regressor):
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

    threshold: float | None = None

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the Huber loss, with its threshold in scaled units."""
        unit, _ = schema.target_scaling
        return {"loss": "huber", "margin": None if self.threshold is None else float(self.threshold) / unit}


@estimator_class
class FederatedQuantileRegressor(Regressor):
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

    quantile: float = 0.5

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the pinball loss of the quantile."""
        return {"loss": "pinball", "quantile": float(self.quantile)}
