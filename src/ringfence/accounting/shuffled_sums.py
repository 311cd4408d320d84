"""What a shuffled sum of vectors costs. Every number is on the safe side.

P_vec, corrected: m vectors of l2 norm at most L are added up in ``levels`` g per coordinate, rounded at random by every
party, and carry Bin(T, 1/2) in each coordinate, with T = mb ``trials`` for b ``coins`` per vector. Replacing one vector
moves the exact sums by at most ``reach`` in l2 norm, which is g in exact arithmetic.

``binomial_shift`` finds a Gaussian release that is at least as telling; it composes with adaptive rounds. That an
analyst sees the total only holds exactly for unary bits that a shuffler mixes, and for additive shares up to
``mixing_distance``. Proofs, with the B, Z, c, h and c' of the code: docs/proofs.md, "What a shuffler hides".
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # loads its modules on first use: a running agent needs none of them

from ringfence.accounting.events import require_count, require_positive, require_probability
from ringfence.errors import AccountingError
from ringfence.protocol import FloatArray

_ROUNDING = 1 + 1e-9  # more than the relative rounding error of a step of Z, which is below 2e-10
_LARGE = 2**28  # trials beyond which Z is bounded on blocks of integers rather than computed at each
_BLOCKS = 2**16
_FURTHEST = 8.0  # standard deviations: the reach beyond which nothing is proved; it would cost more than any budget
_LEAST_SLACK = 1e-100  # per coordinate: far below any use, and well inside the range of floating point
MOST_TRIALS = 2**52
_MOST_PARTIES = 10_000  # of a mix: the recursion takes the square of this


def binomial_shift(*, reach: float, trials: int, dimension: int, slack: float) -> float:
    """Return μ for which the totals are no worse than N(μ,1) against N(0,1), plus ``slack``.

    ``reach`` bounds how far replacing one vector moves the sums of all coordinates, in l2 norm and in levels.
    Infinity where nothing is proved: too few ``trials`` for that reach, or for so small a slack.
    """
    reach, slack = require_positive("reach", reach), require_probability("slack", slack)
    trials, dimension = require_count("trials", trials), require_count("dimension", dimension)
    if trials > MOST_TRIALS:
        raise AccountingError(f"trials must be at most 2**52, but is {trials!r}; lower the coins or the levels.")
    if slack < dimension * _LEAST_SLACK:
        raise AccountingError(
            f"slack must be at least {_LEAST_SLACK:g} for each of the {dimension} coordinates, but is {slack!r}."
        )
    return _binomial_shift(reach, trials, dimension, slack)


@lru_cache(maxsize=4096)
def _binomial_shift(reach: float, trials: int, dimension: int, slack: float) -> float:
    """Return the shift of shuffled totals with binomial noise, from the steps of their coins."""
    return _steps(trials, slack / dimension).shift(reach, dimension)


@dataclass(frozen=True)
class _Steps:
    """How steep Z is: over cells of ``stride`` integers each, from the middle outwards."""

    stride: int
    inside: int  # cells that hold [(T+1)/2, t+1], where t is the last integer with B(t) > slack
    steepest: FloatArray  # by number of cells: the largest step of Z between integers in these cells
    chord_gap: FloatArray  # likewise: how far Z is from its chords
    slope: FloatArray  # likewise: the largest Z'

    def shift(self, reach: float, dimension: int) -> float:
        """Return min(c · reach + h√d, c' · reach), the shift of shuffled sums, over all cells within reach."""
        if reach > self.stride * len(self.steepest):  # and do not overflow
            return math.inf
        last = self.inside + math.ceil(reach / self.stride) - 1
        if last >= len(self.steepest):
            return math.inf
        by_steps = float(self.steepest[last] * reach + self.chord_gap[last] * math.sqrt(dimension))
        return min(by_steps, float(self.slope[last] * reach)) * _ROUNDING


@lru_cache(maxsize=8)  # a search over reaches comes back to few, of up to 3 MB each
def _steps(trials: int, slack: float) -> _Steps:
    """Return the steps of Z for Bin(``trials``, 1/2), as far as a reach of eight standard deviations needs them."""
    deviation = math.sqrt(trials) / 2
    tail = math.sqrt(2 * math.log(1 / slack))  # Hoeffding: B((T+1)/2 + tail · deviation) < slack
    usable = (tail + _FURTHEST) * deviation
    return _few(trials, slack, usable) if trials <= _LARGE else _many(trials, tail * deviation, usable)


def _few(trials: int, slack: float, usable: float) -> _Steps:
    """Compute Z for few coins, at every integer from the middle outwards."""
    first = (trials + 1) // 2
    # So far out that what is left off is below 1e-17 of B at the end of what is used. Leaving it off lowers B.
    top = min(trials, first + math.ceil(math.sqrt(usable**2 + 20 * trials)))
    k = np.arange(first, top, dtype=np.float64)
    mass = np.cumprod(np.concatenate([[1.0], (trials - k) / (k + 1)]))  # proportional to P(Bin = k), k = first..top
    mass /= 2 * mass.sum() - (mass[0] if trials % 2 == 0 else 0.0)  # by symmetry the other half weighs as much
    above = np.cumsum(mass[::-1])[::-1]  # B(k), smallest terms first
    z = -scipy.special.ndtri(above)
    steps = np.diff(z)[: math.ceil(usable)]
    slopes = (mass[:-1] / _density(z[1:]))[: len(steps)]  # Z' is largest at the outer end of a cell
    gaps = slopes**2 * z[1 : len(steps) + 1] / 8
    inside = max(1, int(np.count_nonzero(above > slack)))
    return _Steps(1, inside, *(np.maximum.accumulate(each) for each in (steps, gaps, slopes)))


def _many(trials: int, tail: float, usable: float) -> _Steps:
    """Bound Z' on blocks: in the block [k₁, k₂] it is at most P(Bin = k₁)/φ(Z(k₂)), and B(k) ≥ Σ size · P(Bin = k₂)."""
    first = (trials + 1) // 2
    stride = math.ceil(math.sqrt(usable**2 + 20 * trials) / _BLOCKS)
    k = first + stride * np.arange(_BLOCKS + 1, dtype=np.float64)
    u = (2 * k - trials) / trials
    # Stirling, with the first term of its series: the second is below 1e-25 here.
    correction = (1 / trials - 1 / k - 1 / (trials - k)) / 12
    log_mass = -trials * (u * np.arctanh(u) + np.log1p(-u * u) / 2) + correction
    mass = np.exp(log_mass) / np.sqrt(math.pi * trials / 2 * (1 - u * u))
    above = stride * np.cumsum(mass[:0:-1])[::-1]  # a lower bound of B at every k but the last
    z = -scipy.special.ndtri(above)
    slopes = (mass[: len(z) - 1] / _density(z[1:]))[: math.ceil(usable / stride)]
    steepest = np.maximum.accumulate(slopes)
    return _Steps(stride, math.ceil((tail + 1) / stride), steepest, np.zeros(len(slopes)), steepest)


def _density(z: FloatArray) -> FloatArray:
    """Return the standard normal density φ, to bound steps of shuffled sums' coins."""
    return np.asarray(np.exp(-z * z / 2) / math.sqrt(2 * math.pi))


def mixing_distance(*, parties: int, shares: int, bits: int) -> float:
    """Return how far the shuffled shares of a sum are, at most, from a simulation that knows the total alone.

    Each of that many ``parties`` holds an element of an abelian group of 2^``bits`` elements and sends ``shares``,
    uniform among those that add up to it; a shuffler permutes all of them. The distance is in total variation: two
    inputs with the same total are at most twice that apart. Other parties' shares in the mix do no harm, even if they
    are known: count the parties that keep theirs to themselves. The recursion over x(n) is proved in docs/proofs.md.
    """
    n, k, bits = require_count("parties", parties), require_count("shares", shares), require_count("bits", bits)
    if n > _MOST_PARTIES:
        raise AccountingError(
            f"{n} parties are more than the {_MOST_PARTIES} that can be accounted for; combine some of them first."
        )
    return _mixing_distance(n, k, bits)


@lru_cache(maxsize=256)
def _mixing_distance(n: int, k: int, bits: int) -> float:
    """Return the distance for n parties and k shares of a shuffled sum."""
    if n == 1:
        return 0.0
    counts = np.arange(n + 1, dtype=np.float64)
    factorial, matchings = scipy.special.gammaln(counts + 1), scipy.special.gammaln(k * counts + 1)
    log_group = bits * math.log(2)
    one_plus = np.zeros(n + 1)  # ln(1 + x(j)), by j
    log_x = -math.inf
    for j in range(2, n + 1):
        s = slice(1, j)  # the parties in the first component; the others, j - s, run backwards
        # C(j-1, s-1) C(j, s) = C(j, s)² s/j
        choices = 2 * (factorial[j] - factorial[s] - factorial[j - 1 : 0 : -1]) + np.log(counts[s] / j)
        fewer = matchings[s] + matchings[j - 1 : 0 : -1] - matchings[j]
        log_x = float(np.logaddexp.reduce(choices + fewer + one_plus[j - 1 : 0 : -1])) + log_group
        one_plus[j] = np.logaddexp(0.0, log_x)
    log_x += 1e-4  # more than the rounding of all these logarithms
    return min(1.0, math.exp(min(log_x, 2.0) / 2) / 2)
