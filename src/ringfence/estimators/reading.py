"""From the arguments of `fit` to records: the columns of X, by `bounds` or by a `schema`, and the target."""

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
    """The part of an estimator that reads tables, using public knowledge only."""

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
            raise EstimatorError(
                f"The schema names several targets, but {type(self).__name__} predicts one: name one target, or use "
                "FederatedLinearRegression."
            )
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
                "`bounds` is missing: give the range of every feature, as bounds=(lower, upper), from public knowledge "
                "(a code book, a law, common sense), or give a `schema`. The range is not taken from X, because bounds "
                "read from private records leak them. It need not be tight."
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
            raise EstimatorError(f"`bounds` and the target do not form a valid schema: {explain(refused)}.") from None
        table: Any = {**dict(zip(names, X.T, strict=True)), **cells}  # numbers need not go through text
        return FitData.of(schema, table, list(tables.row_bytes(X)), labels, tables.owners(persons, len(X)))

    def _weight_column(self) -> Column:
        return interval("`sample_weight_bound`", (0.0, self.sample_weight_bound))

    def _problem_by_schema(self, schema: Schema, rows: tables.Joined) -> FitData:
        X, y, labels, persons, weights = rows
        if self.bounds is not None:
            raise EstimatorError(
                "Both `bounds` and `schema` are given, and both describe the columns of X: give one of them."
            )
        if not tables.is_frame(X):
            raise EstimatorError(
                "A `schema` describes columns by name, but X has no column names: give X as a table of pandas, polars "
                "or pyarrow."
            )
        if y is None:
            raise EstimatorError("y is missing: `fit` needs the target y as well as the features X.")
        if schema.person is None:
            schema = schema.model_copy(update={"person": _person(persons, schema.columns)})
        elif (schema.person in X.columns) == (persons is not None):
            raise EstimatorError(
                f"The schema says that the column '{schema.person}' identifies the person of each row. Give it either "
                "as a column of X or as `persons`, not both."
            )
        elif persons is None:
            persons = X[schema.person]
        validate_data(self, tables.without(X, schema.person), skip_check_array=True)  # notes the columns' names
        identity = list(tables.row_bytes(tables.cells(X)))
        table = frames.columns_of(X)
        cells: dict[str, Any] = dict(self._cells_by_schema(y, schema))
        for targets in cells.values():
            if len(targets) != len(identity):
                raise EstimatorError(
                    f"X has {len(identity)} rows, but y has {len(targets)}: give one target for each row of X."
                )
        schema = self._with_class_weights(schema)
        weight = tables.weights(weights, len(identity), self.sample_weight_bound)
        if weight is not None:
            if schema.weight is not None:
                raise EstimatorError(
                    f"Weights are given twice: by the schema, in the column '{schema.weight}', and by `sample_weight`. "
                    "Give only one of them."
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
            raise EstimatorError(
                "Class weights are given twice: by the schema's `class_weights` and by `class_weight`. Give only one "
                "of them."
            )
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
                said = f"there is none for {_few(absent)}" if absent else f"X has no column {_few(stray)}"
                raise EstimatorError(f"`bounds` must have one entry for each column of X, but {said}.")
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
    """Let scikit-learn check X and y, but do not let it quote a cell that is not a number."""
    try:
        yield
    except ValueError as problem:
        if "contains NaN" in str(problem):  # scikit-learn recommends an imputer, which would learn from the records
            raise EstimatorError(
                "X or y contains NaN, a missing value. Give a replacement from public knowledge: set `missing`, and if "
                "you like `indicator`, for the column in a `schema`, or fill in a public number before `fit`. An "
                "imputer would learn from the records, outside the guarantee."
            ) from None
        if "could not convert" not in str(problem):
            raise
        raise EstimatorError(
            "X, or a numeric target, contains text that is not a number. Encode it with a public list of categories "
            "(OneHotEncoder(categories=[...]), or a `schema`), never with one learned from the records."
        ) from None


def interval(what: str, pair: Any) -> Numeric:
    """Return a column of numbers with these two bounds."""
    try:
        lower, upper = map(float, pair)
        return Numeric(lower=lower, upper=upper)
    except ValidationError as refused:
        raise EstimatorError(f"{what}: {explain(refused)}.") from None
    except (TypeError, ValueError):
        raise EstimatorError(f"{what} must be a pair of numbers, (lower, upper).") from None


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
