"""The two sections of a silo's records: most of them train, the others are held out for evaluation.

Which record is in which section goes by its number alone (a person's number, where persons are protected), by a public
rule: of every twenty records in a row, as many as the share says are held out, chosen by a hash of their numbers. No
record's values move it, or another, from one section to the other; and records that are added at the end move nobody.
"""

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Section: TypeAlias = Literal["training", "held-out"]

_BLOCK = 20


def members(section: Section | None, records: int, share: float | None) -> NDArray[np.int64]:
    """Return the numbers of the section's records; all of them where a plan does not divide them."""
    if section is None or share is None:
        return np.arange(records)
    return np.flatnonzero(_held_out(records, round(100 * share)) == (section == "held-out"))


@lru_cache(maxsize=2**16)  # a plan asks it of each silo several times
def size(section: Section | None, records: int, share: float | None) -> int:
    """Return how many records the section has."""
    if section is None or share is None:
        return records
    whole, percent = records // _BLOCK * _BLOCK, round(100 * share)
    held_out = whole * percent // 100 + int(np.count_nonzero(_held_out(records, percent, first=whole)))
    return held_out if section == "held-out" else records - held_out


def folds(records: int, count: int) -> NDArray[np.int64]:
    """Return which of that many sections (folds), about equally large, each record is in, from 0: by its number."""
    fold = np.empty(records, dtype=np.int64)
    fold[np.argsort(_hashed(np.arange(records, dtype=np.uint64)), kind="stable")] = np.arange(records) % count
    return fold


@lru_cache(maxsize=8)
def _held_out(records: int, percent: int, first: int = 0) -> NDArray[np.bool_]:
    """Return whether each record from `first` on, a multiple of the block, is in the held-out section."""
    blocks = np.arange(first // _BLOCK, -(-records // _BLOCK))
    numbers = _BLOCK * blocks[:, None] + np.arange(_BLOCK)
    places = np.argsort(np.argsort(_hashed(numbers.astype(np.uint64)), axis=1), axis=1)
    counts = _BLOCK * (blocks + 1) * percent // 100 - _BLOCK * blocks * percent // 100
    return (places < counts[:, None]).reshape(-1)[: records - first]


def _hashed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter records' numbers over sections, by SplitMix64's output function: blind to what rows mean, not secret."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
