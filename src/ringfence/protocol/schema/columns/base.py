"""Base classes of a schema's columns: how cells are read, what features they become, what a draft writes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.public import Public
from ringfence.sources.cells import Cells

UNKNOWN = 1e18
"""A bound this large means that no bound is known."""

UNFILLED = "?"
"""Marks a decision in a draft that is still open."""

EMPTY = "the cell is empty; give the column a public `missing` value or `indicator = true`, or remove the row"


def _as_cell(value: object) -> object:
    """Turn a number in a column's list of tokens or categories into text; refuse true and false."""
    if isinstance(value, bool):
        raise ValueError('true and false are not texts here: quote them, as "true" or "false", or use type = "boolean"')
    return str(value) if isinstance(value, int | float) else value


Cell: TypeAlias = Annotated[str, BeforeValidator(_as_cell)]
"""A cell's text; `categories = [0, 1]` in a schema file means the cells "0" and "1"."""

Only: TypeAlias = Annotated[Literal[True] | None, BeforeValidator(lambda value: value or None)]
"""True, or left out."""


class Reading(NamedTuple):
    """A column's cells: of numbers, clamped and scaled; of categories, each category's place in the public list; of
    others, their features.

    `empty` marks the cells for which a public value stands in; `beyond` has the numbers that were clamped, if any.
    """

    values: NDArray[Any]
    empty: NDArray[np.bool_] | None
    beyond: "Beyond | None" = None

    def take(self, rows: NDArray[Any] | slice) -> "Reading":
        """Return the given rows of a column's reading."""
        beyond = None if self.beyond is None else Beyond.among(self.unclamped[rows], self.values[rows])
        return self.within(rows)._replace(beyond=beyond)

    def within(self, rows: NDArray[Any] | slice) -> "Reading":
        """Return the given rows of a column's reading as a model may know them: without the clamped numbers."""
        return Reading(self.values[rows], None if self.empty is None else self.empty[rows])

    @property
    def unclamped(self) -> FloatArray:
        """The numbers, scaled but not clamped: those who may see the records measure a model's error by them.

        Nothing that leaves a silo is computed from them.
        """
        if self.beyond is None:
            return self.values
        numbers = self.values.copy()
        numbers[self.beyond.rows] = self.beyond.numbers
        return numbers

    def first_beyond(self, *, above: bool) -> int | None:
        """Return the first row whose number was clamped; without `above`, of those that were too small."""
        if self.beyond is None:
            return None
        rows, numbers = self.beyond
        found = rows if above else rows[numbers < self.values[rows]]
        return int(found[0]) if found.size else None


class Beyond(NamedTuple):
    """Numbers that lay beyond their public bounds: their rows, and what they were, scaled."""

    rows: NDArray[np.int64]
    numbers: FloatArray

    @classmethod
    def among(cls, numbers: FloatArray, clamped: FloatArray) -> "Beyond | None":
        """Return the numbers of a column that clamping changed, if there are any."""
        rows = np.flatnonzero(numbers != clamped)
        return cls(rows, numbers[rows]) if rows.size else None


class Problem(NamedTuple):
    """What is wrong with cells of a column, in which rows, counted from 0, and what to do; no value is in it."""

    rows: NDArray[np.int64]
    what: str

    @classmethod
    def where(cls, wrong: NDArray[np.bool_], what: str) -> "list[Problem]":
        """Return the problem of a column's cells, if any cell has it."""
        rows = np.flatnonzero(wrong)
        return [cls(rows, what)] if rows.size else []


class BaseColumn(Public):
    """A column of a schema."""

    type: str
    is_number: ClassVar[bool] = False
    """Whether it is one number, between bounds."""
    is_plain_number: ClassVar[bool] = False
    """Whether a cell without a token is asked for its number and nothing else."""
    open_fields: ClassVar[Mapping[str, str]] = {}
    """The required fields, and what to write there."""
    is_identifier: ClassVar[bool] = False
    """Whether its cells say which row it is, or whose."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of a categorical column; empty for others."""
        return ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a column brings into a plan, for people to read."""
        return self.classes


class ReadColumn(BaseColumn):
    """A column whose cells are read. Each type implements these methods."""

    missing_tokens: tuple[Cell, ...] | None = Field(default=None, min_length=1, max_length=1000)
    """Texts that mark a missing value, besides empty cells."""
    indicator: Only = None
    """Whether an additional feature marks empty cells."""

    @property
    def stand_in(self) -> float | None:
        """The number, or the place of the category, that stands in for an empty cell; None if there is none."""
        return None

    @property
    def may_be_empty(self) -> bool:
        """Whether the schema allows for empty cells."""
        return self.stand_in is not None or bool(self.indicator)

    @property
    def is_unbounded(self) -> bool:
        """Whether it is a number without known bounds."""
        return False

    @property
    def constant(self) -> float:
        """The sum of its features, if it is the same for every cell; else 0."""
        return 0.0

    @property
    def target_scaling(self) -> tuple[float, float]:
        """What to multiply a scaled target by, and what to add then, to have it in its own units."""
        return 1.0, 0.0

    @property
    def bound(self) -> float:
        """The largest norm of the features of a column."""
        raise NotImplementedError

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """Offset and unit of each feature of a column, in the table's own numbers."""
        raise NotImplementedError

    @property
    def limits(self) -> tuple[tuple[float, float, float], ...]:
        """Between what each feature is clamped, in the table's own numbers, and what an empty cell counts as, or NaN.

        PlanError where features are clipped together and not one by one.
        """
        raise PlanError(
            f"A column of type '{self.type}' is clipped as a whole, which cannot be exported to ONNX: export to CSV."
        )

    @property
    def described(self) -> tuple[str, str]:
        """What kind of column it is, and which values it may have, for people to read, by the type of column."""
        return self.type, ""

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return the names of the features that a column of that name becomes, whatever its type."""
        raise NotImplementedError

    def read(self, cells: Cells) -> tuple[Reading, list[Problem]]:
        """Return the column's cells as numbers, and the problems found; with a problem, the numbers are not valid."""
        raise NotImplementedError

    @property
    def distance(self) -> str:
        """The unit of a difference between two values of a column, such as 'days'; empty for plain numbers."""
        return ""

    @property
    def axis(self) -> str:
        """Text after the column's name on a figure's axis, if a column type's numbers are not those of the cells."""
        return ""

    def written(self, center: float) -> Any:
        """Return a value of the column as a schema writes it: for most types of column, the number itself."""
        return center

    def features(self, reading: Reading) -> FloatArray:
        """Return the features of a column's reading, a row each."""
        raise NotImplementedError

    def plain(self, cells: Cells) -> FloatArray:
        """Return the features in the table's own numbers, which need not keep the bounds."""
        reading, _ = self.read(cells)
        offsets, units = np.array(self.scaling).T
        return np.asarray(self.features(reading) * units + offsets)

    def _empty(self, cells: Cells) -> NDArray[np.bool_] | None:
        """Tell which cells are empty or hold one of the tokens; None if no cell does."""
        empty = cells.empty()
        if self.missing_tokens:
            empty = empty | cells.among(self.missing_tokens)
        return empty if empty.any() else None

    def _problems(self, empty: NDArray[np.bool_] | None, wrong: NDArray[np.bool_], what: str) -> list[Problem]:
        """Return the problems of a column's cells: empty ones, unless the schema allows them, and wrong ones."""
        problems = [] if empty is None or self.may_be_empty else Problem.where(empty, EMPTY)
        return problems + Problem.where(wrong if empty is None else wrong & ~empty, what)

    def with_indicator(self, values: FloatArray, reading: Reading, size: float = 1.0) -> FloatArray:
        """Append the indicator of empty cells, if the schema asks for one."""
        if not self.indicator:
            return values
        empty = np.zeros(len(values)) if reading.empty is None else size * reading.empty
        return np.column_stack([values, empty])

    def with_indicator_name(self, name: str, names: Sequence[str]) -> tuple[str, ...]:
        """Append the name of the indicator of empty cells to a column's feature names, if there is one."""
        return (*names, f"{name} is missing") if self.indicator else tuple(names)


def unfilled(given: Mapping[str, Any]) -> list[str]:
    """Return the names of a column's fields that are not filled in; as a missing token, "?" is a value."""
    return [name for name, said in given.items() if said in (UNFILLED, [UNFILLED]) and name != "missing_tokens"]


class Ignored(BaseColumn):
    """A column that the model does not use: its cells are never read."""

    type: Literal["ignore"] = "ignore"


class Identifier(BaseColumn):
    """A column that names a row, or whose it is: never a feature. `person` and a query's order may go by it."""

    is_identifier: ClassVar[bool] = True

    type: Literal["identifier"] = "identifier"
