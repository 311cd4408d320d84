"""The public schema of a silo's table: which columns there are and what values they may take.

Bounds and categories come from public knowledge (a code book, a law, common sense), never from the private
records: they decide how values are scaled and clipped, so bounds read from data would leak it.
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from ringfence.errors import SchemaError
from ringfence.protocol.public import Public, explain
from ringfence.storage.toml_files import read_toml, toml_text

UNKNOWN = 1e18
"""A bound of this size, or beyond, says that nobody knows one."""


class Numeric(Public):
    """A number in [lower, upper]; values beyond are clamped. It becomes (value − center) / scale.

    `center` and `scale` default to the middle and half the width, which maps the bounds to ±1. Give them
    where it is publicly known that values crowd in a narrower range: training then needs fewer rounds.
    """

    type: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    center: float | None = None
    scale: float | None = Field(default=None, gt=0)
    missing: float | None = None

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError("lower must be smaller than upper (type = 'ignore' drops a constant column)")
        if not math.isfinite(self.upper - self.lower):
            raise ValueError("the range from lower to upper is too wide to compute with")
        if not self.unit > 0 or not math.isfinite(self.offset):
            raise ValueError("lower and upper are too close, or too large, to compute with")
        for name, value in (("center", self.center), ("missing", self.missing)):
            if value is not None and not self.lower <= value <= self.upper:
                raise ValueError(f"{name} must lie between lower and upper")
        if self.bound > 1e6:
            raise ValueError("scale is so small that scaled values exceed a million")
        return self

    @property
    def offset(self) -> float:
        """The value that becomes 0."""
        return (self.lower + self.upper) / 2 if self.center is None else self.center

    @property
    def unit(self) -> float:
        """The distance that becomes 1."""
        return (self.upper - self.lower) / 2 if self.scale is None else self.scale

    @property
    def bound(self) -> float:
        """The largest absolute value after scaling."""
        return max(self.upper - self.offset, self.offset - self.lower) / self.unit

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return the names of the features that a column of that name becomes: its own."""
        return (name,)

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """What each of its features calls 0, and how much 1 is more, in the table's own numbers."""
        return ((self.offset, self.unit),)

    @property
    def is_unbounded(self) -> bool:
        """Whether no bound is known: statistics are then of magnitudes, and nothing else should be asked."""
        return self.upper >= UNKNOWN or self.lower <= -UNKNOWN


def _as_cell(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Cell: TypeAlias = Annotated[str, BeforeValidator(_as_cell)]
"""A cell's text; `categories = [0, 1]` in a schema file means the cells "0" and "1"."""


class Categorical(Public):
    """One of a public list of categories. As a feature it becomes one column per category, 0 or `scale`.

    `ordered` categories (no, sometimes, often; or just no, yes) become a single column instead, evenly spaced
    over 2·scale, with 0 at the share `center` of the way from the first to the last: fewer columns need less
    noise. A small scale says that the column is publicly expected to matter little.
    """

    type: Literal["categorical"] = "categorical"
    categories: tuple[Cell, ...] = Field(min_length=2, max_length=10_000)
    ordered: bool = False
    center: float = Field(default=0.5, ge=0, le=1)
    scale: float = Field(default=1.0, gt=0, le=1e6)
    missing: Cell | None = None

    @model_validator(mode="after")
    def _is_a_set(self) -> Self:
        if len(set(self.categories)) != len(self.categories):
            raise ValueError("a category is listed twice")
        if any(category != category.strip() or not category for category in self.categories):
            raise ValueError("a category is empty or has white space around it, which no cell can match")
        if self.missing is not None and self.missing not in self.categories:
            raise ValueError("missing must be one of the categories")
        return self

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return the names of the features that a column of that name becomes: one per category, unless ordered."""
        return (name,) if self.ordered else tuple(f"{name}={category}" for category in self.categories)

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """What each feature calls 0, and how much 1 is more, of a category's place, from 0, or of 1 for being it."""
        if not self.ordered:
            return ((0.0, 1.0 / self.scale),) * len(self.categories)
        steps = len(self.categories) - 1  # place i of k becomes 2·scale·(i/(k − 1) − center)
        return ((self.center * steps, steps / (2.0 * self.scale)),)

    @property
    def bound(self) -> float:
        """The largest norm of its columns."""
        return 2 * self.scale * max(self.center, 1 - self.center) if self.ordered else self.scale


class Ignored(Public):
    """A column that the model does not use: its cells are never read."""

    type: Literal["ignore"] = "ignore"


Column: TypeAlias = Annotated[Numeric | Categorical | Ignored, Field(discriminator="type")]
AnyColumns = TypeVar("AnyColumns", bound="TableColumns")


class Geometry(NamedTuple):
    """What is public about encoded records: length and largest norm of a feature vector, largest target."""

    width: int
    feature_norm: float
    target_bound: float


class TableColumns(Public):
    """What is public of a table, whichever of its columns a plan asks about: its columns, by name, and its scales.

    `person` names the column that tells whose a row is, if one does: all rows with the same cell are one person's, and
    plans protect persons. No model reads that column, so it need not be among `columns`.
    """

    later_fields: ClassVar[frozenset[str]] = frozenset({"person"})

    columns: dict[str, Column] = Field(min_length=1, max_length=100_000)
    intercept: float = Field(default=1.0, ge=0, le=1e6)
    radius: float | None = Field(default=None, gt=0)
    person: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _reads_nobody_s_name(self) -> Self:
        if self.person in self.used:
            raise ValueError(
                f"the column '{self.person}' tells whose a row is, so no model may read it: give it type = 'ignore'"
            )
        return self

    @cached_property
    def used(self) -> dict[str, Numeric | Categorical]:
        """The columns whose cells are read, sorted by name so that a file's column order is free."""
        return {name: column for name, column in sorted(self.columns.items()) if not isinstance(column, Ignored)}

    def difference(self, schema: "Schema") -> str:
        """Say why a plan with this schema cannot be answered from the table, or nothing if it can.

        A plan may leave columns out. Those that it reads must be the table's, with the same values and scales.
        """
        for name, column in schema.used.items():
            if name not in self.columns:
                return f"the plan reads the column '{name}', which is not in the silo's schema"
            if name not in self.used:
                return f"the plan reads the column '{name}', which the silo's schema ignores"
            for field in type(column).model_fields:
                if getattr(column, field) != getattr(self.used[name], field, None):
                    return f"the column '{name}' has another `{field}` in the plan than in the silo's schema"
        for field in ("intercept", "radius", "person"):
            if getattr(schema, field) != getattr(self, field):
                return f"the plan has another `{field}` than the silo's schema"
        return ""


class _NoTargetError(SchemaError, ValueError):
    """Lets a document that needs a target say so."""


class Schema(TableColumns):
    """Columns by name, which one is the target, and how long a feature vector may be.

    The target is left out where nothing is predicted: all columns are features then.

    The feature vector has one entry per numeric or ordered column and one per category of the others, in the
    columns' order of names, and last the constant `intercept`, unless that is 0 (a file may say true or false
    for 1 and 0). What lies before the constant is scaled down to norm `radius` where it is longer; without
    `radius` the bounds alone limit it.
    """

    later_fields: ClassVar[frozenset[str]] = TableColumns.later_fields | {"target"}

    target: str | None = None

    @model_validator(mode="after")
    def _has_target_and_features(self) -> Self:
        if self.target is not None and self.target not in self.columns:
            raise ValueError(f"the target column '{self.target}' is not among the columns")
        if self.target is not None and self.target not in self.used:
            raise ValueError(f"the target column '{self.target}' is ignored: give it a type and its values")
        if not self.features:
            raise ValueError("there is no feature column left besides the target")
        return self

    @cached_property
    def features(self) -> dict[str, Numeric | Categorical]:
        """The columns that enter the feature vector, sorted by name."""
        return {name: column for name, column in self.used.items() if name != self.target}

    @property
    def target_column(self) -> Numeric | Categorical:
        """The target's column; SchemaError if there is none."""
        if self.target is None:
            raise _NoTargetError("The schema names no target: say which column a model is to predict.")
        return self.used[self.target]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """A name for every entry of the feature vector."""
        names = [feature for name, column in self.features.items() for feature in column.feature_names(name)]
        return (*names, "intercept") if self.intercept else tuple(names)

    @property
    def width(self) -> int:
        """Length of the feature vector."""
        return len(self.feature_names)

    @cached_property
    def bounds_norm(self) -> float:
        """The longest feature vector that the bounds allow, without the intercept and before `radius`."""
        return math.sqrt(sum(column.bound**2 for column in self.features.values()))

    @cached_property
    def feature_norm(self) -> float:
        """X: the longest a feature vector can be, intercept included."""
        longest = self.bounds_norm if self.radius is None else min(self.radius, self.bounds_norm)
        return math.hypot(longest, self.intercept)

    @property
    def geometry(self) -> Geometry:
        """The numbers that planning needs."""
        return Geometry(self.width, self.feature_norm, self.target_bound)

    @property
    def target_scaling(self) -> tuple[float, float]:
        """What a scaled target is multiplied by, and what is then added, to have it in its own units."""
        column = self.target_column
        return (column.unit, column.offset) if isinstance(column, Numeric) else (1.0, 0.0)

    @property
    def target_bound(self) -> float:
        """Y: the largest absolute target after scaling (labels are ±1 or an index, which no constant needs)."""
        column = None if self.target is None else self.target_column
        return column.bound if isinstance(column, Numeric) else 1.0


def load_schema(path: Path, target: str) -> Schema:
    """Read a schema file (TOML) for the given target column."""
    return parse_schema(_read(path), target=target, source=str(path))


def load_columns(path: Path) -> TableColumns:
    """Read a schema file (TOML) for whatever target a plan will name."""
    return _validated(TableColumns, _read(path), source=str(path))


def load_draft(path: Path) -> TableColumns:
    """Read a schema file in which bounds may not be filled in yet: such numbers are unbounded.

    Columns whose categories are not filled in are ignored: no question finds them out.
    """
    content = _read(path)
    columns = content.get("columns")
    if isinstance(columns, Mapping):
        content = {**content, "columns": {name: _filled(column) for name, column in columns.items()}}
    return _validated(TableColumns, content, source=str(path))


def _filled(column: Any) -> Any:
    if not isinstance(column, Mapping):
        return column
    if column.get("categories") in (UNFILLED, [UNFILLED]):
        return {"type": "ignore"}
    return {
        field: bound if value == UNFILLED and (bound := {"lower": -UNKNOWN, "upper": UNKNOWN}.get(field)) else value
        for field, value in column.items()
    }


def without_target(columns: TableColumns) -> Schema:
    """Return a schema of these columns for a plan that predicts nothing."""
    if not columns.used:
        raise SchemaError("This schema ignores all its columns: give one that is to be asked about its type.")
    return Schema(**{name: getattr(columns, name) for name in TableColumns.model_fields})


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as problem:
        raise SchemaError(f"The schema file {path} could not be read: {problem.strerror}.") from None
    except ValueError as problem:
        raise SchemaError(f"The schema file {path} is not valid TOML: {problem}.") from None


def parse_schema(content: Mapping[str, Any], *, target: str, source: str = "the schema") -> Schema:
    """Validate a schema as it stands in a TOML file or a dictionary."""
    return _validated(Schema, {**content, "target": target}, source=source)


def _validated(kind: type[AnyColumns], content: Mapping[str, Any], *, source: str) -> AnyColumns:
    columns = content.get("columns")
    if isinstance(columns, Mapping):
        for name, column in columns.items():
            for field, value in column.items() if isinstance(column, Mapping) else ():
                if value in (UNFILLED, [UNFILLED]):
                    raise SchemaError(
                        f"In {source}, '{field}' of column '{name}' is not filled in: write what is publicly "
                        'known about the column (not what this file happens to contain), or type = "ignore".'
                    )
    try:
        return kind.model_validate(content, strict=False)
    except ValidationError as refused:
        raise SchemaError(f"In {source}, {explain(refused)}.") from None


UNFILLED = "?"

_WHOSE = {
    "account", "client", "customer", "employee", "household", "id", "insured", "member", "mrn", "patient", "person",
    "policyholder", "pupil", "ssn", "student", "subject", "user",
}  # fmt: skip


def may_tell_persons(column: str) -> bool:
    """Tell whether a column is called as one that says whose a row is."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)
    return not _WHOSE.isdisjoint(word.lower().removesuffix("s") for word in words)


def draft_schema(types: Mapping[str, Literal["numeric", "categorical"]]) -> str:
    """Write a schema to fill in, from names and types alone."""
    whose = [name for name in types if may_tell_persons(name)]
    head = [
        '# Fill in every "?" from public knowledge (a code book, a law, common sense), never from the records:',
        "# bounds or categories read from private data would leak it.",
        "#   numeric       lower, upper: values beyond are clamped",
        "#                 center, scale (optional): where values publicly are known to crowd",
        "#   categorical   categories: every value that may occur",
        "#   ignore        the column is not used",
        "# missing = ... (optional) is the public value that stands in for an empty cell.",
        '# Where somebody may have several rows, give the column that tells whose each is type = "ignore", and name it',
        "# above all columns. Persons are then protected, with all their rows, and not each row by itself:",
        *(f"# {toml_text({'person': name})}".rstrip() for name in whose or ["COLUMN"]),
        "",
    ]
    fields: dict[str, dict[str, Any]] = {
        "numeric": {"lower": UNFILLED, "upper": UNFILLED},
        "categorical": {"categories": [UNFILLED]},
    }
    columns = {name: {"type": kind, **fields[kind]} for name, kind in types.items()}
    return "\n".join(head) + "\n" + toml_text({"columns": columns})
