"""Columns of many features: vectors from a public, frozen extractor, and words hashed into a public dictionary."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ringfence.protocol.arrays import TINY, FloatArray, row_norms, without_negligible
from ringfence.protocol.public import Digest
from ringfence.protocol.schema.columns.base import Problem, ReadColumn, Reading
from ringfence.sources.cells import Cells
from ringfence.sources.features.ngrams import NGrams


class _OfNorm(ReadColumn):
    """A column whose features together have a norm of at most `scale`."""

    scale: float = Field(default=1.0, gt=0, le=1e6)

    @property
    def bound(self) -> float:
        """The largest norm of the features; the indicator is set only where all other features are 0."""
        return self.scale

    def features(self, reading: Reading) -> FloatArray:
        """Return the features, as they were read, and the indicator."""
        return self.with_indicator(reading.values, reading, self.scale)


class Vector(_OfNorm):
    """`length` numbers that a public `extractor` made of a record, whatever that is: an image, a text, a signal.

    A vector longer than `norm` is clipped to it; then all are divided by it, so that none is longer than `scale`. The
    extractor is public and frozen: it does not depend on private records. `digest` is the SHA-256 of its file, so that
    a plan states which features it uses.
    """

    open_fields: ClassVar[Mapping[str, str]] = {
        "length": "how many numbers a vector has",
        "norm": "the norm that longer vectors are clipped to",
        "extractor": "the name of the public extractor that made the vectors",
        "digest": "the SHA-256 of the extractor's file, in hexadecimal",
    }

    type: Literal["vector"] = "vector"
    length: int = Field(ge=1, le=1_000_000)
    norm: float = Field(gt=0, le=1e12)
    extractor: str = Field(min_length=1, max_length=200)
    digest: Digest

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the extractor of a vector column."""
        return (self.extractor,)

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """Offset and unit of each entry of a vector: a number of `norm`/`scale` becomes 1."""
        indicator = ((0.0, 1.0 / self.scale),) if self.indicator else ()
        return ((0.0, self.norm / self.scale),) * self.length + indicator

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return a name for each place of a vector."""
        return self.with_indicator_name(name, [f"{name}[{place}]" for place in range(self.length)])

    def read(self, cells: Cells) -> tuple[Reading, list[Problem]]:
        """Return clipped and scaled vectors; zeros for an empty cell, if the schema allows it."""
        vectors, empty, problems = self._filled(cells)
        with np.errstate(over="ignore", invalid="ignore"):  # too long to square: it becomes 0; no vector: it is refused
            norms = row_norms(vectors)
            scaled = vectors * (self.scale / np.maximum(norms, self.norm))[:, None]
        return Reading(without_negligible(scaled), empty), problems

    def _filled(self, cells: Cells) -> tuple[FloatArray, NDArray[np.bool_] | None, list[Problem]]:
        """Return vectors with zeros for empty cells, the mask of empty cells, and problems."""
        vectors = cells.vectors(self.length)
        wrong: NDArray[np.bool_] = ~np.asarray(np.isfinite(vectors).all(axis=1))
        empty = self._empty(cells) if wrong.any() else None
        if empty is not None:
            vectors = np.where(empty[:, None], 0.0, vectors)
        what = f"this is not a vector of {self.length} finite numbers; make it again with the schema's extractor"
        return vectors, empty, self._problems(empty, wrong, what)

    def plain(self, cells: Cells) -> FloatArray:
        """Return vectors as they stand, neither clipped nor scaled."""
        vectors, empty, _ = self._filled(cells)
        return self.with_indicator(vectors, Reading(vectors, empty))


class Text(_OfNorm):
    """Words in any order, each counted, with a sign, at one of `words` places that its spelling decides.

    The counts are divided by their norm, so that a long text weighs as much as a short one: a cell's features have the
    norm `scale`, or 0 where it has no word. With `ngrams` 2 or more, sequences of that many words count as words too.
    """

    may_be_empty: ClassVar[bool] = True

    type: Literal["text"] = "text"
    words: int = Field(default=256, ge=2, le=2**20)
    ngrams: int | None = Field(default=None, ge=1, le=5)

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """Offset and unit of a text column's features, which are shares of words."""
        return ((0.0, 1.0 / self.scale),) * (self.words + bool(self.indicator))

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return a name for each place of a text column's hashed words."""
        return self.with_indicator_name(name, [f"{name}#{place}" for place in range(self.words)])

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
