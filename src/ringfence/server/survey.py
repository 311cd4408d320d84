"""What the server decides before training: axes, clip, step and start, by a survey of feature moments or without one.

The choice minimises what is expected of the final scores' error, from public numbers and noisy answers alone: what
descent leaves of the signal, what noise it gathers, and what cutting gradients shifts. Nobody knows how the signal
lies; weights along the whitened axes are thought to be of one size, so that the signal's share along an axis is that of
the second moments. That, and the sizes named below, are the only assumptions.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ringfence.protocol.algorithms import Preconditioned
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes
from ringfence.protocol.losses import LogLink, Loss
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions.feature_moments import MOVED
from ringfence.server.metric import Found, Whitened, edge_of, expected_directions, expected_main_direction

EXPLAINED = 0.5
"""The share of a numeric target's variance that is thought to be explained."""

SCORE_VARIANCE = 4.0
"""The variance that the scores of labels are thought to have: most probabilities then lie between .1 and .9."""

CLASS_VARIANCE = 1.0
"""The variance that the log odds of several classes are thought to have among each other."""

DEVIATIONS = 3.0
"""How many standard deviations a number's bounds are thought to lie from its mean, where nobody asked."""

MEDIAN_GAP = 1.0 - math.log(2.0)
"""How far the median lies from the mean of an exponential distribution, in standard deviations: what a hard cut may
shift a skewed target's prediction by."""

STEPS = (0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5)
"""Steps that are compared, in units of 1/β along whitened axes."""

SAME_ERROR = 0.01
"""Squared errors of several classes' scores that differ by less are the same: a four-hundredth of `SCORE_VARIANCE`."""


def points_averaged(loss: Loss, rounds: int) -> int:
    """Return of how many last points the mean is the model: half of them, as in suffix averaging, or only the last.

    A mean lags behind, which costs little once steps have arrived. With a score for each class they are still on their
    way: the likelier a class becomes, the less the loss curves.
    """
    return 1 if loss.target_kind == "class" else max(1, rounds // 2)


@dataclass(frozen=True)
class Target:
    """What is known of the target: the best constant score for each output, its error's variance, and its spread.

    `spread` is the standard deviation of a number, and 1 for labels; `imbalance` what a cut at 0 would shift two
    labels' gradient by. `bend` is the curvature of a number's loss at the centre.
    """

    centre: FloatArray
    uncertainty: float
    spread: float = 1.0
    imbalance: float = 0.0
    bend: float = 1.0

    @property
    def shares(self) -> FloatArray:
        """The shares of several classes if everybody has the centre's scores."""
        odds = np.exp(self.centre - np.max(self.centre))
        result: FloatArray = odds / np.sum(odds)
        return result


def expected_target(plan: Plan) -> Target:
    """Return what is thought of a target that nobody asked about: its centre is the middle, or even odds.

    Bounds of a number are thought to lie three standard deviations to either side of its mean; mean and deviation
    together make up the second moment of numbers that are spread evenly over the bounds. The log odds of labels are as
    uncertain as scores are.
    """
    loss, bound = plan.loss, plan.data.target_bound
    centre = np.zeros(loss.outputs)
    if loss.target_kind == "number":
        spread = bound / DEVIATIONS
        return Target(centre, bound**2 / 3 - spread**2, spread)
    if loss.outputs > 1:
        return Target(centre, CLASS_VARIANCE)
    p = _probabilities()
    return Target(centre, SCORE_VARIANCE, 1.0, _on_average(np.abs(1 - 2 * p) * np.minimum(p, 1 - p)))


def of_number(shares: FloatArray, edges: FloatArray, noise: float) -> Target:
    """Return centre and spread of a number from noisy shares of the parts of a window."""
    middles, gap = (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])
    likely = on_simplex(shares)
    centre = float(likely @ middles)
    variance = float(likely @ (middles - centre) ** 2) + gap**2 / 12
    half = (edges[-1] - edges[0]) / 2
    error = min(noise * math.sqrt(float(np.sum((middles - middles.mean()) ** 2))), half / 2)
    return Target(np.array([centre]), error**2, math.sqrt(variance))


def of_scores(plan: Plan, target: Target) -> Target:
    """Return what is known of a number as scores have it: of a log link, which are the logarithm of its mean.

    To first order a logarithm errs, and is spread, by the number's error and spread in units of the mean m. The server
    does not know the records' offsets, which are thought to be spread evenly over their range.
    """
    loss = plan.loss
    if not isinstance(loss, LogLink):
        return target
    mean = float(target.centre[0]) - loss.zero
    uncertainty = target.uncertainty / mean**2 + plan.data.offset_bound**2 / 3
    centre = np.array([math.log(mean)])
    return Target(centre, uncertainty, target.spread / mean, bend=mean * loss.slope_per_error(mean))


def of_labels(shares: FloatArray, noise: float) -> Target:
    """Return the log odds of classes with noisy shares, drawn to 0 by their uncertainty, and the imbalance of two."""
    likely = np.maximum(shares, noise)
    likely = likely / np.sum(likely)
    odds = np.log(likely)
    two = len(likely) == 2
    prior = SCORE_VARIANCE if two else CLASS_VARIANCE
    error = (noise / float(np.prod(likely))) ** 2 if two else float(np.mean((noise / likely) ** 2))
    scores = np.array([odds[1] - odds[0]]) if two else odds - odds.mean()
    imbalance = float(abs(likely[1] - likely[0]) * likely.min()) if two else 0.0
    return Target(scores * prior / (prior + error), prior * error / (prior + error), 1.0, imbalance)


def on_simplex(shares: FloatArray) -> FloatArray:
    """Return the nearest numbers that are not negative and add up to 1."""
    falling = np.sort(shares)[::-1]
    above = (np.cumsum(falling) - 1.0) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(falling > above)[-1])
    result: FloatArray = np.maximum(shares - above[last], 0.0)
    return result


class Decision(NamedTuple):
    """Axes, scaled so that gradients along them are cut to norm 1; the step along them; and where to start."""

    axes: Axes
    step: float
    start: FloatArray


def expected(plan: Plan, algorithm: Preconditioned) -> tuple[Found, Target]:
    """Return what is thought of features and target where nobody asked, by the schema alone."""
    find = expected_directions if algorithm.axes is None else expected_main_direction
    return find(plan.data, look_edge(plan)), expected_target(plan)


def look_edge(plan: Plan) -> float:
    """Return the edge of a look at the features' second moments that would have cost as much as a training round."""
    return edge_of(MOVED / 2 * training_noise(plan), plan.data.width)


def decided(plan: Plan, found: Found, target: Target, momentum: float) -> Decision:
    """Return what is expected to serve heavy-ball descent best."""
    metric = found.whitened(found.edge / 2)  # the root mean square of the noise's eigenvalues
    target = of_scores(plan, target)
    cut, step = _best(plan, metric, target, momentum)
    unit = cut * metric.norm * target.spread * target.bend
    start = np.zeros((plan.data.width, plan.loss.outputs))
    if plan.data.intercept:
        start[-1] = target.centre / plan.data.intercept
    return Decision(metric.axes.scaled(1 / unit), step / target.bend * unit**2, plan.domain.project(start.reshape(-1)))


def _best(plan: Plan, metric: Whitened, target: Target, momentum: float) -> tuple[float, float]:
    """Return the cut, in typical norms, and the step with the least expected error of the scores.

    Of a number both are as if its loss had the curvature 1 at the centre: a loss that is c times as steep, with steps
    1/c times as long and cuts c times as wide, leaves the same of the signal, and gathers the same noise.

    The error does not tell what a cut of several classes' gradients shifts, so that many cuts, with longer steps the
    narrower they are, have about the same one. Of these the widest is taken, which shifts the least.
    """
    noise = training_noise(plan)
    numeric = plan.loss.target_kind == "number"
    explained = _explained(plan, target)
    steepest = _steepest(plan, target, explained)
    bend, main = _bend(), int(np.argmax(metric.moments))
    spread = metric.moments / np.sum(metric.moments)
    averaged = points_averaged(plan.loss, plan.steps)
    found = []
    for cut in np.geomspace(0.2, 6.0 if numeric else 1.0, 24):
        unit = cut * metric.norm * target.spread
        if numeric:  # residuals as an exponential distribution's: how many stay whole, and what the cut shifts
            residual = math.sqrt(1 - EXPLAINED)  # of what features do not explain, in the target's deviations
            curvature = -math.expm1(-cut / residual)
            shift = MEDIAN_GAP * math.exp(-cut / residual) * residual * target.spread
            signal = explained
        else:
            curvature, shift = bend * min(1.0, 2 * cut), (1 - cut) * target.imbalance / bend
            signal = SCORE_VARIANCE
        best = (math.inf, 1.0)
        for share in STEPS:
            step = share / steepest / max(float(np.max(metric.moments)), 0.5)
            left, gathered = descent(metric.moments * curvature, step, momentum, plan.steps, averaged)
            error = (
                signal * float(spread @ left**2)
                + target.uncertainty * float(left[main]) ** 2
                + float(np.sum(metric.moments * (gathered * unit * noise) ** 2))
                + shift**2
            )
            best = min(best, (error, step))
        found.append((*best, float(cut)))
    same = SAME_ERROR if plan.loss.target_kind == "class" else 0.0
    least = min(found)[0] + same
    _, step, cut = next(own for own in reversed(found) if own[0] <= least)
    return cut, step


def _explained(plan: Plan, target: Target) -> float:
    """Return the variance of a number's scores; if these are logarithms, of means that are log-normal."""
    variance = EXPLAINED * target.spread**2
    return math.log1p(variance) if isinstance(plan.loss, LogLink) else variance


def _steepest(plan: Plan, target: Target, explained: float) -> float:
    """Return the largest curvature for features of norm 1; of a number, in units of that at the centre.

    Of a log link it has no bound. Along the scores s themselves, if means m are log-normal, E[m·s²] is 1 + the scores'
    variance times E[m]·E[s²], and elsewhere less.

    Of several classes it is that at the centre, with shares p: the largest eigenvalue of diag(p) − ppᵀ, which is 1/K
    for K equal ones. Records whose probabilities q have the mean p have, on average, less curvature in every direction:
    E[qqᵀ] is at least ppᵀ. The bound for a single record is ½ whatever K, and steps that keep to it may not arrive.
    """
    if isinstance(plan.loss, LogLink):
        return 1.0 + explained
    if plan.loss.target_kind == "class":
        return curvature_of_classes(target.shares)
    return plan.loss.constants(1.0, plan.data.target_bound, math.inf).smoothness


def curvature_of_classes(shares: FloatArray) -> float:
    """Return the largest eigenvalue of diag(p) − ppᵀ, by halving: it lies between the two largest shares, where
    Σ p²/(p − λ), which rises between them, is 1."""
    low, high = np.sort(shares)[-2:]
    while low < (middle := (low + high) / 2) < high:
        if np.sum(shares**2 / (shares - middle)) < 1:
            low = middle
        else:
            high = middle
    return float(high)


def training_noise(plan: Plan) -> float:
    """Return the standard deviation of the noise in each number of a training round's average."""
    number = plan.training_numbers[0]
    everybody = math.hypot(*(terms.weight * terms.stages[number].sigma for terms in plan.silos))
    return everybody / math.sqrt(plan.stages[number].participation.share(len(plan.silos)))


def descent(
    curvatures: FloatArray, step: float, momentum: float, rounds: int, averaged: int
) -> tuple[FloatArray, FloatArray]:
    """Return what the mean of the last points of heavy-ball descent leaves of a distance 1, and gathers of noise 1 a
    round, by curvature."""
    left, speed = np.ones_like(curvatures), np.zeros_like(curvatures)
    kept = np.zeros_like(curvatures)
    moved = pace = np.full_like(curvatures, -step)  # by one round's noise, after as many rounds as there are sums
    sums = [np.zeros_like(curvatures)]
    for done in range(1, rounds + 1):
        speed = momentum * speed - step * curvatures * left
        left = left + speed
        if done > rounds - averaged:
            kept = kept + left
        sums.append(sums[-1] + moved)
        pace = momentum * pace - step * curvatures * moved
        moved = moved + pace
    # Noise of a round that `after` others follow moves the last of the points after it, at most those averaged.
    gathered = sum((sums[after + 1] - sums[max(after + 1 - averaged, 0)]) ** 2 for after in range(rounds))
    return kept / averaged, np.sqrt(gathered) / averaged


def _bend() -> float:
    """Return the mean curvature of two labels' loss where a record is likelier right: E[p(1 − p)·max(p, 1 − p)]."""
    p = _probabilities()
    return _on_average(p * (1 - p) * np.maximum(p, 1 - p))


_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def _probabilities() -> FloatArray:
    """Return the probabilities of the scores that averages are taken over."""
    result: FloatArray = 1 / (1 + np.exp(-math.sqrt(SCORE_VARIANCE) * _POINTS))
    return result


def _on_average(values: FloatArray) -> float:
    """Return the mean over normal scores of variance `SCORE_VARIANCE`."""
    return float(np.sum(_WEIGHTS * values) / np.sum(_WEIGHTS))
