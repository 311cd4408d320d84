"""One column's cells as a source gave them: texts, numbers, times or vectors, and how each is asked for.

Whatever is said about a cell depends on that cell alone, never on others of its column: what is made of a record must
not tell about another one. What is no number, or no vector, is NaN; what to say about it is the schema's business.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.sources.words import Words, number_words, text_word, vector_words

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

ALL = slice(None)


def number(text: str, *, comma: bool = False) -> float:
    """Return a cell's text as a number, NaN if it is not one; with `comma`, that may be its decimal mark."""
    if comma and "," in text and "." not in text:
        text = text.replace(",", ".", 1)
    if "_" in text:  # Python's own habit
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def number_text(value: float) -> str:
    """Return a number as text, whole numbers without a point: pandas turns 1 into 1.0 in a column with gaps."""
    return str(int(value)) if value.is_integer() else repr(value)


class Cells(ABC):
    """A column's cells. `odd` names a kind of cells that no column type can read; usually empty."""

    odd: str = ""
    _comma = False
    _held: Sequence[Any] | NDArray[Any]
    """The texts, codes, values or lists: an entry per cell."""

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self._held)

    @abstractmethod
    def numbers(self) -> FloatArray:
        """Return each cell as a number; NaN if it is empty or not a number."""

    @abstractmethod
    def coded(self) -> tuple[IntArray, list[str]]:
        """Return the cells' distinct texts, and for each row the place of its own; an empty cell is ""."""

    @abstractmethod
    def take(self, rows: Any) -> "Cells":
        """Return the given rows of a column's cells."""

    def _stacked(self, parts: Sequence[Any]) -> "Cells":
        """Concatenate the texts of a column's parts, of which this is the first; subclasses keep their own kind."""
        return TextCells([text for part in parts for text in part.texts()])

    def texts(self) -> list[str]:
        """Return each cell's text."""
        codes, distinct = self.coded()
        return [distinct[code] for code in codes.tolist()]

    def empty(self) -> NDArray[np.bool_]:
        """Return the mask of empty cells."""
        codes, distinct = self.coded()
        return _lookup([not text for text in distinct], codes)

    def among(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return the mask of cells equal to one of these texts, or to a number among them in any spelling."""
        codes, distinct = self.coded()
        values = {value for text in texts if math.isfinite(value := number(text))}
        named = set(texts)
        found = [text in named or (bool(values) and self._number(text) in values) for text in distinct]
        return _lookup(found, codes)

    def times(self) -> NDArray[np.datetime64] | None:
        """Return cells as times in microseconds; None if they are texts, whose format the schema knows."""
        return None

    def vectors(self, length: int) -> FloatArray:
        """Return each cell as `length` numbers; all NaN if it is anything else."""
        codes, distinct = self.coded()
        return np.array([self._vector(text, length) for text in distinct]).reshape(-1, length)[codes]

    def words(self, rows: slice = ALL) -> Words:
        """Return 64 bits that identify each cell: equal for a number and its text, so that files and tables agree."""
        codes, words = self._coded_words
        return words[codes[rows]]

    @cached_property
    def _coded_words(self) -> tuple[IntArray, Words]:
        """Return the code of each cell, and the 64-bit words of the distinct texts."""
        codes, distinct = self.coded()
        return codes, np.array([text_word(text, self._number(text)) for text in distinct], dtype=np.uint64)

    def _number(self, text: str) -> float:
        """Return a cell's text as a number, by the column's decimal mark."""
        return number(text, comma=self._comma)

    def _vector(self, text: str, length: int) -> FloatArray:
        """Return a cell's text as a vector of numbers; all NaN if it has another length."""
        parts = text.strip("[](){} ").replace(",", " ").replace(";", " ").split()
        fits = len(parts) == length
        return np.array([number(part) for part in parts]) if fits else np.full(length, math.nan)


class TextCells(Cells):
    """Texts, without white space around them unless `raw`. With `comma`, that may be a number's decimal mark."""

    def __init__(self, cells: Sequence[str], *, comma: bool = False, raw: bool = False) -> None:
        """Hold cells as texts; `comma` allows a decimal comma, `raw` texts still have spaces around them."""
        self._held: Sequence[str] = cells
        self._comma = comma
        self._is_raw = raw

    def texts(self) -> list[str]:
        """Return text cells without spaces around them."""
        return [cell.strip() for cell in self._held] if self._is_raw else list(self._held)

    def numbers(self) -> FloatArray:
        """Return text cells as numbers, which are parsed once."""
        return self._numbers

    @cached_property
    def _numbers(self) -> FloatArray:
        """Text cells parsed as numbers."""
        try:
            if self._comma or "_" in "".join(self._held):
                raise ValueError
            return np.array(list(map(float, self._held)), dtype=np.float64)
        except ValueError:
            return np.array([self._number(cell) for cell in self._held], dtype=np.float64)

    def coded(self) -> tuple[IntArray, list[str]]:
        """Return the texts of text cells, numbered once in the order in which they appear."""
        return self._coded

    @cached_property
    def _coded(self) -> tuple[IntArray, list[str]]:
        """The codes of text cells, and the distinct texts."""
        places: dict[str, int] = {}
        codes = [places.setdefault(cell, len(places)) for cell in self._held]
        return np.array(codes, dtype=np.int64), [text.strip() if self._is_raw else text for text in places]

    def _stacked(self, parts: Sequence[Any]) -> Cells:
        """Concatenate text cells."""
        return TextCells([cell for part in parts for cell in part._held], comma=self._comma, raw=self._is_raw)

    def words(self, rows: slice = ALL) -> Words:
        """Return the bits of the numbers in text cells, or the words of texts if some cell is no number."""
        return number_words(self.numbers()[rows]) if self._are_numbers else super().words(rows)

    @cached_property
    def _are_numbers(self) -> bool:
        """Whether all text cells are finite numbers, and not coded yet."""
        return "_coded" not in vars(self) and bool(np.isfinite(self._numbers).all())

    def take(self, rows: Any) -> "TextCells":
        """Return the given rows of text cells."""
        taken = [self._held[row] for row in np.arange(len(self))[rows].tolist()]
        return TextCells(taken, comma=self._comma, raw=self._is_raw)


class CodedCells(Cells):
    """Texts, dictionary-encoded: each distinct text is kept once."""

    def __init__(self, codes: NDArray[Any], distinct: list[str], *, comma: bool = False) -> None:
        """Hold cells as codes into a list of distinct texts."""
        self._held: NDArray[Any] = codes
        self._distinct = distinct
        self._comma = comma

    def numbers(self) -> FloatArray:
        """Parse each distinct text of coded cells once."""
        return _lookup([self._number(text) for text in self._distinct], self._held, np.float64)

    def coded(self) -> tuple[IntArray, list[str]]:
        """Return the codes and the distinct texts of coded cells."""
        return self._held, self._distinct

    def _stacked(self, parts: Sequence[Any]) -> Cells:
        """Concatenate coded cells, each part with its own list of texts."""
        starts = np.cumsum([0, *(len(part._distinct) for part in parts)])
        codes = [start + part._held.astype(np.int64) for start, part in zip(starts, parts, strict=False)]
        distinct = [text for part in parts for text in part._distinct]
        return CodedCells(np.concatenate(codes), distinct, comma=self._comma)

    def take(self, rows: Any) -> "CodedCells":
        """Return the given rows of coded cells, with the texts that occur in them."""
        places, codes = np.unique(self._held[rows], return_inverse=True)
        return CodedCells(codes, [self._distinct[place] for place in places.tolist()], comma=self._comma)


class ArrayCells(Cells):
    """An array of numbers, truth values or points in time; or of vectors, if it has two dimensions.

    `empty` tells which cells hold nothing; NaN and NaT hold nothing either.
    """

    def __init__(self, values: NDArray[Any], empty: NDArray[np.bool_] | None = None) -> None:
        """Hold cells as a NumPy array, with an optional mask of empty ones."""
        self._held: NDArray[Any] = values
        self._empty = empty if empty is not None and empty.any() else None

    def numbers(self) -> FloatArray:
        """Return the array of the cells itself, if it can be, or a copy."""
        if self._held.ndim != 1 or self._held.dtype.kind not in "biuf":
            return np.full(len(self), math.nan)
        if self._empty is None:
            return np.asarray(self._held, dtype=np.float64)
        return np.where(self._empty, math.nan, self._held)

    def empty(self) -> NDArray[np.bool_]:
        """Tell which cells of an array are marked as empty, NaN or NaT."""
        has_nan_type = self._held.dtype.kind in "fM" and self._held.ndim == 1
        found = np.isnan(self._held) if has_nan_type else np.zeros(len(self), dtype=bool)
        return found if self._empty is None else found | self._empty

    def among(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Compare cells of an array with the numbers among texts."""
        if self._held.dtype.kind in "iuf" and self._held.ndim == 1:
            return np.isin(self.numbers(), [number(text) for text in texts])
        return super().among(texts)

    def coded(self) -> tuple[IntArray, list[str]]:
        """Write distinct values of an array's cells as texts."""
        empty = self.empty()
        if self._held.ndim != 1:
            rows = zip(self._held.tolist(), empty, strict=True)
            return ListCells([None if none else row for row, none in rows]).coded()
        distinct, codes = np.unique(self._held, return_inverse=True)
        texts = [_text(value) for value in distinct.tolist()] if distinct.dtype.kind != "M" else _time_texts(distinct)
        codes = np.where(empty, len(texts), codes.astype(np.int64))
        return codes, [*texts, ""] if empty.any() else texts

    def times(self) -> NDArray[np.datetime64] | None:
        """Return the cells of an array of times in microseconds; None for other arrays."""
        if self._held.dtype.kind != "M":
            return None
        times = self._held.astype("datetime64[us]")
        return times if self._empty is None else np.where(self._empty, np.datetime64("NaT"), times)

    def vectors(self, length: int) -> FloatArray:
        """Return the array of vector cells itself, if it is of that length."""
        if self._held.ndim != 2:
            return super().vectors(length)
        if self._held.shape[1] != length:
            return np.full((len(self), length), math.nan)
        values = np.asarray(self._held, dtype=np.float64)
        return values if self._empty is None else np.where(self._empty[:, None], math.nan, values)

    def words(self, rows: slice = ALL) -> Words:
        """Return the bits of numbers in an array's cells; other cells are known by their texts."""
        if self._held.dtype.kind not in "iuf":
            return super().words(rows)
        return vector_words(self._held[rows]) if self._held.ndim == 2 else number_words(self.take(rows).numbers())

    def _stacked(self, parts: Sequence[Any]) -> Cells:
        """Concatenate cells in arrays, if their shapes and types agree."""
        if len({(part._held.shape[1:], part._held.dtype) for part in parts}) > 1:
            return super()._stacked(parts)
        empty = [np.zeros(len(part), dtype=bool) if part._empty is None else part._empty for part in parts]
        return ArrayCells(np.concatenate([part._held for part in parts]), np.concatenate(empty))

    def take(self, rows: Any) -> "ArrayCells":
        """Return the given rows of cells in an array."""
        return ArrayCells(self._held[rows], None if self._empty is None else self._empty[rows])


class ListCells(Cells):
    """Lists, of numbers if they are vectors, that are not all as long as each other, or None."""

    def __init__(self, lists: Sequence[Any]) -> None:
        """Hold cells that are lists of any length."""
        self._held: Sequence[Any] = lists

    def numbers(self) -> FloatArray:
        """Return NaN for each cell: a list is not a number."""
        return np.full(len(self), math.nan)

    def coded(self) -> tuple[IntArray, list[str]]:
        """Return cells that are lists as distinct texts."""
        return TextCells(["" if each is None else " ".join(map(repr, each)) for each in self._held]).coded()

    def vectors(self, length: int) -> FloatArray:
        """Return list cells of that length as vectors."""
        found = np.full((len(self), length), math.nan)
        for row, each in enumerate(self._held):
            if _is_vector(each) and len(each) == length:
                found[row] = [math.nan if value is None else value for value in each]
        return found

    def words(self, rows: slice = ALL) -> Words:
        """Return the words of list cells that are vectors; no cell's word depends on the length of others."""
        lists = self._held[rows]
        by_length: dict[int, list[int]] = {}
        for row, each in enumerate(lists):
            by_length.setdefault(len(each) if _is_vector(each) else -1, []).append(row)
        words = np.zeros(len(lists), dtype=np.uint64)
        for length, alike in by_length.items():
            own = ListCells([lists[row] for row in alike])
            words[alike] = super(ListCells, own).words() if length < 0 else vector_words(own.vectors(length))
        return words

    def take(self, rows: Any) -> "ListCells":
        """Return the given rows of list cells."""
        return ListCells([self._held[row] for row in np.arange(len(self))[rows].tolist()])


Table: TypeAlias = Mapping[str, Cells | Sequence[str] | NDArray[Any]]
"""Columns of cells by name."""


def as_cells(column: Cells | Sequence[str] | NDArray[Any]) -> Cells:
    """Return a column of texts, numbers or cells as cells."""
    if isinstance(column, Cells):
        return column
    if isinstance(column, np.ndarray) and column.dtype.kind in "biufM":
        return ArrayCells(column)
    return TextCells(column)  # type: ignore[arg-type]  # an array of texts will do


def joined(parts: Sequence[Cells]) -> Cells:
    """Concatenate the cells of a column's parts."""
    first = parts[0]
    if len(parts) == 1:
        return first
    are_alike = all(type(part) is type(first) for part in parts)
    return first._stacked(parts) if are_alike else Cells._stacked(first, parts)


def _is_vector(each: Any) -> bool:
    """Tell whether a list in a cell holds numbers only."""
    return each is not None and all(value is None or isinstance(value, int | float) for value in each)


def _lookup(of_distinct: Sequence[Any], codes: NDArray[Any], dtype: Any = bool) -> NDArray[Any]:
    """Return for each row of coded cells what was found for its text."""
    found: NDArray[Any] = np.asarray(of_distinct, dtype=dtype)[codes]
    return found


def _text(value: Any) -> str:
    """Return a value of an array's cell as text, spelled as in a CSV file."""
    if isinstance(value, bool):
        return str(value).lower()
    return number_text(float(value)) if isinstance(value, float) and math.isfinite(value) else str(value)


def _time_texts(times: NDArray[np.datetime64]) -> list[str]:
    """Return cells' times as ISO 8601 texts: dates at midnight, else date and time."""
    written = np.datetime_as_string(times.astype("datetime64[us]")).tolist()
    return [text.removesuffix("T00:00:00.000000").removesuffix(".000000") for text in written]
