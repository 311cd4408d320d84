"""One of a public list: categories by their spelling, truth values, and whole numbers that are codes."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.schema.columns.base import Cell, Problem, ReadColumn, Reading
from ringfence.sources.cells import Cells, number

_SHOWN = 10
"""How many classes people are shown."""


class OneOf(ReadColumn):
    """A column of classes. As a feature it becomes one column per class, 0 or `scale`.

    An `ordered` one becomes a single column instead, evenly spaced over 2·scale, with 0 at the share `center` of the
    way from the first to the last: fewer columns need less noise. A small scale means that the column is publicly
    expected to matter little.
    """

    unknown: ClassVar[str]
    """What is wrong with a cell that is none of them."""

    center: float = Field(default=0.5, ge=0, le=1)
    scale: float = Field(default=1.0, gt=0, le=1e6)
    missing: Any = None

    @property
    def is_ordered(self) -> bool:
        """Whether the categories become one feature."""
        return False

    @property
    def stand_in(self) -> int | None:
        """The place of the public `missing` class, which stands in for an empty cell, if there is one."""
        return None if self.missing is None else self.place(str(self.missing))

    def _require_list(self, listed: Sequence[Any], word: str, other: Any) -> None:
        """Refuse categories that are listed twice, and a `missing` or `other` that is not listed."""
        if len(set(listed)) != len(listed):
            raise ValueError(f"a {word} is listed twice")
        for name, value in (("missing", self.missing), ("other", other)):
            if value is not None and value not in listed:
                raise ValueError(f"{name} must be one of the values listed")
        if self.indicator and self.missing is not None and not self.is_ordered:
            raise ValueError(f"with an indicator, a missing value is its own {word}: leave `missing` out")

    def place(self, text: str) -> int:
        """Return the place of the class that a cell's text means, and −1 if it means none."""
        raise NotImplementedError

    @property
    def constant(self) -> float:
        """The sum of one-hot features, `scale`; 0 for ordered categories, which are one feature."""
        return 0.0 if self.is_ordered else self.scale

    @property
    def bound(self) -> float:
        """The largest norm of the features of a categorical column."""
        if not self.is_ordered:
            return self.scale
        largest = 2 * self.scale * max(self.center, 1 - self.center)
        empty = 0.0 if self.stand_in is None else self._position(float(self.stand_in))
        return max(largest, math.hypot(empty, self.scale)) if self.indicator else largest

    def _position(self, place: Any) -> Any:
        """Return the feature of an ordered category at that place."""
        return 2.0 * self.scale * (place / (len(self.classes) - 1) - self.center)

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return the names of the features that a categorical column becomes: one per category, unless ordered."""
        names = (name,) if self.is_ordered else tuple(f"{name}={each}" for each in self.classes)
        return self.with_indicator_name(name, names)

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """Offset and unit of each feature of categories: of the place of an ordered one, or of 1 for each."""
        share = (0.0, 1.0 / self.scale)
        indicator = (share,) if self.indicator else ()
        if not self.is_ordered:
            return (share,) * len(self.classes) + indicator
        steps = len(self.classes) - 1  # place i of k becomes 2·scale·(i/(k − 1) − center)
        return ((self.center * steps, steps / (2.0 * self.scale)), *indicator)

    @property
    def limits(self) -> tuple[tuple[float, float, float], ...]:
        """The first and the last place of ordered categories, or 0 and 1 for each category."""
        indicator = ((0.0, 1.0, 0.0),) if self.indicator else ()
        absent = 0.0 if self.indicator else math.nan
        last = len(self.classes) - 1
        if self.is_ordered:
            empty = self.center * last if self.indicator else math.nan
            return ((0.0, float(last), empty if self.stand_in is None else float(self.stand_in)), *indicator)
        own = (absent if self.stand_in is None else float(place == self.stand_in) for place in range(last + 1))
        return (*((0.0, 1.0, empty) for empty in own), *indicator)

    @property
    def described(self) -> tuple[str, str]:
        """A category, ordered or not, and the first categories of the column."""
        shown, more = ", ".join(self.classes[:_SHOWN]), len(self.classes) - _SHOWN
        return "ordered category" if self.is_ordered else "category", shown + (f" and {more} more" if more > 0 else "")

    def read(self, cells: Cells) -> tuple[Reading, list[Problem]]:
        """Return the place of each cell's category in the public list; where none stands in for an empty cell, −1."""
        codes, distinct = cells.coded()
        kept = np.min_scalar_type(-len(self.classes))  # as short as it may be
        of_distinct = np.array([self.place(text) if text else -1 for text in distinct] or [0], dtype=kept)
        places: NDArray[Any] = of_distinct[codes]
        wrong = places < 0
        empty = self._empty(cells) if self.missing_tokens or wrong.any() else None
        if empty is not None:
            places[empty] = -1 if self.stand_in is None else self.stand_in
        return Reading(places, empty), self._problems(empty, wrong, self.unknown)

    def features(self, reading: Reading) -> FloatArray:
        """Return a one-hot column for each category, or one column for ordered categories."""
        places = reading.values
        if self.is_ordered:
            positions = self._position(places[:, None].astype(np.float64))
            if reading.empty is not None and self.stand_in is None:
                positions[reading.empty] = 0.0
            return self.with_indicator(positions, reading, self.scale)
        block = np.zeros((len(places), len(self.classes)))
        rows = np.arange(len(places)) if reading.empty is None or self.stand_in is not None else ~reading.empty
        block[rows, places[rows]] = self.scale
        return self.with_indicator(block, reading, self.scale)


class Categorical(OneOf):
    """One of a public list of categories.

    `synonyms` are other spellings of a category; `other` is the category of every cell that is none of them.
    """

    unknown: ClassVar[str] = (
        "this category is not in the schema's public list; correct the cell, or give the column `synonyms` or `other`"
    )
    open_fields: ClassVar[Mapping[str, str]] = {"categories": "every value that may occur"}

    type: Literal["categorical"] = "categorical"
    categories: tuple[Cell, ...] = Field(min_length=2, max_length=10_000)
    ordered: bool = False
    missing: Cell | None = None
    synonyms: dict[str, tuple[Cell, ...]] | None = Field(default=None, min_length=1, max_length=10_000)
    other: Cell | None = None

    @model_validator(mode="after")
    def _is_a_set(self) -> Self:
        """Refuse categories or synonyms that no cell can match, that mean two categories, or that mean none."""
        self._require_list(self.categories, "category", self.other)
        if any(category != category.strip() or not category for category in self.categories):
            raise ValueError("a category is empty or has spaces around it, which no cell can match")
        known = set(self.categories)
        for category, spellings in (self.synonyms or {}).items():
            if category not in self.categories:
                raise ValueError("synonyms are listed for something that is not among the categories")
            for spelling in spellings:
                if spelling in known or not spelling or spelling != spelling.strip():
                    raise ValueError("a synonym is empty, has spaces around it, or is already listed or a category")
                known.add(spelling)
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """The categories of the column."""
        return self.categories

    @property
    def names(self) -> tuple[str, ...]:
        """The categories and their spellings."""
        return (*self.categories, *(spelling for each in (self.synonyms or {}).values() for spelling in each))

    @property
    def is_ordered(self) -> bool:
        """Whether the categories of the column are ordered."""
        return self.ordered

    @cached_property
    def _places(self) -> dict[str, int]:
        """The place of each category by its spelling, synonyms included."""
        places = {category: place for place, category in enumerate(self.categories)}
        for category, spellings in (self.synonyms or {}).items():
            places |= dict.fromkeys(spellings, places[category])
        return places

    def place(self, text: str) -> int:
        """Return the place of the category with this spelling, or of the one for all others."""
        return self._places.get(text, -1 if self.other is None else self._places[self.other])


_SPELLINGS = {
    **dict.fromkeys(("false", "no", "n", "f", "0"), 0),
    **dict.fromkeys(("true", "yes", "y", "t", "1"), 1),
}


def truth_value(text: str) -> int:
    """Return 0 or 1 for the usual spellings of a truth value, in any capitals; −1 for other texts."""
    return _SPELLINGS.get(text.lower(), -1)


class Boolean(OneOf):
    """True or false, in any of the usual spellings: true/false, yes/no, t/f, y/n, 0/1. It becomes one column, ±scale.

    As a target, its classes are called no and yes.
    """

    unknown: ClassVar[str] = (
        "this is neither true nor false (nor yes, no, t, f, y, n, 1 or 0); if it marks a missing value, list it in "
        "`missing_tokens`"
    )
    classes: ClassVar[tuple[str, ...]] = ("no", "yes")
    names: ClassVar[tuple[str, ...]] = ()  # none that the schema's author chose
    is_ordered: ClassVar[bool] = True

    type: Literal["boolean"] = "boolean"
    missing: bool | None = None

    def place(self, text: str) -> int:
        """Return 0 or 1 for a truth value, in any capitals."""
        value = number(text)
        return int(value) if value in (0, 1) else truth_value(text)


class Code(OneOf):
    """A whole number that is a code, of a public list: 1, 01 and 1.0 are the same one."""

    unknown: ClassVar[str] = (
        "this code is not in the schema's public list; correct the cell, or give the column `other`"
    )
    open_fields: ClassVar[Mapping[str, str]] = {"codes": "every whole number that may occur"}

    type: Literal["code"] = "code"
    codes: tuple[int, ...] = Field(min_length=2, max_length=10_000)
    missing: int | None = None
    other: int | None = None

    @model_validator(mode="after")
    def _is_a_set(self) -> Self:
        """Refuse codes (categories that are numbers) listed twice or too large to be exact."""
        self._require_list(self.codes, "code", self.other)
        if any(abs(code) > 2**53 for code in self.codes):
            raise ValueError("a code is too large to be distinguished from its neighbours: make it a category")
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """The codes, which are categories."""
        return tuple(map(str, self.codes))

    def place(self, text: str) -> int:
        """Return the place of the code that is this number, however it is spelled."""
        return self._places.get(number(text), -1 if self.other is None else self._places[self.other])

    @cached_property
    def _places(self) -> dict[float, int]:
        """The place of each code, which is a category, by its number."""
        return {float(code): place for place, code in enumerate(self.codes)}
