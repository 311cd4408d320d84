"""From the arguments of `fit` to records: the columns of X, by `bounds` or by a `schema`, and the target."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import ValidationError
from sklearn.base import is_regressor
from sklearn.utils.validation import validate_data

from ringfence.errors import EstimatorError
from ringfence.estimators.fit_data import SOURCE, FitArguments, FitData, checked_persons, checked_weights, unused_name
from ringfence.estimators.parameters import Parameters, Seedless
from ringfence.protocol import Column, Numeric, Schema, explain
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.protocol.schema.encoding import require_within
from ringfence.protocol.schema.schema import load_columns, load_schema
from ringfence.silo.records.reading import read_rows
from ringfence.sources import frames
from ringfence.sources.cells import ArrayCells, Cells, as_cells
from ringfence.sources.frames import CellTable


class TargetColumns(NamedTuple):
    """Cells and public columns of y, by name, and the schema's fields that name them."""

    cells: dict[str, Any]
    columns: dict[str, Column]
    roles: dict[str, Any]


_Columns: TypeAlias = tuple[Schema, dict[str, Cells], dict[str, Any]]
"""A schema, the columns of X, and the columns beside them."""


class TableReader(Parameters, Seedless, ABC):
    """The part of an estimator that reads tables, using public knowledge only."""

    _schema: Schema | None
    """The `schema` of the last `fit`."""
    _takes_several = False
    """Whether y may have several columns."""

    def _target(self, y: Any) -> tuple[Any, Column]:
        """Return the target's cells and its public column; only where there is no schema."""
        raise NotImplementedError

    @abstractmethod
    def _targets_by_schema(self, y: Any, column: ReadColumn) -> list[str]:
        """Return the target's cells as text, to be read by the schema."""

    def _target_columns(self, y: Any, features: list[str], targets: list[str]) -> TargetColumns:
        """Return the columns of y, for features and targets of these names; only where there is no schema."""
        (target,) = targets
        cells, column = self._target(y)
        roles = {"target": target, **self._class_weights(column.classes)}
        return TargetColumns({target: cells}, {target: column}, roles)

    def _target_cells_by_schema(self, y: Any, schema: Schema) -> dict[str, list[str]]:
        """Return the cells of the schema's targets, by name."""
        if schema.more_targets is not None:
            raise EstimatorError(
                f"The schema names several targets, but {type(self).__name__} predicts one: name one target, or use "
                "FederatedLinearRegression."
            )
        return {str(schema.target): self._targets_by_schema(y, schema.target_column)}

    def _class_weights(self, categories: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema's field for the weights of the target's categories, if `class_weight` is given."""
        return {}

    def _given_schema(self, given: FitArguments) -> Schema | None:
        """Return an estimator's `schema`, read from its file if it is a path; None if there is none."""
        if self.schema is None or isinstance(self.schema, Schema):
            return self.schema
        if not isinstance(self.schema, str | Path):
            raise EstimatorError("`schema` must be a schema file's path, or a schema from `ringfence.load_schema`.")
        named = [*getattr(given.X, "columns", ()), *_names_of(given.y)]
        columns = load_columns(Path(self.schema), header=lambda: list(map(str, named)))
        targets = [name for name in _names_of(given.y) if name in columns.used]
        if not targets and len(lacking := [name for name in columns.used if name not in named]) == 1:
            targets = lacking
        if not targets:
            raise EstimatorError(
                f"{self.schema} does not say which of its columns y is: give y its column's name, as a pandas Series "
                "has, or pass schema=ringfence.load_schema(path, target=NAME)."
            )
        return load_schema(Path(self.schema), targets, header=lambda: list(map(str, [*named, *targets])))

    def _fit_data(self, given: FitArguments) -> FitData:
        """Read the arguments of `fit`, by `bounds` or by a `schema`.

        A row is recognised in another fit by its cells in X, whatever the columns are called: the same people, another
        target.
        """
        schema, X, beside = self._by_bounds(given) if self._schema is None else self._by_schema(self._schema, given)
        count = len(next(iter(X.values())))
        weights = checked_weights(given.weights, count, self.sample_weight_bound)
        if weights is not None:
            if schema.weight is not None:
                raise EstimatorError(
                    f"Weights are given twice: by the schema, in the column '{schema.weight}', and by `sample_weight`. "
                    "Give only one of them."
                )
            name = unused_name(None, "weight", schema.columns)
            column = numeric_column("`sample_weight_bound`", (0.0, self.sample_weight_bound))
            schema = schema.model_copy(update={"columns": {**schema.columns, name: column}, "weight": name})
            beside[name] = weights
        if not self.fit_intercept:
            schema = schema.model_copy(update={"intercept": 0.0})
        persons = given.persons
        if schema.person is None and persons is not None:
            name = unused_name(getattr(persons, "name", None), "person", schema.columns)
            schema = schema.model_copy(update={"person": name})
        elif schema.person is not None and persons is None:
            persons = given.X[schema.person]
        owners = checked_persons(persons, count)
        if schema.person is not None:
            beside[schema.person] = owners
        identity = {f"x{place}": cells for place, cells in enumerate(X.values())}
        columns = {**X, **{name: as_cells(cells) for name, cells in beside.items()}}
        rows = read_rows(CellTable(columns, identity, SOURCE, dict.fromkeys(beside, "y")), schema)
        require_within(schema, rows.readings)
        return FitData(schema, rows, given.rows_by_silo(count), owners)

    def _by_bounds(self, given: FitArguments) -> _Columns:
        """Return the schema made from an estimator's `bounds`, and the columns of X and y, for `fit`."""
        if self.bounds is None:
            raise EstimatorError(
                "`bounds` is missing: give the range of every feature, as bounds=(lower, upper), from public knowledge "
                "(a code book, a law, common sense), or give a `schema`. The range is not taken from X, because bounds "
                "read from private records leak them. It need not be tight."
            )
        y = given.y
        named = _names_of(y)
        with hiding_values():
            X, y = validate_data(
                self, given.X, y, dtype=np.float64, y_numeric=is_regressor(self), multi_output=self._takes_several
            )
        names = self._column_names(X.shape[1])
        target = self._target_columns(y, names, _target_names(named, 1 if y.ndim == 1 else y.shape[1], names))
        columns = {**interval_columns("`bounds`", "X", self.bounds, names), **target.columns}
        try:
            schema = Schema(columns=columns, **target.roles)
        except ValidationError as refused:
            raise EstimatorError(f"`bounds` and the target do not form a valid schema: {explain(refused)}.") from None
        return schema, {name: ArrayCells(own) for name, own in zip(names, X.T, strict=True)}, target.cells

    def _by_schema(self, schema: Schema, given: FitArguments) -> _Columns:
        """Return the columns of X and y, which an estimator's `schema` describes, after checks, for `fit`."""
        X, y = given.X, given.y
        if self.bounds is not None:
            raise EstimatorError(
                "Both `bounds` and `schema` are given, and both describe the columns of X: give one of them."
            )
        if not frames.is_pandas(X):
            raise EstimatorError(
                "A `schema` describes columns by name, but X has no column names: give X as a table of pandas, polars "
                "or pyarrow."
            )
        if y is None:
            raise EstimatorError("y is missing: `fit` needs the target y as well as the features X.")
        if schema.person is not None and (schema.person in X.columns) == (given.persons is not None):
            raise EstimatorError(
                f"The schema says that the column '{schema.person}' identifies the person of each row. Give it either "
                "as a column of X or as `persons`, not both."
            )
        features = X.drop(columns=schema.person) if schema.person in X.columns else X
        validate_data(self, features, skip_check_array=True)  # notes the columns' names
        beside: dict[str, Any] = dict(self._target_cells_by_schema(y, schema))
        for targets in beside.values():
            if len(targets) != len(X):
                raise EstimatorError(f"X has {len(X)} rows, but y has {len(targets)}: give one target for each row.")
        weights = self._class_weights(schema.target_column.classes)
        if weights and schema.class_weights is not None:
            raise EstimatorError(
                "Class weights are given twice: by the schema's `class_weights` and by `class_weight`. Give only one "
                "of them."
            )
        schema = schema.model_copy(update=weights) if weights else schema
        return schema, dict(sorted(frames.columns_of(X).items())), beside

    def _column_names(self, count: int) -> list[str]:
        """Return the names of X's columns, as scikit-learn noted them, or x0, x1, … without any."""
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{place}" for place in range(count)]


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


def numeric_column(parameter: str, bounds: Any) -> Numeric:
    """Return a column of numbers with these two bounds, which the parameter gives."""
    try:
        lower, upper = map(float, bounds)
        return Numeric(lower=lower, upper=upper)
    except ValidationError as refused:
        raise EstimatorError(f"{parameter}: {explain(refused)}.") from None
    except (TypeError, ValueError):
        raise EstimatorError(f"{parameter} must be a pair of numbers, (lower, upper).") from None


def interval_columns(parameter: str, table: str, bounds: Any, names: Sequence[str]) -> dict[str, Column]:
    """Return a column of numbers for each name, from a mapping or from one or several bounds on either side."""
    if isinstance(bounds, Mapping):
        if set(bounds) != set(names):
            absent = [name for name in names if name not in bounds]
            stray = [str(name) for name in bounds if name not in names]
            said = f"there is none for {_few(absent)}" if absent else f"{table} has no column {_few(stray)}"
            raise EstimatorError(f"{parameter} must have one entry for each column of {table}, but {said}.")
        pairs = [bounds[name] for name in names]
    else:
        try:
            lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), len(names)) for side in bounds)
        except (TypeError, ValueError):
            raise EstimatorError(
                f"{parameter} must be (lower, upper): two numbers, or two sequences of {len(names)} numbers, one per "
                f"column of {table}."
            ) from None
        pairs = list(zip(lower, upper, strict=True))
    return {
        name: numeric_column(f"{parameter} of column '{name}'", pair) for name, pair in zip(names, pairs, strict=True)
    }


def _names_of(y: Any) -> list[Any]:
    """Return the names of y's columns, or of y itself; None for one that has none."""
    return list(y.columns) if hasattr(y, "columns") else [getattr(y, "name", None)]


def _target_names(given: list[Any], count: int, taken: list[str]) -> list[str]:
    """Return a name for each column of y that no other column has: its own, if it has one."""
    names: list[str] = []
    for place in range(count):
        default = "target" if count == 1 else f"target{place}"
        names.append(unused_name(given[place] if len(given) == count else None, default, [*taken, *names]))
    return names


def _few(names: list[str]) -> str:
    """Name the first three of many columns of X."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more
