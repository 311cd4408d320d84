"""Free text as hashed words: a dictionary of a public size, which no record had a say in."""

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.schema.columns.base import Problem, ReadColumn, Reading
from ringfence.sources.cells import Cells
from ringfence.sources.features.ngrams import NGrams, words_of


class Text(ReadColumn):
    """Words in any order, each counted, with a sign, at one of `words` places that its spelling decides.

    The counts are divided by their norm, so that a long text weighs as much as a short one: a cell's features have the
    norm `scale`, or 0 where it has no word. With `ngrams` 2 or more, sequences of that many words count as words too.
    """

    may_be_empty: ClassVar[bool] = True

    type: Literal["text"] = "text"
    words: int = Field(default=256, ge=2, le=2**20)
    ngrams: int | None = Field(default=None, ge=1, le=5)
    scale: float = Field(default=1.0, gt=0, le=1e6)

    @property
    def bound(self) -> float:
        """The norm of every text's features; the indicator is set only where all other features are 0."""
        return self.scale

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """Offset and unit of a text column's features, which are shares of words."""
        return ((0.0, 1.0 / self.scale),) * (self.words + bool(self.indicator))

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return a name for each place of a text column's hashed words."""
        return self._with_indicator(name, [f"{name}#{place}" for place in range(self.words)])

    def read(self, cells: Cells) -> tuple[Reading, list[Problem]]:
        """Return the features of texts: hashed shares of words."""
        empty = self._empty(cells)
        codes, distinct = cells.coded()
        counts = NGrams(length=self.words, words=self.ngrams or 1).counts(distinct)
        norms = np.sqrt(np.sum(counts * counts, axis=1, keepdims=True))
        counts *= self.scale / np.maximum(norms, TINY)
        features = counts[codes] if len(distinct) else counts
        if empty is not None:
            features[empty] = 0.0
        return Reading(features, empty), []

    def features(self, reading: Reading) -> FloatArray:
        """Return the features of texts, as they were read, and the indicator."""
        return self._indicated(reading.values, reading, self.scale)

    @classmethod
    def drafted(cls, cells: Cells, name: str) -> dict[str, Any] | None:
        """Accept columns as text in which most cells have three words or more."""
        codes, distinct = cells.coded()
        long = np.array([len(words_of(text)) > 2 for text in distinct], dtype=bool)
        return {"words": 256} if len(codes) and np.mean(long[codes]) > 0.5 else None
