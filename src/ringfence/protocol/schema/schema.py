"""The public schema of a silo's table: which columns there are and what values they may take.

Bounds and categories come from public knowledge (a code book, a law, common sense), never from the private
records: they decide how values are scaled and clipped, so bounds read from data would leak it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from pydantic import Field, ValidationError, model_validator

from ringfence.errors import SchemaError
from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.public import Public, explain
from ringfence.protocol.schema.blocks import Blocks
from ringfence.protocol.schema.columns import Column, type_of
from ringfence.protocol.schema.columns.base import ReadColumn, unfilled
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.maps import FeatureMap, blocks_of, check_maps
from ringfence.protocol.schema.maps.base import BaseMap
from ringfence.protocol.schema.maps.curves import Curve
from ringfence.protocol.schema.patterns import expanded
from ringfence.protocol.schema.roles import Roles
from ringfence.storage.toml_files import read_toml

Header: TypeAlias = Callable[[], Sequence[str]]
"""Returns the names of a table's columns, which patterns need."""

AnyPublic = TypeVar("AnyPublic", bound=Public)


class TableColumns(Public):
    """The public description of a table for any plan: its columns, by name, and its scales.

    `person` names the column that identifies persons, if there is one: all rows with the same cell belong to one
    person, and plans protect persons. No model reads that column, so it need not be among `columns`.

    `maps` are public functions of columns, whose values are features (`protocol.schema.maps`). A plan chooses them.
    """

    columns: dict[str, Column] = Field(min_length=1, max_length=100_000)
    intercept: float = Field(default=1.0, ge=0, le=1e6)
    radius: float | None = Field(default=None, gt=0)
    person: str | None = Field(default=None, min_length=1)
    maps: tuple[FeatureMap, ...] | None = Field(default=None, min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        """Refuse maps that do not suit the columns, and a schema that reads the column that identifies persons."""
        check_maps(self.used, self.maps or ())
        if self.person in self.used:
            raise ValueError(
                f"the column '{self.person}' identifies persons, so no model may read it: give it type = 'ignore'"
            )
        return self

    @cached_property
    def used(self) -> dict[str, ReadColumn]:
        """The columns whose cells are read, sorted by name, so that a file's column order does not matter."""
        return {name: column for name, column in sorted(self.columns.items()) if isinstance(column, ReadColumn)}

    def difference(self, schema: "Schema") -> str:
        """Return why the table cannot answer a plan with this schema; empty if it can.

        A plan may leave columns out. Those that it reads must be the table's own, with the same values and scales.
        """
        for name, column in schema.used.items():
            if column == self.columns.get(name):
                continue
            if name not in self.columns:
                return f"the plan reads the column '{name}', which is not in the silo's schema"
            if name not in self.used:
                return f"the plan reads the column '{name}', which the silo's schema ignores"
            for field in ("type", *sorted(type(column).model_fields)):
                if getattr(column, field) != getattr(self.used[name], field, None):
                    return (
                        f"the column '{name}' has a different `{field}` in the plan from the one in the silo's schema"
                    )
        for field in ("intercept", "radius", "person"):
            if getattr(schema, field) != getattr(self, field):
                return f"the plan has a different `{field}` from the silo's schema"
        return ""


class _NoTargetError(SchemaError, ValueError):
    """A ValueError as well, so that pydantic reports it for a document that needs a target."""


class Schema(Roles, TableColumns):
    """Columns by name, which one is the target, and how long a feature vector may be.

    Without a target nothing is predicted, and all columns are features.

    The feature vector has one entry per numeric or ordered column and one per category of the others, in the order of
    the columns' names, or what `maps` make of columns, and last the constant `intercept`, unless that is 0 (a file may
    say true or false for 1 and 0). If the part before the constant is longer than `radius`, it is scaled down to that
    norm; without `radius` only the bounds limit it.
    """

    target: str | None = None

    @cached_property
    def identity(self) -> str:
        """A value that equal schemas share, and no others; computed once."""
        return self.canonical().decode()

    def _nearest(self, name: str) -> str:
        """Suggest the column whose name is nearest, or list the first ones: a schema is public."""
        near = get_close_matches(name, self.columns, n=1)
        listed = ", ".join([*list(self.columns)[:10], *(["..."] if len(self.columns) > 10 else [])])
        return f"; the most similar is '{near[0]}'" if near else f", which are {listed}: name one of them"

    @model_validator(mode="after")
    def _has_target_and_features(self) -> Self:
        """Refuse a schema whose target is not a column that is read, or that has no features."""
        if self.target is not None and self.target not in self.columns:
            raise ValueError(f"the target column '{self.target}' is not among the columns{self._nearest(self.target)}")
        if self.target is not None and self.target not in self.used:
            raise ValueError(f"the target column '{self.target}' is ignored: give it a type and its values")
        if self.target is not None and not (self.used[self.target].is_number or self.used[self.target].classes):
            raise ValueError(f"the target column '{self.target}' is neither a number nor one of several classes")
        if self.target is not None and self.used[self.target].indicator:
            raise ValueError(f"the target column '{self.target}' has an indicator, which only a feature can have")
        self.check_roles(self.used, self.target)
        for name in (name for each in self.maps or () for name in each.columns):
            if name in (self.target, *self.roles.values()):
                raise ValueError(f"a map names the column '{name}', which is not a feature: leave it out of the map")
        if not self.features:
            raise ValueError("there is no feature column left besides the target")
        return self

    @cached_property
    def features(self) -> dict[str, ReadColumn]:
        """The columns of the schema that enter the feature vector, sorted by name."""
        beside = {*self.targets, *self.roles.values()}
        return {name: column for name, column in self.used.items() if name not in beside}

    @cached_property
    def blocks(self) -> Blocks:
        """The schema's feature vector without the constant: blocks of each column, then of maps of several columns."""
        return blocks_of(self.features, self.maps or ())

    @cached_property
    def open_curves(self) -> dict[str, Curve]:
        """The curves whose knots a survey is to find, by the column's name."""
        curves = [each for each in self.maps or () if isinstance(each, Curve) and each.is_open]
        return {name: curve for curve in curves for name in curve.columns}

    @property
    def knots(self) -> int:
        """How many knots each request places."""
        return len(self.even_knots_together)

    @cached_property
    def even_knots_together(self) -> FloatArray:
        """The open curves' even knots, one curve's after the other's: a request's, until a survey finds better ones."""
        return np.array([place for own in self.even_knots for place in own])

    @cached_property
    def even_knots(self) -> list[tuple[float, ...]]:
        """The open curves' knots, evenly from the column's lower bound to its upper one."""
        return [curve.inner(self.open_columns[name]) for name, curve in self.open_curves.items()]

    @cached_property
    def open_columns(self) -> dict[str, Scaled]:
        """The columns with open curves, by name."""
        columns = {name: self.used[name] for name in self.open_curves}
        return {name: column for name, column in columns.items() if isinstance(column, Scaled)}

    def placed(self, knots: FloatArray) -> "Schema":
        """Return the schema with its open curves' knots at these places, one curve after the other.

        ValueError if they do not increase, or lie beyond the columns' bounds.
        """
        if not self.open_curves:
            return self
        # How long sums take must not tell whether a record lies next to a knot.
        knots = without_negligible(knots)
        key = knots.tobytes()
        if key not in self._placed:
            places = iter(knots.tolist())
            made = [own for each in self.maps or () for own in each.placed(places)]
            self._placed.clear()  # of one run at a time
            self._placed[key] = self.with_maps(made)
        return self._placed[key]

    def with_maps(self, maps: Sequence[BaseMap] | None) -> "Schema":
        """Return the schema with other maps; ValueError if they do not suit the columns."""
        return Schema(
            **{name: getattr(self, name) for name in type(self).model_fields} | {"maps": tuple(maps or ()) or None}
        )

    def without_open_curves(self) -> "Schema":
        """Return the schema with straight lines in place of open curves."""
        return self.with_maps([each for each in self.maps or () if not each.is_open]) if self.open_curves else self

    def accepts(self, knots: FloatArray) -> bool:
        """Return whether a request may place knots there; without any, it may."""
        with suppress(ValueError):
            return not knots.size or self.placed(knots) is not None
        return False

    @cached_property
    def _placed(self) -> "dict[bytes, Schema]":
        """The schema with the knots that were placed last."""
        return {}

    @property
    def inputs(self) -> str:
        """The features of the schema, in words."""
        mapped = f"; mapped to {'; '.join(each.words for each in self.maps)}" if self.maps else ""
        return ", ".join(self.features) + mapped

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns that the schema predicts: usually one, and none if nothing is predicted."""
        return () if self.target is None else (self.target, *(self.more_targets or ()))

    @property
    def target_words(self) -> str:
        """The schema's target, in words."""
        return " and ".join(self.targets)

    def for_target(self, target: str) -> Self:
        """Return the schema for one of several targets, as if the others did not exist."""
        others = set(self.targets) - {target}
        columns = {name: column for name, column in self.columns.items() if name not in others}
        return self.model_copy(update={"target": target, "more_targets": None, "columns": columns})

    @property
    def target_column(self) -> ReadColumn:
        """The target's column; SchemaError if there is none."""
        if self.target is None:
            raise _NoTargetError("The schema names no target: say which column the model should predict.")
        return self.used[self.target]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """A name for every entry of the schema's feature vector."""
        names = self.blocks.names
        return (*names, "intercept") if self.intercept else tuple(names)

    @property
    def width(self) -> int:
        """Length of the schema's feature vector."""
        return len(self.feature_names)

    @cached_property
    def feature_norm(self) -> float:
        """X: the longest a feature vector of the schema can be, intercept included."""
        return math.hypot(min(self.blocks.bound, self.radius or math.inf), self.intercept)

    @property
    def target_scaling(self) -> tuple[float, float]:
        """What to multiply the schema's scaled target by, and what to add then, to have it in its own units."""
        return self.target_column.target_scaling

    @property
    def target_scalings(self) -> list[tuple[float, float]]:
        """The scaling of every target of the schema."""
        return [self.used[name].target_scaling for name in self.targets]

    @property
    def target_bound(self) -> float:
        """Y: the largest absolute target of the schema after scaling; the norm of several targets; 1 for labels."""
        numbers = [self.used[name].bound for name in self.targets if self.used[name].is_number]
        return math.hypot(*numbers) if numbers else 1.0

    @property
    def offset_range(self) -> tuple[float, float]:
        """The middle and the half-width of the offsets' range; for exposures, of their logarithms."""
        column = self.used.get(self.offset or self.exposure or "")
        if not isinstance(column, Scaled):
            return 0.0, 0.0
        low, high = (math.log(end) if self.exposure else end for end in (column.low, column.high))
        return (low + high) / 2, (high - low) / 2

    @property
    def offset_bound(self) -> float:
        """The largest absolute offset that the schema allows, measured from the middle of its range."""
        return self.offset_range[1]

    @property
    def weight_bound(self) -> float:
        """The largest weight of a record that the schema allows."""
        column = self.used.get(self.weight or "")
        own = column.high if isinstance(column, Scaled) else 1.0
        return own * max((self.class_weights or {"": 1.0}).values())


def load_schema(path: Path, target: str | Sequence[str], header: Header | None = None) -> Schema:
    """Read a schema file (TOML) for the given target column, or for several numeric ones to predict together.

    `header` returns a table's column names, which patterns in the file need.
    """
    return parse_schema(_read(path), target=target, source=str(path), header=header)


def load_columns(
    path: Path, header: Header | None = None, *, prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> TableColumns:
    """Read a schema file (TOML) for whatever target a plan will name; `prepare` may change what it says before."""
    return _validated(TableColumns, prepare(_without_roles(_read(path))), source=str(path), header=header)


def load_roles(path: Path) -> Roles:
    """Read which columns a schema file gives a role, whatever target a plan will name."""
    content = {name: value for name, value in _read(path).items() if name in Roles.model_fields}
    return _validated(Roles, content, source=str(path), header=None)


def without_target(columns: TableColumns) -> Schema:
    """Return a schema of these columns for a plan that predicts nothing."""
    if not columns.used:
        raise SchemaError("This schema ignores all its columns: give at least one a type.")
    return Schema(**{name: getattr(columns, name) for name in TableColumns.model_fields if name != "maps"})


def _without_roles(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out the roles of columns, which a plan names as it names its target."""
    return {name: value for name, value in content.items() if name not in Roles.model_fields}


def _read(path: Path) -> dict[str, Any]:
    """Read a schema file as TOML; SchemaError if it cannot be read."""
    try:
        return read_toml(path)
    except OSError as problem:
        raise SchemaError(f"The schema file {path} could not be read: {problem.strerror}.") from None
    except ValueError as problem:
        raise SchemaError(f"The schema file {path} is not valid TOML: {problem}.") from None


def parse_schema(
    content: Mapping[str, Any],
    *,
    target: str | Sequence[str],
    source: str = "the schema",
    header: Header | None = None,
) -> Schema:
    """Validate a schema as it stands in a TOML file or a dictionary."""
    first, *more = [target] if isinstance(target, str) else target
    named = {"target": first, **({"more_targets": more} if more else {})}
    return _validated(Schema, {**content, **named}, source=source, header=header)


def _validated(kind: type[AnyPublic], content: Mapping[str, Any], *, source: str, header: Header | None) -> AnyPublic:
    """Expand a schema's patterns and validate it; SchemaError with its first problem."""
    content = expanded(content, source=source, header=header)
    _require_filled(content.get("columns"), source)
    try:
        return kind.model_validate(content, strict=False)
    except ValidationError as refused:
        raise SchemaError(f"In {source}, {explain(refused)}.") from None


def _require_filled(columns: Any, source: str) -> None:
    """Refuse a schema's column with a field not filled in, or absent; name it and what to write."""
    for name, column in columns.items() if isinstance(columns, Mapping) else ():
        if not isinstance(column, Mapping):
            continue
        for field in unfilled(column):
            raise SchemaError(
                f"In {source}, '{field}' of column '{name}' is not filled in: write what is publicly "
                'known about the column (not what this file happens to contain), or type = "ignore".'
            )
        kind = type_of(column)
        for field, hint in kind.open_fields.items() if kind is not None else ():
            if field not in column:
                raise SchemaError(
                    f"In {source}, column '{name}' has no `{field}`, which is required: write {hint}, from public "
                    "knowledge."
                )
