"""From what `fit` is given to records: which columns X has, by `bounds` or by a `schema`, and what the target is."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from pydantic import ValidationError
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import validate_data

from ringfence.errors import EstimatorError
from ringfence.estimators import tables
from ringfence.estimators.fit_data import FitData
from ringfence.estimators.parameters import Parameters
from ringfence.protocol.public import explain
from ringfence.protocol.schema import Categorical, Column, Numeric, Schema


class TableReader(Parameters, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """An estimator as far as it reads tables by public knowledge."""

    @abstractmethod
    def _target(self, y: Any) -> tuple[Any, Column]:
        """Return the target's cells and its public column; only where there is no schema."""

    @abstractmethod
    def _targets_by_schema(self, y: Any, column: Numeric | Categorical) -> list[str]:
        """Return the target's cells as text, to be read by the schema."""

    # From arguments to a problem.

    def _problem(self, X: Any, y: Any, labels: tables.Labels, persons: Any) -> FitData:
        if self.schema is not None:
            return self._problem_by_schema(self.schema, X, y, labels, persons)
        if self.bounds is None:
            raise EstimatorError(
                "`bounds` is missing: say between which values every feature lies, as bounds=(lower, upper), from "
                "public knowledge (a code book, a law, common sense), or give a `schema`. They are not taken from X, "
                "because bounds read from private records leak them. They need not be tight."
            )
        target_name = getattr(y, "name", None)
        with hiding_values():
            X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=is_regressor(self))
        names = self._column_names(X.shape[1])
        target = tables.unused(target_name, "target", names)
        cells, column = self._target(y)
        columns: dict[str, Column] = {**self._numeric_columns(names), target: column}
        intercept = 1.0 if self.fit_intercept else 0.0
        try:
            schema = Schema(columns=columns, target=target, intercept=intercept, person=_person(persons, columns))
        except ValidationError as refused:
            raise EstimatorError(f"No schema can be made of `bounds` and the target: {explain(refused)}.") from None
        table: Any = {**dict(zip(names, X.T, strict=True)), target: cells}  # numbers need not go through text
        return FitData.of(schema, table, list(tables.row_bytes(X)), labels, tables.owners(persons, len(X)))

    def _problem_by_schema(self, schema: Schema, X: Any, y: Any, labels: tables.Labels, persons: Any) -> FitData:
        if self.bounds is not None:
            raise EstimatorError("Both `bounds` and `schema` are given, which say the same: leave one out.")
        if not tables.is_frame(X):
            raise EstimatorError("A `schema` describes columns by name, so X must be a table that names them (pandas).")
        if y is None:
            raise EstimatorError("y is missing: estimators here learn from targets, so `fit` needs both X and y.")
        if schema.person is None:
            schema = schema.model_copy(update={"person": _person(persons, schema.columns)})
        elif (schema.person in X.columns) == (persons is not None):
            raise EstimatorError(
                f"By the schema, the column '{schema.person}' tells whose a row is: give it in X, or its cells as "
                "`persons`, one of both."
            )
        elif persons is None:
            persons = X[schema.person]
        validate_data(self, tables.without(X, schema.person), skip_check_array=True)  # notes the columns' names
        table = tables.cells(X)
        identity = list(tables.row_bytes(table))
        targets = self._targets_by_schema(y, schema.target_column)
        if len(targets) != len(identity):
            raise EstimatorError(f"X has {len(identity)} rows, and y has {len(targets)}.")
        if not self.fit_intercept:
            schema = schema.model_copy(update={"intercept": 0.0})
        owners = tables.owners(persons, len(identity))
        return FitData.of(schema, {**table, str(schema.target): targets}, identity, labels, owners)

    def _column_names(self, count: int) -> list[str]:
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{place}" for place in range(count)]

    def _numeric_columns(self, names: list[str]) -> dict[str, Column]:
        if isinstance(self.bounds, Mapping):
            if set(self.bounds) != set(names):
                raise EstimatorError(f"`bounds` must name every column of X, and no other: {', '.join(names)}.")
            pairs = [self.bounds[name] for name in names]
        else:
            try:
                lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), len(names)) for side in self.bounds)
            except (TypeError, ValueError):
                raise EstimatorError(
                    f"`bounds` must be (lower, upper): two numbers, or two sequences of {len(names)} numbers, one per "
                    "column of X."
                ) from None
            pairs = list(zip(lower, upper, strict=True))
        return {name: interval(f"`bounds` of column '{name}'", pair) for name, pair in zip(names, pairs, strict=True)}


@contextmanager
def hiding_values() -> Iterator[None]:
    """Let scikit-learn check X and y, but not quote the cell that is no number."""
    try:
        yield
    except ValueError as problem:
        if "could not convert" not in str(problem):
            raise
        raise EstimatorError(
            "X, or a numeric target, holds text that is not a number. Encode it by a public list of categories "
            "(OneHotEncoder(categories=[...]), or a `schema`), never by one learned from the records."
        ) from None


def interval(what: str, pair: Any) -> Numeric:
    """Return the column of numbers between the two of a pair."""
    try:
        lower, upper = map(float, pair)
        return Numeric(lower=lower, upper=upper)
    except ValidationError as refused:
        raise EstimatorError(f"{what}: {explain(refused)}.") from None
    except (TypeError, ValueError):
        raise EstimatorError(f"{what} must be two numbers, lower and upper.") from None


def _person(persons: Any, taken: Collection[str]) -> str | None:
    """Return a public name for the column that `persons` is, if it is given."""
    return None if persons is None else tables.unused(getattr(persons, "name", None), "person", taken)
