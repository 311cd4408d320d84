"""Lemma A13 of docs/proofs.md by interval arithmetic: the rounding errors of tails, over boxes of parameters.

Everything is in units of u = 2⁻⁵³ and of P(loss > e), and an upper bound. A profile's parameters fill a box of
intervals. Numbers that enter an error are enclosed over the whole box; those of the allowance, which rise or fall
with each parameter, are taken at the corner where the allowance is least.
"""

from collections.abc import Callable

import numpy as np
from flint import arb

from ringfence.accounting import pld
from ringfence.accounting.profiles import GaussianProfile

# The premise: relative errors of the libraries' functions, in u.
NUMPY, MATH, ERFCX = 8, 2, 16

FORMING = 2 * NUMPY + 10
"""Rounding while two neighbouring tails become masses: three differences, exp, expm1, a product, a quotient, sums."""

SECOND_ORDER = 1.05
"""Products of errors, which stay below 2⁻¹² of the errors, and the rounding of the allowance itself."""

FURTHEST = 26.0
"""Deviations beyond the further mean up to which the lemma holds: Φ(-26) < 1e-148."""

FEW, MANY = 30.0, 60.0
"""A Poisson profile with h beyond MANY is divided by x up to FEW, and beyond by x - h."""

LARGEST = 1e6  # accountant.LARGEST_SHIFT
LOG_ODDS = (-37.0, 28.0)  # ln((1-q)/q) of all rates from accountant.SMALLEST_RATE to 1 - 2⁻⁵³

Interval = tuple[float, float]
Bound = tuple[arb, arb, float]
"""The errors of δ(e) and of P(loss > e), and the allowance."""


def ndtr_error(t: arb) -> arb:
    """Bound the relative error of SciPy's Φ(-t): that of its argument counts t times as much."""
    return 12 + 3 * t * t


def enclosed(interval: Interval) -> arb:
    return arb(interval[0]).union(arb(interval[1]))


def log_tail(t: arb) -> arb:
    """Return ln Φ(-t); far out by the bounds of Birnbaum and Sampford on Mills' ratio."""
    if t < 30:
        return ((t / arb(2).sqrt()).erfc() / 2).log()
    mills = (2 / (t + (t * t + 4).sqrt())).union(4 / (3 * t + (t * t + 8).sqrt()))
    return -t * t / 2 - (2 * arb.pi()).log() / 2 + mills.log()


def hazard(t: arb) -> arb:
    """Bound φ(t)/Φ(-t) from above (Birnbaum); it rises in t."""
    return (t + (t * t + 4).sqrt()) / 2 if t > 0 else arb(0.8)


def softplus(t: arb) -> arb:
    return (1 + (-abs(t)).exp()).log() + (t + abs(t)) / 2


def logistic(t: arb) -> arb:
    return 1 / (1 + (-t).exp())


def mixed_tail(far: arb, near: arb, log_odds: arb) -> arb:
    """Return (1-q)Φ(-far) + qΦ(-near), q the rate of these log odds."""
    first, second = log_tail(far).exp(), log_tail(near).exp()
    return first + logistic(-log_odds) * (second - first)


def allowed(loss: arb, furthest: float, above: arb) -> float:
    """Return what the code allows for, at a loss and a tail that are as computed."""
    e, p = max(0.0, float(loss.lower())), float(above.upper())
    raised = pld.tail_rounding(GaussianProfile(furthest), np.array([e]), np.array([p]))
    return float(raised[0]) / p * 2.0**53


def gaussian_error(a: arb, s: arb) -> arb:
    """Bound the error of Φ(-a) - φ(a)m(b) for a loss that is exact, b = a + s.

    a errs by 2|a| + s/2 and b by 2b. Moved together they are the tails of a loss that errs by s times as much; what
    is left of b's error counts (1/m(b) - b) times, and (1/m(b) - b)b ≤ 1, |a| ≤ b, s/2 ≤ b.
    """
    factors = NUMPY + a * a / 2 + ERFCX + 4
    return ndtr_error(a) + factors + 5 + s * (2 * abs(a) + s / 2)


def gaussian_tail_error(a: arb, s: arb, furthest: float) -> arb:
    """Bound the error of Φ(-a) alone, a at most ``furthest``."""
    return ndtr_error(a) + hazard(arb(furthest)) * (2 * abs(a) + s / 2)


def gaussian(box: tuple[Interval, ...]) -> Bound | None:
    """Bound the error of a Gaussian profile at a = e/s - s/2; None where no loss is positive."""
    a, s = box
    if a[1] < -s[1] / 2:
        return None
    loss = arb(s[0]) * (arb(a[0]) + arb(s[0]) / 2)  # rises in both
    A, S = enclosed(a), enclosed(s)
    return gaussian_error(A, S), gaussian_tail_error(A, S, a[1]), allowed(loss, s[0], log_tail(arb(a[0])).exp())


def fixed_size(box: tuple[Interval, ...]) -> Bound | None:
    """Bound the error of a fixed-size profile at the a of its Gaussian loss g.

    (1-q)Φ(-b) enters both tails as the same number. An error of g moves q(Φ(-a) - φ(a)m(b)) by qφ(a)m(b) times as
    much. g errs by (2·NUMPY+1)g for losses up to 1, and beyond, where g ≥ 1 and g ≥ ln 1/q, by less than below.
    """
    a, s, odds = box
    if a[1] < -s[1] / 2:
        return None
    least = max(arb(0), arb(s[0]) * (arb(a[0]) + arb(s[0]) / 2))
    most = arb(s[1]) * (arb(a[1]) + arb(s[1]) / 2)
    far, near = log_tail(arb(a[1]) + arb(s[1])), log_tail(arb(a[1]))
    share = 1 / (1 + (arb(odds[0]) + far - near).exp())  # of qΦ(-a) in the tail: rises in a and s, falls in the odds
    least_share = 1 / (1 + (arb(odds[1]) + log_tail(arb(a[0]) + arb(s[0])) - log_tail(arb(a[0]))).exp())
    A, S = enclosed(a), enclosed(s)
    error = 2 + share * (gaussian_error(A, S) + 2 + (2 * NUMPY + 3) * most + 2 * NUMPY + 2)
    of_g = (4 * NUMPY + 5) * (abs(A) + S / 2)  # over s
    b = arb(a[1]) + arb(s[1])
    far_error = ndtr_error(A + S) + 3 + hazard(b) * (of_g + 2 * abs(b))
    near_error = gaussian_tail_error(A, S, a[1]) + 2 + hazard(arb(a[1])) * of_g
    of_p = share * near_error + (1 - least_share) * far_error
    loss = softplus(least - arb(odds[1])) - softplus(-arb(odds[1]))
    return error, of_p, allowed(loss, s[0], mixed_tail(arb(a[0]) + arb(s[0]), arb(a[0]), arb(odds[0])))


def poisson(box: tuple[Interval, ...]) -> Bound | None:
    """Bound the error of a Poisson profile at y = x - h, x ≥ 0; where h > MANY, x ≥ FEW."""
    y, h, odds = box
    start = FEW if h[0] >= MANY else 0.0
    if y[1] + h[1] < start:
        return None
    x = (max(start, y[0] + h[0]), y[1] + h[1])
    # The logarithm of the density ratio of N(h,1) to N(0,1), hx - h²/2 = h(y + h/2), rises in y and h, as x ≥ 0.
    up = -(arb(h[1]) ** 2) / 2 if y[0] < -h[0] else arb(h[0]) * (arb(y[0]) + arb(h[0]) / 2)
    return _poisson(x, (max(y[0], start - h[1]), y[1]), h, odds, (up, arb(h[1]) * (arb(y[1]) + arb(h[1]) / 2)))


def poisson_near_zero(box: tuple[Interval, ...]) -> Bound:
    """Bound the error of a Poisson profile at x ≤ FEW where h ≥ MANY, so that hx - h²/2 rises in x and falls in h."""
    x, h, odds = box
    up = (arb(h[1]) * (arb(x[0]) - arb(h[1]) / 2), arb(h[0]) * (arb(x[1]) - arb(h[0]) / 2))
    return _poisson(x, (x[0] - h[1], x[1] - h[0]), h, odds, up)


def _poisson(x: Interval, y: Interval, h: Interval, odds: Interval, up: tuple[arb, arb]) -> Bound:
    """Bound the error of a Poisson profile."""
    L, H, X, Y = map(enclosed, (odds, h, x, y))
    down = (arb(x[0]) * arb(h[0]) + arb(h[0]) ** 2 / 2, arb(x[1]) * arb(h[1]) + arb(h[1]) ** 2 / 2)
    loss = (softplus(up[0] - arb(odds[1])) - softplus(-down[0] - arb(odds[1])),
            softplus(up[1] - arb(odds[0])) - softplus(-down[1] - arb(odds[0])))  # fmt: skip
    inside = logistic(up[0] - arb(odds[1])).union(logistic(up[1] - arb(odds[0])))  # share in the density of P
    opposite = logistic(-down[0] - arb(odds[0]))  # most that the share in the density of Q can be

    # The share of qΦ(-y) in the tail: at fixed x as at fixed y it rises in the other and in h, and falls in the odds.
    least = 1 / (1 + (arb(odds[1]) + log_tail(arb(x[0])) - log_tail(arb(x[0]) - arb(h[0]))).exp())
    most = 1 / (1 + (arb(odds[0]) + log_tail(arb(x[1])) - log_tail(arb(x[1]) - arb(h[1]))).exp())
    near = least.union(most)
    of_p = (1 - near) * (ndtr_error(X) + 3) + near * (ndtr_error(Y) + 3 + abs(Y) * hazard(arb(y[1])))
    numerator = (1 - inside) * (NUMPY + X * X / 2 + 2) + inside * (NUMPY + 1.5 * Y * Y + 1) + 1
    mixed = opposite * (NUMPY + 1 + 2 * down[1])
    of_q = numerator + (ERFCX + 7 + mixed) + (2 + mixed) + 3
    # The threshold x: hx = e/2 + A, A = arsinh z, ln z = c + ln sinh(e/2), c = L + h²/2.
    of_c = 2 + (1 + MATH) * abs(L) + H * H
    z = (arb(odds[1]) + arb(h[1]) ** 2 / 2).exp() * (loss[1] / 2).sinh()
    A = (arb(x[0]) * arb(h[0]) - loss[1] / 2, min(arb(x[1]) * arb(h[1]) - loss[0] / 2, z))
    small_factor = of_c + 2 * NUMPY + 3
    small = A[1] * small_factor
    log_sinh = max(arb(0), arb(odds[1]) + arb(h[1]) ** 2 / 2) + 1  # ln(1 - e^-e) is no further below 0, as ln z ≥ 0
    large = of_c + 3 * NUMPY + 7 + 4 * A[1] + (NUMPY + 1) * log_sinh
    turn = arb(1).asinh()
    large_factor = large / max(turn, A[0])  # over A; in both cases x errs by (factor + 2)x, as hx ≥ A
    of_a = small if A[1] < turn else large if A[0] > turn else small.union(large)
    # An error of x makes the tails those of a loss that errs by d loss/dx, at most h(inside + opposite), as much.
    of_x = (inside + opposite) * (of_a + 2 * arb(x[1]) * arb(h[1]))
    tail = mixed_tail(arb(x[0]), arb(y[0]), arb(odds[0]))
    factor = small_factor if A[1] < turn else large_factor if A[0] > turn else small_factor.union(large_factor)
    density = (1 - near) * hazard(arb(x[1])) + near * hazard(arb(y[1]))
    return of_p + of_q + of_x, of_p + density * arb(x[1]) * (factor + 2), allowed(loss[0], h[0], tail)


def halves(interval: Interval) -> tuple[Interval, Interval]:
    """Divide an interval in the middle, or where its ends are of different size, by their geometric mean."""
    low, high = interval
    if low < 0 < high:
        middle = 0.0
    elif max(abs(low), abs(high)) > 4 * max(1.0, min(abs(low), abs(high))):
        size = max(1.0, (max(0.25, min(abs(low), abs(high))) * max(abs(low), abs(high))) ** 0.5)
        middle = size if high > 0 else -size
    else:
        middle = (low + high) / 2
    return (low, middle), (middle, high)


def first_uncovered(
    bound: Callable[[tuple[Interval, ...]], Bound | None], box: tuple[Interval, ...]
) -> tuple[Interval, ...] | None:
    """Divide the box until every part's error is proved to be covered; return a tiny part that is not, or None."""
    parts = [box]
    while parts:
        part = parts.pop()
        found = bound(part)
        if found is None:
            continue
        of_difference, of_tail, allowance = found
        if max(of_difference + FORMING, (of_tail + FORMING) / pld.TAIL_ERROR) * SECOND_ORDER < allowance:
            continue
        widths = [(high - low) / (1 + min(abs(low), abs(high)) / 2) for low, high in part]
        longest = max(range(len(part)), key=widths.__getitem__)
        if widths[longest] < 1e-3:
            return part
        parts += [(*part[:longest], half, *part[longest + 1 :]) for half in halves(part[longest])]
    return None
