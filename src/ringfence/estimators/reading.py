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
from ringfence.protocol.columns import Column, Numeric, ReadColumn
from ringfence.protocol.public import explain
from ringfence.protocol.schema import Schema
from ringfence.sources import frames


class TableReader(Parameters, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """An estimator as far as it reads tables by public knowledge."""

    @abstractmethod
    def _target(self, y: Any) -> tuple[Any, Column]:
        """Return the target's cells and its public column; only where there is no schema."""

    @abstractmethod
    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        """Return the target's cells as text, to be read by the schema."""

    def _cells_of_target(
        self, y: Any, names: list[str], targets: list[str]
    ) -> tuple[dict[str, Any], dict[str, Column], dict[str, Any]]:
        """Return cells and columns of what stands beside the features, by name, and what each name is."""
        del names
        (target,) = targets
        cells, column = self._target(y)
        return {target: cells}, {target: column}, {"target": target, **self._class_weights(column.classes)}

    def _cells_by_schema(self, y: Any, schema: Schema) -> dict[str, list[str]]:
        """Return the cells of the schema's targets, by name."""
        if schema.more_targets is not None:
            raise EstimatorError("The schema names several targets: use FederatedLinearRegression, or name one.")
        return {str(schema.target): self._targets_by_schema(y, schema.target_column)}

    def _class_weights(self, categories: tuple[str, ...]) -> dict[str, Any]:
        """Return how much the target's categories count, for a schema, if somebody says so."""
        del categories
        return {}

    _takes_several = False
    """Whether y may have several columns."""

    # From arguments to a problem.

    def _problem(self, rows: tables.Joined) -> FitData:
        X, y, labels, persons, weights = rows
        if self.schema is not None:
            return self._problem_by_schema(self.schema, rows)
        if self.bounds is None:
            raise EstimatorError(
                "`bounds` is missing: say between which values every feature lies, as bounds=(lower, upper), from "
                "public knowledge (a code book, a law, common sense), or give a `schema`. They are not taken from X, "
                "because bounds read from private records leak them. They need not be tight."
            )
        given = list(y.columns) if hasattr(y, "columns") else [getattr(y, "name", None)]
        with hiding_values():
            X, y = validate_data(
                self, X, y, dtype=np.float64, y_numeric=is_regressor(self), multi_output=self._takes_several
            )
        names = self._column_names(X.shape[1])
        targets = _target_names(given, 1 if y.ndim == 1 else y.shape[1], names)
        cells, beside, roles = self._cells_of_target(y, names, targets)
        weight = tables.weights(weights, len(X), self.sample_weight_bound)
        if weight is not None:
            name = tables.unused(None, "weight", [*names, *beside])
            cells[name], beside[name], roles["weight"] = weight, self._weight_column(), name
        columns: dict[str, Column] = {**self._numeric_columns(names), **beside}
        intercept = 1.0 if self.fit_intercept else 0.0
        try:
            schema = Schema(columns=columns, intercept=intercept, person=_person(persons, columns), **roles)
        except ValidationError as refused:
            raise EstimatorError(f"No schema can be made of `bounds` and the target: {explain(refused)}.") from None
        table: Any = {**dict(zip(names, X.T, strict=True)), **cells}  # numbers need not go through text
        return FitData.of(schema, table, list(tables.row_bytes(X)), labels, tables.owners(persons, len(X)))

    def _weight_column(self) -> Column:
        return interval("`sample_weight_bound`", (0.0, self.sample_weight_bound))

    def _problem_by_schema(self, schema: Schema, rows: tables.Joined) -> FitData:
        X, y, labels, persons, weights = rows
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
        identity = list(tables.row_bytes(tables.cells(X)))
        table = frames.columns_of(X)
        cells: dict[str, Any] = dict(self._cells_by_schema(y, schema))
        for targets in cells.values():
            if len(targets) != len(identity):
                raise EstimatorError(f"X has {len(identity)} rows, and y has {len(targets)}.")
        schema = self._with_class_weights(schema)
        weight = tables.weights(weights, len(identity), self.sample_weight_bound)
        if weight is not None:
            if schema.weight is not None:
                raise EstimatorError(
                    f"By the schema, the column '{schema.weight}' says how much a row counts, and `sample_weight` says "
                    "so too: leave one out."
                )
            name = tables.unused(None, "weight", schema.columns)
            columns = {**schema.columns, name: self._weight_column()}
            schema, cells = schema.model_copy(update={"columns": columns, "weight": name}), {**cells, name: weight}
        if not self.fit_intercept:
            schema = schema.model_copy(update={"intercept": 0.0})
        owners = tables.owners(persons, len(identity))
        return FitData.of(schema, {**table, **cells}, identity, labels, owners)

    def _with_class_weights(self, schema: Schema) -> Schema:
        given = self._class_weights(schema.target_column.classes)
        if given and schema.class_weights is not None:
            raise EstimatorError("Both the schema's `class_weights` and `class_weight` are given: leave one out.")
        return schema.model_copy(update=given) if given else schema

    def _column_names(self, count: int) -> list[str]:
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{place}" for place in range(count)]

    def _numeric_columns(self, names: list[str]) -> dict[str, Column]:
        if isinstance(self.bounds, Mapping):
            if set(self.bounds) != set(names):
                absent = [name for name in names if name not in self.bounds]
                stray = [str(name) for name in self.bounds if name not in names]
                said = f"has none for {_few(absent)}" if absent else f"names {_few(stray)}, which X does not have"
                raise EstimatorError(f"`bounds` must name every column of X, and no other, but {said}.")
            pairs = [self.bounds[name] for name in names]
        else:
            given: Any = self.bounds
            try:
                lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), len(names)) for side in given)
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
        if "contains NaN" in str(problem):  # scikit-learn recommends an imputer, which would learn from the records
            raise EstimatorError(
                "X or y contains NaN, a missing value. Say by public knowledge what stands in for it: a `schema` has "
                "`missing`, and `indicator`, for each column; or fill it in with a public number before `fit`. An "
                "imputer would learn from the records, outside of the guarantee."
            ) from None
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


def _target_names(given: list[Any], count: int, taken: list[str]) -> list[str]:
    """Return a name for each column of y that no other column has: its own, if it has one."""
    names: list[str] = []
    for place in range(count):
        default = "target" if count == 1 else f"target{place}"
        names.append(tables.unused(given[place] if len(given) == count else None, default, [*taken, *names]))
    return names


def _few(names: list[str]) -> str:
    """Name the first of many."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more


def _person(persons: Any, taken: Collection[str]) -> str | None:
    """Return a public name for the column that `persons` is, if it is given."""
    return None if persons is None else tables.unused(getattr(persons, "name", None), "person", taken)
