"""Generalised linear models: regressors of counts, amounts and survival times, and a classifier of ordered classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, column_or_1d

from ringfence.errors import EstimatorError
from ringfence.estimators.base import FederatedLinearModel
from ringfence.estimators.fit_data import FitArguments, FitData, texts, unused_name
from ringfence.estimators.linear import ProbabilisticClassifier, Regressor
from ringfence.estimators.parameters import estimator_class
from ringfence.estimators.reading import TargetColumns, hiding_values, numeric_column
from ringfence.protocol import Categorical, Column, FloatArray, Schema
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.protocol.schema.encoding import encode_offsets
from ringfence.sources import frames


class _LogLink(Regressor):
    """A regression of the logarithm of a mean: what those of counts and amounts share.

    Attributes
    ----------
    intercept_ : float
        The constant term: exp(X @ coef_ + intercept_) is the prediction.

    Notes
    -----
    With a `schema` that names an `exposure` or `offset`, X has that column too, in `fit` and in `predict`.
    """

    _above_zero = False

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of an estimator of counts or amounts, whose target is positive."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # the checks' targets are straight lines
        return tags

    def _require_possible(self, y: FloatArray) -> None:
        """Refuse counts below 0, or amounts that are not above 0."""
        numbers = np.asarray(y, dtype=np.float64)
        if (bad := np.flatnonzero(numbers <= 0 if self._above_zero else numbers < 0)).size:
            least = "above 0" if self._above_zero else "0 or more"
            raise EstimatorError(
                f"Row {bad[0]} of y (the first is row 0) is not {least}, as {type(self).__name__} requires: some "
                "value(s) of y are out of the valid range of its loss. Remove the row, or use "
                "FederatedLinearRegression."
            )

    def predict(self, X: Any) -> FloatArray:
        """Return exp(X @ coef_ + intercept_), times the exposure if the schema names one."""
        scores = self._scores(X)[:, 0]
        schema = self._schema
        if schema is not None and schema.offset_bound:
            offsets = encode_offsets(schema, frames.columns_of(X), source="X")
            scores = scores + (0.0 if offsets is None else offsets) + schema.offset_range[0]
        return np.exp(scores)


@estimator_class
class FederatedPoissonRegressor(_LogLink):
    """Poisson regression of counts, trained privately across silos.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedPoissonRegressor
    >>> random = np.random.default_rng(6)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> rate = np.exp(0.02 * X[:, 0] + 0.01 * X[:, 1] - 2)
    >>> y = random.poisson(rate)  # visits in a year
    >>> model = FederatedPoissonRegressor(epsilon=1.0, bounds=([0, 50], [120, 250]), target_bounds=(0, 10))
    >>> model.fit(X, y, silos=hospitals).predict([[50, 120]]).round(1)
    array([1.2])
    """

    _loss = "poisson"


@estimator_class
class FederatedGammaRegressor(_LogLink):
    """Gamma regression of positive amounts, trained privately across silos. The lower target bound must be above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedGammaRegressor
    >>> random = np.random.default_rng(7)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> rate = np.exp(0.02 * X[:, 0] + 0.01 * X[:, 1] - 2)
    >>> y = random.gamma(4, rate / 4)  # cost in thousands
    >>> model = FederatedGammaRegressor(epsilon=1.0, bounds=([0, 50], [120, 250]), target_bounds=(0.1, 10))
    >>> model.fit(X, y, silos=hospitals).predict([[50, 120]]).round(1)
    array([1.2])
    """

    _loss, _above_zero = "gamma", True


@estimator_class
class FederatedNegativeBinomialRegressor(_LogLink):
    """Regression of counts that vary more than a Poisson distribution's, trained privately across silos.

    Parameters
    ----------
    dispersion : float, default=1.0
        Known beforehand: counts with mean m have the variance m + dispersion·m².

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedNegativeBinomialRegressor
    >>> random = np.random.default_rng(8)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> rate = np.exp(0.02 * X[:, 0] + 0.01 * X[:, 1] - 2)
    >>> y = random.poisson(rate * random.gamma(2, 1 / 2, 3000))
    >>> settings = dict(epsilon=1.0, bounds=([0, 50], [120, 250]), target_bounds=(0, 10))
    >>> model = FederatedNegativeBinomialRegressor(dispersion=0.5, **settings).fit(X, y, silos=hospitals)
    >>> model.predict([[50, 120]]).round(1)
    array([1.1])
    """

    dispersion: float = 1.0
    _loss = "negative-binomial"

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the negative binomial loss and its dispersion."""
        return {"loss": self._loss, "dispersion": float(self.dispersion)}


@estimator_class
class FederatedOrdinalClassifier(ProbabilisticClassifier):
    """Ordinal logistic regression of ordered classes, trained privately across silos.

    The order is that of `classes`, or of the schema's categories.

    Attributes
    ----------
    coef_ : array of one row
        The coefficients, in the units of X, which all thresholds share.
    intercept_ : array
        One number per threshold: X @ coef_.T + intercept_ are the log odds of lying above each.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedOrdinalClassifier
    >>> random = np.random.default_rng(9)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = np.digitize(X.sum(axis=1) + random.normal(0, 15, 3000), [170, 230])  # 0: mild, 1: moderate, 2: severe
    >>> model = FederatedOrdinalClassifier(epsilon=1.0, bounds=([0, 50], [120, 250]), classes=[0, 1, 2])
    >>> model.fit(X, y, silos=hospitals).predict_proba([[85, 190], [25, 90]]).shape
    (2, 3)
    >>> round(model.score_, 2)  # accuracy, measured with noise
    0.84
    """

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of the ordinal classifier."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # the checks' classes are in no order
        return tags

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the ordinal loss, or the logistic one for two classes."""
        return {"loss": "ordinal" if len(schema.target_column.classes) > 2 else "logistic"}

    def _set_coefficients(self) -> None:
        """Set the ordinal classifier's coefficients: one slope for all thresholds between classes."""
        super()._set_coefficients()
        self.coef_ = self.coef_[:1]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return every class's probability, in the order of `classes_`."""
        found = super().predict_proba(X)
        return found[:, self._category_places] if found.shape[1] > 2 else found

    def decision_function(self, X: Any) -> FloatArray:
        """Return the ordinal classifier's score per row for two classes, else the log of every class's probability."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else np.log(np.maximum(self.predict_proba(X), 1e-300))


@estimator_class
class FederatedSurvivalRegressor(FederatedLinearModel):
    """Proportional hazards with a piecewise constant baseline hazard, trained privately across silos.

    `y` has two columns: the time, and 1 if an event ended it or 0 if the record is censored. With a `schema` that names
    the `event`, X has its column, and y is the time alone.

    Parameters
    ----------
    time_bound : float, default=None
        The longest time, from public knowledge. A record that is observed for longer counts as censored then.
    cuts : sequence of float, default=None
        The times at which the hazard may change. None means four, which divide the time into equal parts.

    Attributes
    ----------
    coef_ : array
        The logarithms of hazard ratios, in the units of X.
    intercept_ : array
        The logarithm of the hazard in each part of the time, for features of 0.
    cuts_ : array
        Where the parts of the time end.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedSurvivalRegressor
    >>> random = np.random.default_rng(10)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> years = random.exponential(8 * np.exp(0.6 - 0.02 * X[:, 0]))
    >>> y = np.column_stack([np.minimum(years, 5), years < 5])  # observed for five years
    >>> model = FederatedSurvivalRegressor(epsilon=1.0, bounds=([0, 50], [120, 250]), time_bound=5)
    >>> model.fit(X, y, silos=hospitals).predict_survival([[50, 120]], times=[1, 3]).round(1)
    array([[0.8, 0.6]])
    """

    time_bound: float | None = None
    cuts: Sequence[float] | None = None
    _takes_several = True

    def _fit_data(self, given: FitArguments) -> FitData:
        """Read the arguments of a survival regressor's `fit`: times, and whether an event ended each."""
        if self._schema is None:
            return super()._fit_data(given._replace(y=self._times_and_events(given.y)))
        event = self._schema.event
        if event is None:
            raise EstimatorError(
                "The schema names no event: set `event` to the column that says whether the time ended with an event."
            )
        if frames.is_pandas(given.X) and event in given.X.columns:
            happened = self._schema.used[event].classes[1]
            self._require_events(happened in texts(given.X[event]))
        return super()._fit_data(given)

    def _times_and_events(self, y: Any) -> FloatArray:
        """Return y as a column of times and a column of events, after checks."""
        with hiding_values():
            pairs: FloatArray = check_array(y, dtype=np.float64, ensure_min_samples=1)
        if pairs.shape[1] != 2 or not np.isin(pairs[:, 1], (0.0, 1.0)).all():
            raise EstimatorError("y must have two columns: a time, and 1 if an event ended it or 0 if not.")
        if self.time_bound is None:
            raise EstimatorError(
                "`time_bound` is missing: give the longest time that anybody is observed, from public knowledge. It "
                "is not taken from y, because a bound read from private records leaks them."
            )
        if (bad := np.flatnonzero(pairs[:, 0] < 0)).size:
            raise EstimatorError(f"Row {bad[0]} of y (the first is row 0) is a negative time: correct or remove it.")
        self._require_events(bool(pairs[:, 1].any()))
        return pairs

    @staticmethod
    def _require_events(any_event: bool) -> None:
        """Refuse survival times that are all censored."""
        if not any_event:
            raise EstimatorError(
                "All times are censored: no event ended any of them, so a hazard cannot be learned. Observe for "
                "longer, or correct the events."
            )

    def _target_columns(self, y: Any, features: list[str], targets: list[str]) -> TargetColumns:
        """Return the survival time and the event as public columns."""
        target = unused_name(None, "target", features)
        event = unused_name(None, "event", [*features, target])
        columns: dict[str, Column] = {
            target: numeric_column("`time_bound`", (0.0, self.time_bound)),
            event: Categorical(categories=("0", "1")),
        }
        ended = [str(int(one)) for one in y[:, 1]]
        return TargetColumns({target: y[:, 0], event: ended}, columns, {"target": target, "event": event})

    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        """Return survival times as text, to be read by the schema."""
        if not column.is_number:
            raise EstimatorError("The schema's target is categorical, but a time is a number: make it numeric.")
        return texts(column_or_1d(y, warn=True))

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Choose the survival loss and its cuts."""
        return {"loss": "survival", "cuts": None if self.cuts is None else tuple(map(float, self.cuts))}

    def _set_coefficients(self) -> None:
        """Set the survival regressor's coefficients, and the cuts in units of time."""
        super()._set_coefficients()
        self.coef_ = self.coef_[0]
        unit, _ = self.plan_.data.target_scaling
        self.cuts_ = np.array([cut * unit for cut in self.plan_.loss.parts_end])

    def predict(self, X: Any) -> FloatArray:
        """Return X @ coef_: the logarithm of the hazard relative to that of features of 0."""
        return self._scores(X)[:, 0] - float(self.intercept_[0])

    def predict_survival(self, X: Any, times: Any) -> FloatArray:
        """Return the probability that no event occurs before each of `times`: a row per record, a column per time."""
        hazards, edges = np.exp(self._scores(X)), np.array([0.0, *self.cuts_, np.inf])
        spent = np.clip(np.asarray(times, dtype=np.float64)[:, None] - edges[:-1], 0.0, np.diff(edges))
        survival: FloatArray = np.exp(-hazards @ spent.T)
        return survival

    def score(self, X: Any, y: Any) -> float:
        """Return the concordance on these records, measured without noise: not private.

        That is how often, of two records, the one whose event comes first has the larger predicted hazard.
        """
        pairs = check_array(y, dtype=np.float64)
        return concordance(self.predict(X), pairs[:, 0], pairs[:, 1])


def concordance(risks: FloatArray, times: FloatArray, events: FloatArray) -> float:
    """Return Harrell's concordance: over pairs of which one has an event before the other's time; ties count half."""
    earlier = (times[:, None] < times[None, :]) & (events[:, None] > 0)
    above = (risks[:, None] > risks[None, :]) + 0.5 * (risks[:, None] == risks[None, :])
    return float(above[earlier].mean()) if earlier.any() else float("nan")
