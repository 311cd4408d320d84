"""What shuffling buys for messages with local Gaussian noise (Shuffled Noisy MB-SGD), by numerical amplification.

Each of m records sends one vector of l2 norm at most L with noise N(0, σ²I), and a shuffler permutes the m messages.
For most budgets a shuffled vector sum (``shuffled_sums``) needs far less noise; this is the accounting of the method in
the paper. It is about exact arithmetic.

*Clones* (Feldman, McMillan & Talwar 2020). Let neighbours differ in the first record, x₀ or x₁, and let its outputs
R(x₀), R(x₁) be pure ε₀-indistinguishable. Then R(x₀) = (e^ε₀ Q₀ + Q₁)/(e^ε₀ + 1), and R(x₁) with Q₀, Q₁ exchanged
(Kairouz, Oh & Viswanath 2015). If every other output R(xᵢ) is at least ½e^-ε₀ (R(x₀) + R(x₁)) = ½e^-ε₀ (Q₀ + Q₁), it is
with probability e^-ε₀ a clone: drawn from Q₀ or Q₁, by a fair coin. So the shuffled messages are a randomized function
of how many came from Q₀ and from Q₁: with C ~ Bin(m-1, e^-ε₀), A ~ Bin(C, 1/2) and Δ ~ Bernoulli(e^ε₀/(e^ε₀ + 1)), of
(A + Δ, C - A + 1 - Δ) for x₀ and of (A + 1 - Δ, C - A + Δ) for x₁. ``clones_delta`` is the divergence of these two.

*Gaussian messages* are not pure but (ε₀, δ₀)-indistinguishable. (1) Two such outputs are within δ₀/(e^ε₀ + 1) in total
variation of two pure ones, R'(x₀) and R'(x₁): by Kairouz, Oh & Viswanath they are a function of a pair on four points,
of which one has the mass δ₀ on a point where the other has none, and conversely; each moving δ₀/(e^ε₀ + 1) of it to
the other's point makes the pair pure. (2) The part of e^-ε₀ R(x_b) that exceeds R(xᵢ) has mass at most e^-ε₀ δ₀, so
the part of ½e^-ε₀ (R'(x₀) + R'(x₁)) that does has at most e^-ε₀ δ₀ (1 + 1/(e^ε₀ + 1)). Raising R(xᵢ) by that part, and
lowering it elsewhere by as much, makes it clone. All m messages together are thus within

    t = δ₀/(e^ε₀ + 1) + (m-1) e^-ε₀ δ₀ (1 + 1/(e^ε₀ + 1)) ≤ (1 + e^-ε₀/2) m δ₀

of messages to which the clones' bound applies, and δ(ε) ≤ clones_delta(ε) + (1 + e^ε) t. ∎ (The last expression is the
published one. The bounds of 2022 are not used: they have an erratum for randomizers that are not pure.)
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import betainc, gammaln

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.events import require_count, require_positive, require_probability
from ringfence.accounting.profiles import gaussian_delta
from ringfence.errors import AccountingError

__all__ = [
    "clones_delta",
    "clones_epsilon",
    "gaussian_local",
    "repeated_delta",
    "shuffled_gaussian_delta",
    "shuffled_gaussian_noise",
]

Floats = NDArray[np.float64]

_ROUNDING = 1 + 1e-9  # more than the rounding of the sums of positive terms below
_TAILS = 1e-11  # more than the relative error of a binomial's tail, which is below 1e-12 at 1e9 messages
_BLOCKS = 400  # of numbers of clones; more are tighter and slower
_SPLITS = (0.2, 0.5, 0.8)  # of delta, between the composition of rounds and the rounds
_MOST_MESSAGES = 10**9
_MOST_EPSILON = 500.0  # beyond which nothing is protected, and exponentials overflow


def clones_delta(epsilon0: float, messages: int, epsilon: float) -> float:
    """Return δ(ε) after shuffling ``messages`` outputs of pure ``epsilon0``-DP randomizers, from above.

    Given C = c, the divergence is that of A + Δ against A + 1 - Δ, A ~ Bin(c, 1/2), whose best test is a threshold; it
    falls in c, as one more clone only adds a coin. So a block of c's is bounded by its first.
    """
    require_positive("epsilon0", epsilon0)
    _require_epsilon("epsilon0", epsilon0)
    _require_epsilon("epsilon", epsilon)
    if require_count("messages", messages) > _MOST_MESSAGES:
        raise AccountingError(
            f"At most {_MOST_MESSAGES} messages can be accounted for, but there are {messages}. Use fewer."
        )
    return _clones_delta(float(epsilon0), messages, float(epsilon))


def _require_epsilon(name: str, value: float) -> None:
    if not 0 <= value <= _MOST_EPSILON:
        raise AccountingError(f"{name} must lie between 0 and {_MOST_EPSILON:g}, but is {value!r}.")


@lru_cache(maxsize=4096)
def _clones_delta(epsilon0: float, messages: int, epsilon: float) -> float:
    if epsilon >= epsilon0:  # pure privacy, whatever the shuffler does
        return 0.0
    others, rate = messages - 1, math.exp(-epsilon0)
    mean, deviation = others * rate, math.sqrt(others * rate * (1 - rate))
    low, high = max(0, math.floor(mean - 12 * deviation)), min(others, math.ceil(mean + 12 * deviation))
    clones = np.unique(np.append(np.linspace(low, high, _BLOCKS).astype(np.int64), 0))
    # How likely each block is, from whichever tail is small.
    starts = clones[1:].astype(np.float64)
    below = np.append(betainc(others + 1 - starts, starts, 1 - rate), 1.0)
    above = np.append(betainc(starts, others + 1 - starts, rate), 0.0)
    from_below, from_above = np.diff(below, prepend=0.0), -np.diff(above, prepend=1.0)
    weights = np.maximum(np.where(np.append(clones[1:], others + 1) < mean, from_below, from_above), 0.0)
    # P - e^ε Q has at the count j the mass gain · P(A = j-1) - loss · P(A = j), positive beyond a cut.
    gain = -math.expm1(epsilon - epsilon0) / (1 + rate)
    loss = (math.exp(epsilon) - rate) / (1 + rate)
    cut = np.floor((clones + 1.0) * (loss / (gain + loss)))
    divergence = np.zeros(len(clones))
    for j in (cut, cut + 1, cut + 2):  # in case rounding moved the cut: each is a test, and the best counts
        above_p, above_q = gain * _at_least(j - 1, clones), loss * _at_least(j, clones)
        divergence = np.maximum(divergence, above_p - above_q + _TAILS * (above_p + above_q))
    return min(1.0, float(weights @ divergence) * _ROUNDING)


def _at_least(j: Floats, clones: NDArray[np.int64]) -> Floats:
    """Return P(Bin(c, 1/2) ≥ j) for each c in ``clones``."""
    inside = np.clip(j, 1, np.maximum(clones, 1))
    tail = betainc(inside, np.maximum(clones, 1) + 1 - inside, 0.5)
    probability: Floats = np.where(j <= 0, 1.0, np.where(j > clones, 0.0, tail))
    return probability


def clones_epsilon(epsilon0: float, messages: int, delta: float) -> float:
    """Return the least ε, to nine digits and rounded up, with ``clones_delta(epsilon0, messages, ε) <= delta``."""
    require_probability("delta", delta)
    return _least(
        lambda epsilon: clones_delta(epsilon0, messages, epsilon) <= delta, require_positive("epsilon0", epsilon0)
    )


def gaussian_local(shift: float, epsilon0: float) -> float:
    """Return the δ₀ with which one message, shifted by ``shift`` standard deviations of its noise, is (ε₀, δ₀)-DP."""
    return gaussian_delta(require_positive("shift", shift), require_positive("epsilon0", epsilon0))


def shuffled_gaussian_delta(*, shift: float, messages: int, epsilon: float) -> float:
    """Return the δ of one round of shuffled Gaussian messages at ``epsilon``, by the best ε₀ that is found."""
    require_count("messages", messages)
    shift, start = require_positive("shift", shift), math.log(require_positive("epsilon", epsilon))
    _require_epsilon("epsilon", epsilon)

    def delta(log_epsilon0: float) -> float:
        epsilon0 = min(math.exp(log_epsilon0), _MOST_EPSILON)
        local = _correction(epsilon0, messages, epsilon) * gaussian_local(shift, epsilon0)
        return clones_delta(epsilon0, messages, epsilon) + local

    # From no amplification to ten times the Gaussian's own scale. Every ε₀ proves something, so none has to be best.
    grid = np.linspace(start, min(max(start + 1, math.log(10 * shift)), math.log(_MOST_EPSILON)), 40)
    best = min(range(40), key=lambda i: delta(float(grid[i])))
    around = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 39)]))
    refined = float(minimize_scalar(delta, bounds=around, method="bounded", options={"xatol": 1e-6}).x)
    return min(1.0, delta(float(grid[best])), delta(refined))


def _correction(epsilon0: float, messages: int, epsilon: float) -> float:
    """Return (1 + e^ε) t / δ₀: what the messages' δ₀ costs the shuffled round."""
    rate = math.exp(-epsilon0)
    own = rate / (1 + rate)
    return (1 + math.exp(epsilon)) * (own + (messages - 1) * rate * (1 + own)) * _ROUNDING


def repeated_delta(*, epsilon_each: float, delta_each: float, rounds: int, epsilon: float) -> float:
    """Return the δ at ``epsilon`` of adaptive ``rounds``, each (``epsilon_each``, ``delta_each``)-DP: exact.

    1 - (1-δ̂)^R (1 - δ'), δ' the divergence of R randomized responses (Kairouz, Oh & Viswanath 2015): with probability
    C(R,l) e^{lε̂}/(1+e^ε̂)^R the loss is (2l-R)ε̂.
    """
    each, R = require_positive("epsilon_each", epsilon_each), require_count("rounds", rounds)
    _require_epsilon("epsilon", epsilon)
    if not 0 <= delta_each <= 1:
        raise AccountingError(f"delta_each must lie between 0 and 1, but is {delta_each!r}.")
    if delta_each == 1:
        return 1.0
    answers = np.arange(R + 1.0)
    losses = (2 * answers - R) * each
    log_mass = gammaln(R + 1) - gammaln(answers + 1) - gammaln(R - answers + 1) - (R - answers) * each
    mass = np.exp(log_mass - R * math.log1p(math.exp(-each)))
    excess = np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)
    responses = min(1.0, float(mass @ excess) * (1 + 1e-8))  # more than the rounding of the logarithms of factorials
    return -math.expm1(R * math.log1p(-delta_each)) * (1 - responses) + responses


def shuffled_gaussian_noise(*, messages: int, rounds: int, epsilon: float, delta: float, clip: float) -> float:
    """Return a standard deviation per message with which ``rounds`` rounds of shuffled messages are (ε, δ)-DP.

    Each round every one of ``messages`` records sends a vector of norm at most ``clip``. The least that is found over
    how δ is divided and over ε₀; what is returned is proved. Refused where it is no less than the same records would
    need without any shuffler: a cross-silo number of messages does not hide anyone.
    """
    m, R = require_count("messages", messages), require_count("rounds", rounds)
    epsilon, delta = require_positive("epsilon", epsilon), require_probability("delta", delta)
    clip = require_positive("clip", clip)
    _require_epsilon("epsilon", epsilon)
    local = gaussian_shift(epsilon, delta) / math.sqrt(R)
    shift = _largest_shift(m, R, epsilon, delta)
    if shift > local:
        return 2 * clip / shift
    enough = m
    while enough <= _MOST_MESSAGES and _largest_shift(enough, R, epsilon, delta) <= local:
        enough *= 2
    needed = (
        f"About {enough} messages a round would be needed"
        if enough <= _MOST_MESSAGES
        else f"Not even {_MOST_MESSAGES} would be enough"
    )
    raise AccountingError(
        f"Shuffling {m} messages in each of {R} rounds proves no more at epsilon {epsilon:g} than their own noise does "
        f"without a shuffler. {needed}. Use a plan that trusts the shuffler with a vector sum, which needs far less "
        "noise, or one that does not rely on the shuffler."
    )


@lru_cache(maxsize=256)
def _largest_shift(messages: int, rounds: int, epsilon: float, delta: float) -> float:
    """Return the largest shift per message and round that is found to meet the budget."""
    best = 0.0
    for split in _SPLITS if rounds > 1 else (0.0,):
        # δ' of the composition takes this part, and the rounds' own share the rest.
        each = epsilon if rounds == 1 else _most_each(rounds, epsilon, split * delta)
        per_round = -math.expm1(math.log1p(-delta * (1 - split)) / rounds)
        best = max(best, _largest_round_shift(messages, each, per_round))
    return best


def _most_each(rounds: int, epsilon: float, delta: float) -> float:
    """Return the largest ε̂, rounded down, of which ``rounds`` are (ε, δ)-DP."""

    def exceeds(each: float) -> bool:
        return repeated_delta(epsilon_each=each, delta_each=0.0, rounds=rounds, epsilon=epsilon) > delta

    return _least(exceeds, 2 * epsilon) * (1 - 1e-8) if exceeds(2 * epsilon) else epsilon / rounds


def _largest_round_shift(messages: int, epsilon: float, delta: float) -> float:
    """Return the largest shift for one round: over ε₀, what ``clones_delta`` leaves of δ is for the messages' δ₀."""
    ceiling = epsilon
    while ceiling < _MOST_EPSILON and clones_delta(ceiling, messages, epsilon) < delta:
        ceiling = min(2 * ceiling, _MOST_EPSILON)
    most = _least(lambda e0: clones_delta(e0, messages, epsilon) >= delta, ceiling)
    best = 0.0
    for epsilon0 in map(float, np.geomspace(epsilon, most, 60)):
        left = delta - clones_delta(epsilon0, messages, epsilon)
        delta0 = left / _correction(epsilon0, messages, epsilon)
        if delta0 > 1e-300:
            best = max(best, gaussian_shift(epsilon0, min(delta0, 0.5)))
    return best


def _least(holds: Callable[[float], bool], high: float) -> float:
    """Return the least number, to nine digits, from which on a condition holds that holds at ``high``."""
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
