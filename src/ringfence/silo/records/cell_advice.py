"""Advice on cells that fit a schema but may not mean what they say: for a table's owner, as it depends on records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FloatArray
from ringfence.protocol.arrays import pieces
from ringfence.protocol.schema.codes import (
    DIGITS,
    FEW,
    beyond_bounds,
    cells_hold,
    number_texts,
    outlying,
    token_line,
    token_texts,
)
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.protocol.schema.columns.categorical import OneOf
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.drafted_types import code_texts, common_codes, mended_synonyms
from ringfence.sources.cells import Cells, TextCells, joined

_AT_ONCE = 2**14
"""How many numbers are looked through at a time: once some are known, few others can be less or larger."""


class Advice(NamedTuple):
    """Advice on a column: what its cells hold, and codes for a missing value or synonyms to write."""

    name: str
    column: ReadColumn
    what: str
    codes: Sequence[str] = ()
    synonyms: Mapping[str, Sequence[str]] = {}


class NotableCells:
    """The cells of a column that decide what is advised, as its chunks are read; others are only counted.

    Of numbers these are cells that hold none, numbers beyond the bounds and common codes; and of the others, from which
    a code may be far, the least few and the largest. Of categories they are other texts.
    """

    def __init__(self, column: ReadColumn) -> None:
        """Begin with a column's type."""
        self.column, self.count = column, 0
        self._parts: list[Cells] = []
        self._least, self._largest = np.full(FEW + 1, np.inf), -np.inf
        self._codes = np.sort([*common_codes(column), *DIGITS]) if isinstance(column, Scaled) else np.zeros(0)

    def add(self, cells: Cells) -> None:
        """Keep what is notable of a chunk; cells that mark a missing value are not."""
        self.count += len(cells)
        held = cells.empty()
        if self.column.missing_tokens:
            held = held | cells.among(self.column.missing_tokens)
        cells = cells.take(~held) if held.any() else cells
        if isinstance(self.column, Scaled):
            values = self.column.values(cells)
            parts = [self._notable(self.column, values[part]) for part in pieces(len(values), _AT_ONCE)]
            notable = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
        elif isinstance(self.column, OneOf):
            places, distinct = cells.coded()
            notable = np.array([self.column.place(text) < 0 for text in distinct] or [False], dtype=bool)[places]
        else:
            return
        if notable.any():
            self._parts.append(cells.take(notable))

    def cells(self) -> Cells:
        """Return the notable cells of all chunks."""
        return joined(self._parts) if self._parts else TextCells([])

    def _notable(self, column: Scaled, values: FloatArray) -> NDArray[np.bool_]:
        """Return the mask of some rows' notable numbers."""
        codes = self._codes
        notable = ~((values >= column.low) & (values <= column.high))
        notable |= codes[np.minimum(np.searchsorted(codes, values), len(codes) - 1)] == values
        others = np.flatnonzero(~notable & ((values < self._least[-1]) | (values > self._largest)))
        distinct, first = np.unique(values[others], return_index=True)
        if distinct.size:
            self._least = np.unique([*self._least, *distinct[: FEW + 1]])[: FEW + 1]
            self._largest = max(self._largest, distinct[-1])
            notable[others[[*first[: FEW + 1], first[-1]]]] = True
        return notable


def advice_on(name: str, notable: NotableCells, has_role: bool) -> Iterator[Advice]:
    """Yield advice on codes for a missing value, categories in other capitals, and numbers that are clamped."""
    column, cells = notable.column, notable.cells()
    codes: list[float] = []
    if isinstance(column, Scaled):
        values = column.values(cells)
        read = np.isfinite(values)
        unread, values, common = cells.take(~read), values[read], common_codes(column)
        codes = sorted({*beyond_bounds(values, column.low, column.high, common), *outlying(values, common)})
        texts = code_texts(column, cells, codes)
    elif isinstance(column, OneOf):
        unread, texts = cells, []
    else:
        return
    texts += [*token_texts(unread), *number_texts(unread)]
    if texts:
        shown = " or ".join(f"'{text}'" for text in texts)
        yield Advice(name, column, f"{cells_hold(cells.among(texts))} {shown}, probably for a missing value", texts)
    if isinstance(column, OneOf) and (synonyms := mended_synonyms(column, unread)):
        mask = unread.among([spelling for own in synonyms.values() for spelling in own])
        yield Advice(name, column, f"{cells_hold(mask)} a category in other capitals", synonyms=synonyms)
    if isinstance(column, Scaled) and not has_role:
        values = values[~np.isin(values, codes)]
        below, above = np.count_nonzero(values < column.low), np.count_nonzero(values > column.high)
        if below + above:
            clamped = f"{below + above} of {notable.count} cells are beyond the bounds and are clamped"
            yield Advice(name, column, f"{clamped} ({below} below `lower`, {above} above `upper`)")


def sentences(tables: Sequence[Sequence[Advice]]) -> list[list[str]]:
    """Return the advice on each table as sentences; a line to write for a column is one for all tables."""
    codes: dict[str, dict[str, None]] = {}
    synonyms: dict[str, dict[str, dict[str, None]]] = {}
    for name, column, _, tokens, spellings in (each for table in tables for each in table):
        codes.setdefault(name, dict.fromkeys(column.missing_tokens or ())).update(dict.fromkeys(tokens))
        listed = synonyms.setdefault(name, {})
        for category, own in spellings.items():
            listed.setdefault(category, {}).update(dict.fromkeys(own))

    def sentence(advice: Advice) -> str:
        """Return what to do beside what was found."""
        begin = f"column '{advice.name}': {advice.what}"
        if advice.codes:
            also = "" if advice.column.may_be_empty else ", with a public `missing` value or `indicator = true`"
            line = token_line(list(codes[advice.name]))
            return f"{begin}. If the code book says so, write `{line}` for this column{also}."
        if advice.synonyms:
            line = ", ".join(
                f"{_quoted(category)} = {_quoted(list(own))}" for category, own in synonyms[advice.name].items()
            )
            return f"{begin}: write `synonyms = {{{line}}}` for this column, or correct the cells."
        return f"{begin}; if they are right, widen the bounds, from public knowledge."

    return [list(map(sentence, table)) for table in tables]


def _quoted(value: str | list[str]) -> str:
    """Return texts as TOML writes them."""
    return json.dumps(value, ensure_ascii=False)
