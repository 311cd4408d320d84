"""Recognise a data set whose columns changed: samples of its distinct rows, by sets of the columns that models read.

A set is all these columns, or all but one class of them: those whose name's hash has a given remainder. A column is in
one class for each modulus, and the sets without that class are the same whether the column is there or not, and
whatever it holds. So one changed column always leaves sets to compare, and several do if they share a class.

Rows are sampled by a hash that is the same in every data set: kept are those below a limit, so that two data sets keep
the same ones. That limit depends only on how many rows there are, and the hashes stay in the process: a registry gets
what is computed from them with its secret key.
"""

import hashlib
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.sources.words import Words, mixed

MODULI = (2, 3, 7)
_MOST = 2**14
"""How many distinct rows of a set are kept in the process."""


class RowSample(NamedTuple):
    """The hashes, ascending and below 2^(64 − `level`), of the rows that occur as often as most rows do."""

    columns: int
    level: int
    hashes: Words

    def level_of(self, number: int) -> int:
        """Return the highest level at which that many rows are left, or its own."""
        return 64 - int(self.hashes[number - 1]).bit_length() if len(self.hashes) >= number else self.level

    def above(self, level: int) -> Words:
        """Return the hashes of the rows in a sample of this level, which is no lower."""
        return self.hashes[: np.searchsorted(self.hashes, _limit(level), "right")]


class ColumnSets:
    """The sets of some columns, and the rows of each that were sampled so far."""

    def __init__(self, names: Collection[str]) -> None:
        """Begin the samples of every set of at least two of these columns, and a third of them."""
        classes = [(modulus, rest) for modulus in MODULI for rest in range(modulus)]
        numbers = {name: int.from_bytes(hashlib.sha256(name.encode()).digest()[24:], "little") for name in names}
        self.places = {
            name: [0, *(1 + place for place, (modulus, rest) in enumerate(classes) if number % modulus == rest)]
            for name, number in numbers.items()
        }
        sets = {tuple(sorted(names)): 0} if names else {}
        for place in range(1, 1 + len(classes)):
            others = tuple(sorted(name for name in names if place not in self.places[name]))
            if len(others) >= max(2, len(numbers) / 3):
                sets.setdefault(others, place)
        self._samples = {place: _Sample() for place in sets.values()}
        self._sets = {hashlib.sha256("\0".join(own).encode()).hexdigest()[:16]: own for own in sets}
        self._sums = len(classes) + 1 if names else 0

    def sums(self, rows: int) -> Words:
        """Return zeros to which every column's words are added, at the column's places."""
        return np.zeros((self._sums, rows), dtype=np.uint64)

    def add(self, sums: Words) -> None:
        """Sample a chunk of rows, given the sum of the words of all columns, and of those of each class."""
        for place, sample in self._samples.items():
            sample.add(mixed(sums[0] - sums[place] if place else sums[0], np.uint64(len(sums))))

    def samples(self) -> dict[str, RowSample]:
        """Return what was sampled of each set, by the set's hash; that of all columns is first."""
        pairs = zip(self._sets.items(), self._samples.values(), strict=True)
        return {identity: sample.typical(len(own)) for (identity, own), sample in pairs}


class _Sample:
    """The distinct rows with the least hashes, as rows are read, and how often each occurred."""

    def __init__(self) -> None:
        self._level = 0
        self._hashes: Words = np.zeros(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, hashes: Words) -> None:
        """Count the rows below the limit, and lower it while there are too many."""
        own, counts = np.unique(hashes[hashes <= _limit(self._level)], return_counts=True)
        self._hashes, places = np.unique(np.concatenate([self._hashes, own]), return_inverse=True)
        self._counts = np.bincount(places, np.concatenate([self._counts, counts])).astype(np.int64)
        while len(self._hashes) > _MOST:
            self._level += 1
            kept = int(np.searchsorted(self._hashes, _limit(self._level), "right"))
            self._hashes, self._counts = self._hashes[:kept], self._counts[:kept]

    def typical(self, columns: int) -> RowSample:
        """Return the sampled rows that occur as often as most of them do."""
        return RowSample(columns, self._level, self._hashes[self._counts == most_common(self._counts)])


def most_common(counts: NDArray[np.int64]) -> int:
    """Return how often most distinct rows occur: once, or twice if a table holds every row twice."""
    return int(np.bincount(counts).argmax()) if len(counts) else 1


def _limit(level: int) -> np.uint64:
    """Return the largest hash of a sample of this level."""
    return np.uint64(2 ** (64 - level) - 1)
