"""64 bits that identify a cell: equal for a number and its text, so that files and tables agree."""

import hashlib
import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]

_EMPTY = np.uint64(0x9E3779B97F4A7C15)
"""The word of an empty cell."""


def mixed(words: Words, constant: np.uint64) -> Words:
    """Return 64-bit words of cells in which every bit depends on every bit given: one to one, and not secret."""
    words = words ^ constant
    words *= np.uint64(0xBF58476D1CE4E5B9)
    shifted = words >> np.uint64(29)
    words ^= shifted
    words *= np.uint64(0x94D049BB133111EB)
    np.right_shift(words, np.uint64(32), out=shifted)
    words ^= shifted
    return words


def vector_words(vectors: NDArray[Any]) -> Words:
    """Return a word for each vector, one per row."""
    words = np.zeros(len(vectors), dtype=np.uint64)
    for place, column in enumerate(vectors.T):
        words = mixed(words ^ number_words(np.asarray(column, dtype=np.float64)), np.uint64(2 * place + 1))
    return words


def number_words(values: NDArray[np.float64]) -> Words:
    """Return each number's bits; NaN is an empty cell."""
    bits = (values + 0.0).view(np.uint64)  # −0 becomes 0
    if np.isnan(values.min(initial=0.0)):
        bits[np.isnan(values)] = _EMPTY
    return bits


@lru_cache(maxsize=2**14)
def text_word(text: str, value: float) -> int:
    """Return a text's word: the bits of `value`, the number it spells, or a hash if that is NaN."""
    if not text:
        return int(_EMPTY)
    if not math.isnan(value):
        return int(np.float64(value + 0.0).view(np.uint64))
    return int.from_bytes(hashlib.blake2b(_as_arrays_have_it(text).encode(), digest_size=8).digest(), "little")


def _as_arrays_have_it(text: str) -> str:
    """Return a truth value or a point in time as an array would spell it; CSV files may spell it otherwise."""
    if text.lower() in ("true", "false"):
        return text.lower()
    if len(text) <= 10 or text[4] != "-":  # a date is written in one way
        return text
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return text
    return time.isoformat().removesuffix("T00:00:00")
