"""Sums over records that are exact, and so the same in any order, on any number of threads, with any BLAS.

Every term is a whole multiple of one unit, and no partial sum reaches 2⁵³ units: products of matrices are then integer
arithmetic in doubles. `docs/proofs.md`, section Arithmetic, has the lemmas.
"""

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ringfence.protocol import FloatArray
from ringfence.protocol.arrays import row_norms
from ringfence.protocol.plan.effort import MOST_THREADS

ROW_BITS = 31
"""Fractional bits of numbers of at most 1 in sums."""

UNIT = 63
"""Sums are counted in multiples of 2⁻⁶³."""

_LIMB = 16
"""Bits of each of the two limbs of a factor."""

_RANGE = 100
"""Rows have norms between 2⁻¹⁰⁰ and 2¹⁰⁰: larger numbers are clipped, smaller ones vanish."""

_SHORT = 16
"""Numbers in a row: BLAS multiplies fewer than that by a single column slowly."""

_NUMBERS = 2**18
"""About how many numbers are processed at a time, so that they stay in a processor's cache."""

Counts = NDArray[Any]
"""Whole numbers of any size."""


@dataclass(frozen=True)
class Precision:
    """How a record's features are stored: how many bits, from the power of two above their norm, and in which type."""

    row_bits: int
    dtype: type[np.float64] | type[np.float32]


DOUBLE = Precision(ROW_BITS, np.float64)
SINGLE = Precision(24, np.float32)
"""A whole number of up to 2²⁴ times a power of two above 2⁻¹²⁵: single precision holds it as it is."""


def slack(terms: int) -> float:
    """Return the relative margin below a bound under which computed norms of that many numbers respect it exactly."""
    return (terms + 16) * 2.0**-52


def rounded_rows(rows: FloatArray, bits: int = ROW_BITS) -> FloatArray:
    """Return the rows, each rounded to the nearest multiple of 2^−bits times the power of two above its norm."""
    result = np.array(rows, dtype=np.float64, order="C")
    # Always: a server chooses axes, and the time would reveal whether any record is long along them.
    np.clip(result, -(2.0**_RANGE), 2.0**_RANGE, out=result)
    places = bits - exponents(row_norms(result))
    result *= np.ldexp(1.0, places)[:, None]
    np.rint(result, out=result)
    result *= np.ldexp(1.0, -places)[:, None]
    return result


def exponents(lengths: FloatArray) -> NDArray[np.intc]:
    """Return, for rows of these norms in exact sums, powers of two above every number of them."""
    return np.maximum(np.frexp(lengths)[1], -_RANGE)


def parts(count: int, width: int) -> Iterator[slice]:
    """Divide that many rows of that width into parts that an exact sum processes one after the other."""
    size = 32 * min(max(1, _NUMBERS // (32 * width)), 2**9)
    return (slice(begin, begin + size) for begin in range(0, count, size))


def limbs(weights: FloatArray) -> FloatArray:
    """Split weights into two addends of 20 bits, side by side, by which rounded rows can be multiplied exactly.

    The remainder is at most N·2⁻⁴⁰ of the norm of N weights.
    """
    found, rest = [], weights
    for _ in range(2):
        scale = np.frexp(np.max(np.abs(rest)))[1]  # else squares of large weights would overflow
        grid = np.ldexp(1.0, scale + np.frexp(np.sqrt(np.sum(np.ldexp(rest, -scale) ** 2)))[1] - 20)
        found.append(np.rint(rest / grid) * grid)
        rest = rest - found[-1]
    return np.concatenate(found, axis=1)


def outer_sum(terms: Iterable[tuple[FloatArray, FloatArray, Any]], bits: int = 32) -> Counts:
    """Return Σ outer(left, right) over records, in units of 2⁻⁶³; each of `terms` is about one of their `parts`.

    With a record's `exponent` e, `left` must be multiples of 2^(e − bits) and at most 2^e; `right` is clipped to
    at most 2^(1 − e), rounded towards zero to multiples of 2^(−31 − e), and 0 where it is not a number.
    """
    total: Any = 0
    held: Any = 0
    waiting, block = 0, 2 ** (53 - bits - _LIMB)
    for left, right, exponent in terms:
        up = np.broadcast_to(exponent, len(left))[:, None]
        scaled = np.where(np.isfinite(right), right, 0.0) * np.ldexp(2.0 ** (_LIMB - 1), up)
        np.clip(scaled, -(2.0**_LIMB), 2.0**_LIMB, out=scaled)
        high, back = np.trunc(scaled), np.ldexp(2.0**bits, -up)
        factors = np.concatenate([high, np.trunc((scaled - high) * 2.0**_LIMB)], axis=1) * back
        for a, b in zip(_blocks(left, block), _blocks(factors, block), strict=True):
            # A block adds up to 2⁵³ at most, and fewer than 2¹⁰ of them to what 64 bits hold.
            if waiting + len(a) >= 2**10:
                total, held, waiting = total + held.astype(object), 0, 0
            held = held + product(a.transpose(0, 2, 1), b).astype(np.int64).sum(axis=0)
            waiting += len(a)
    total = total + held.astype(object)
    width = total.shape[1] // 2
    result: Counts = ((total[:, :width] << _LIMB) + total[:, width:]) << (32 - bits)
    return result


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the product of matrices; of two columns one at a time, which BLAS does faster unless rows are short."""
    if right.shape[-1] != 2 or left.shape[-1] < _SHORT:
        return np.asarray(left @ right)
    return np.concatenate([left @ right[..., :1], left @ right[..., 1:]], axis=-1)


def _blocks(rows: FloatArray, size: int) -> list[FloatArray]:
    """Return the rows of an exact sum as an array of full blocks, if there is one, and a last block of the rest."""
    whole = len(rows) // size * size
    return [*([rows[:whole].reshape(-1, size, rows.shape[1])] if whole else []), rows[None, whole:]]


def quotient(total: Counts, divisor: int, scale: float = 1.0) -> FloatArray:
    """Return scale · total/divisor, of a total in units of 2⁻⁶³: computed exactly, then rounded to nearest once."""
    over, under = scale.as_integer_ratio()
    return np.asarray(total * over / (divisor * under << UNIT), dtype=np.float64)


def column_sums(values: FloatArray, chosen: FloatArray) -> Counts:
    """Add up the chosen rows of numbers of at most 1, each rounded towards zero to 31 bits, in units of 2⁻⁶³."""
    result: Counts = outer_sum((chosen[part, None], values[part], 0) for part in parts(*values.shape))[0]
    return result


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """Return the controller of BLAS threads, which would wait for each other at products as small as those of sums."""
    return ThreadpoolController().select(user_api="blas")


def sum_threads() -> int:
    """Return on how many threads sums go: OMP_NUM_THREADS, or one for each processor; at most MOST_THREADS."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return min(MOST_THREADS, int(stated) if stated.isdecimal() and int(stated) else os.cpu_count() or 1)


def sum_in_threads(tasks: Sequence[Callable[[], Counts]]) -> Counts:
    """Return the sum of the tasks' totals, on several threads, each of which multiplies matrices by itself."""
    threads = min(sum_threads(), len(tasks))
    with _blas().limit(limits=1), ThreadPoolExecutor(threads) as pool:
        run = map if threads == 1 else pool.map
        return reduce(operator.add, run(lambda task: copy_context().run(task), tasks))
