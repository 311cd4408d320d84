"""Chooses axes, clip, step size and start of preconditioned descent, from a survey of features and target or a prior.

The choice minimises the expected squared error of the final scores, from public numbers and noisy answers alone: the
bias that descent leaves, the noise it accumulates, and the shift by clipping. The prior of the weights is isotropic
along the whitened axes, so that the signal's share along an axis is that of the second moments. This and the constants
below are the only assumptions.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import scipy.special

from ringfence.protocol import Axes, FloatArray, LogLink, Loss, Plan, Preconditioned
from ringfence.protocol.queries.feature_moments import DIAMETER, WEIGHT, FeatureSurvey
from ringfence.server.algorithms.whitening import FeatureMomentsEstimate, WhitenedAxes, noise_edge, prior_of_features

EXPLAINED = 0.5
"""Assumed share of a numeric target's variance that the features explain."""

SCORE_VARIANCE = 4.0
"""Prior variance of the scores of two classes: most probabilities then lie between .1 and .9."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)  # means over normal scores of that variance
_P = 1 / (1 + np.exp(-math.sqrt(SCORE_VARIANCE) * _NODES))

LABEL_CURVATURE = float(np.sum(_WEIGHTS * (_P * (1 - _P) * np.maximum(_P, 1 - _P))) / np.sum(_WEIGHTS))
"""Mean curvature of two classes' loss where a record is predicted right: E[p(1 − p)·max(p, 1 − p)]."""

PRIOR_IMBALANCE = float(np.sum(_WEIGHTS * (np.abs(1 - 2 * _P) * np.minimum(_P, 1 - _P))) / np.sum(_WEIGHTS))
"""Prior shift of two classes' gradient if it is clipped at 0: E[|1 − 2p|·min(p, 1 − p)]."""

CLASS_VARIANCE = 1.0
"""Prior variance of the log odds of several classes."""

DEVIATIONS = 3.0
"""Assumed distance of a number's bounds from its mean, in standard deviations, without a survey."""

MEDIAN_GAP = 1.0 - math.log(2.0)
"""Distance between median and mean of an exponential distribution, in standard deviations: the bias that hard clipping
may cause in the predictions of a skewed target."""

STEPS = (0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5)
"""Candidate step sizes, in units of 1/β along whitened axes."""

SAME_ERROR = 0.01
"""Squared errors of several classes' scores that differ by less count as equal: 1/400 of `SCORE_VARIANCE`."""

REACH = 2.5
"""The next round's window reaches this many standard deviations to either side of the centre, plus its uncertainty."""


def averaged_iterates(loss: Loss, rounds: int) -> int:
    """Return how many last iterates preconditioned descent averages: half, as in suffix averaging, or only one.

    An average lags behind, which costs little after convergence. With a score for each class descent has not converged:
    the likelier a class becomes, the smaller the curvature of the loss.
    """
    return 1 if loss.target_kind == "class" else max(1, rounds // 2)


@dataclass(frozen=True)
class TargetEstimate:
    """The best constant score for each output, the variance of its error, and the target's standard deviation.

    `spread` is the standard deviation of a number, and 1 for classes. `imbalance` is the shift of two classes' gradient
    if it is clipped at 0. `curvature` is that of a number's loss at the centre.
    """

    centre: FloatArray
    uncertainty: float
    spread: float = 1.0
    imbalance: float = 0.0
    curvature: float = 1.0


def prior_of_target(plan: Plan) -> TargetEstimate:
    """Return the prior for a target that was not surveyed: the middle of its bounds, or even odds.

    The bounds of a number are assumed to lie three standard deviations from its mean; its second moment is that of a
    uniform distribution over the bounds. The log odds of classes have the prior variance of scores.
    """
    loss, bound = plan.loss, plan.data.target_bound
    centre = np.zeros(loss.outputs)
    if loss.target_kind == "number":
        spread = bound / DEVIATIONS
        return TargetEstimate(centre, bound**2 / 3 - spread**2, spread)
    if loss.outputs > 1:
        return TargetEstimate(centre, CLASS_VARIANCE)
    return TargetEstimate(centre, SCORE_VARIANCE, 1.0, PRIOR_IMBALANCE)


def estimate_from_histogram(shares: FloatArray, edges: FloatArray, noise: float) -> TargetEstimate:
    """Estimate mean and standard deviation of a number from noisy shares of its bins."""
    middles, gap = (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])
    likely = project_onto_simplex(shares)
    centre = float(likely @ middles)
    variance = float(likely @ (middles - centre) ** 2) + gap**2 / 12
    half = (edges[-1] - edges[0]) / 2
    error = min(noise * math.sqrt(float(np.sum((middles - middles.mean()) ** 2))), half / 2)
    return TargetEstimate(np.array([centre]), error**2, math.sqrt(variance))


def in_score_units(plan: Plan, target: TargetEstimate) -> TargetEstimate:
    """Convert the estimate of a number to scores: with a log link, to the logarithm of its mean.

    To first order, error and deviation of a logarithm are those of the number in units of the mean. The server does not
    know the records' offsets; their prior is uniform over their range.
    """
    loss = plan.loss
    if not isinstance(loss, LogLink):
        return target
    mean = float(target.centre[0]) - loss.zero
    uncertainty = target.uncertainty / mean**2 + plan.data.offset_bound**2 / 3
    centre = np.array([math.log(mean)])
    return TargetEstimate(centre, uncertainty, target.spread / mean, curvature=mean * loss.slope_per_error(mean))


def estimate_from_class_shares(shares: FloatArray, noise: float) -> TargetEstimate:
    """Estimate the log odds of classes from noisy shares, shrunk towards 0, and the imbalance of two classes."""
    likely = np.maximum(shares, noise)
    likely = likely / np.sum(likely)
    odds = np.log(likely)
    two = len(likely) == 2
    prior = SCORE_VARIANCE if two else CLASS_VARIANCE
    error = (noise / float(np.prod(likely))) ** 2 if two else float(np.mean((noise / likely) ** 2))
    scores = np.array([odds[1] - odds[0]]) if two else odds - odds.mean()
    imbalance = float(abs(likely[1] - likely[0]) * likely.min()) if two else 0.0
    return TargetEstimate(scores * prior / (prior + error), prior * error / (prior + error), 1.0, imbalance)


def project_onto_simplex(shares: FloatArray) -> FloatArray:
    """Return the nearest class shares that are not negative and add up to 1."""
    falling = np.sort(shares)[::-1]
    above = (np.cumsum(falling) - 1.0) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(falling > above)[-1])
    result: FloatArray = np.maximum(shares - above[last], 0.0)
    return result


class TargetSurvey(NamedTuple):
    """State of a survey of the target: the next round's window of a number, and the sum of classes' shares so far."""

    lower: float
    upper: float
    shares: FloatArray
    rounds: int = 0

    @classmethod
    def initial(cls, plan: Plan) -> Self:
        """Begin the survey of the target with the public bounds."""
        return cls(-plan.data.target_bound, plan.data.target_bound, np.zeros(FeatureSurvey.bins(plan)))

    def updated(self, plan: Plan, answer: FloatArray, noise: float) -> "tuple[TargetEstimate, TargetSurvey]":
        """Return the estimate after a round's noisy histogram, and the survey's next state.

        A number's next window is closer around its mean; classes' shares are averaged over the rounds.
        """
        shares, noise, rounds = answer / WEIGHT, noise / WEIGHT, self.rounds + 1
        if plan.loss.target_kind == "number":
            edges = np.linspace(self.lower, self.upper, len(shares) + 1)
            target = estimate_from_histogram(shares, edges, noise)
            bound, centre = plan.data.target_bound, float(target.centre[0])
            reach = REACH * target.spread + target.uncertainty**0.5
            return target, TargetSurvey(max(-bound, centre - reach), min(bound, centre + reach), shares, rounds)
        shares = self.shares + shares
        return estimate_from_class_shares(shares / rounds, noise / rounds**0.5), TargetSurvey(-1.0, 1.0, shares, rounds)


def prior_of_survey(plan: Plan, algorithm: Preconditioned) -> tuple[FeatureMomentsEstimate, TargetEstimate]:
    """Return the prior for features and target that were not surveyed, from the schema alone."""
    features = prior_of_features(plan.data, survey_noise_edge(plan), rank_one=algorithm.axes is not None)
    return features, prior_of_target(plan)


def survey_noise_edge(plan: Plan) -> float:
    """Return the noise edge of a survey of second moments that would have cost as much as a training round."""
    return noise_edge(DIAMETER / 2 * training_noise(plan), plan.data.width)


def choose_descent(
    plan: Plan, features: FeatureMomentsEstimate, target: TargetEstimate, momentum: float
) -> tuple[Axes, float, FloatArray]:
    """Return the axes, step size and start with the least expected error of heavy-ball descent.

    The axes are scaled so that gradients along them are clipped to norm 1.
    """
    whitened = features.whitened(features.edge / 2)  # the root mean square of the noise's eigenvalues
    target = in_score_units(plan, target)
    clip, step = _best_clip_and_step(plan, whitened, target, momentum)
    unit = clip * whitened.norm * target.spread * target.curvature
    start = np.zeros((plan.data.width, plan.loss.outputs))
    if plan.data.intercept:
        start[-1] = target.centre / plan.data.intercept
    step_along_axes = step / target.curvature * unit**2
    return whitened.axes.scaled(1 / unit), step_along_axes, plan.domain.project(start.reshape(-1))


def _best_clip_and_step(
    plan: Plan, whitened: WhitenedAxes, target: TargetEstimate, momentum: float
) -> tuple[float, float]:
    """Return the clip, in typical gradient norms, and the step size with the least expected error of the scores.

    For a number both assume that its loss has the curvature 1 at the centre: with a curvature c, steps 1/c times as
    long and clips c times as large leave the same bias and the same noise.

    The error omits the bias from clipping several classes' gradients, so many clips, each with its own step size, have
    about the same error. The largest of these is taken, which has the least bias.
    """
    numeric, explained = plan.loss.target_kind == "number", _explained(plan, target)
    moments, counts = np.unique(whitened.moments, return_counts=True)  # few differ: those below the noise are equal
    clips = np.geomspace(0.2, 6.0 if numeric else 1.0, 24)
    steps = np.array(STEPS) / (_largest_curvature(plan, target, explained) * max(float(moments[-1]), 0.5))
    if numeric:  # exponentially distributed residuals: the share that is not clipped, and the bias of clipping
        residual = math.sqrt(1 - EXPLAINED)  # deviation of the residuals, in the target's deviations
        curvature = -np.expm1(-clips / residual)
        shift = MEDIAN_GAP * np.exp(-clips / residual) * residual * target.spread
    else:
        curvature = LABEL_CURVATURE * np.minimum(1.0, 2 * clips)
        shift = (1 - clips) * target.imbalance / LABEL_CURVATURE
    bias, noise_gain = descent_errors(
        curvature[:, None, None] * moments,
        steps[:, None],
        momentum,
        plan.steps,
        averaged_iterates(plan.loss, plan.steps),
    )
    noise = (clips * whitened.norm * target.spread * training_noise(plan))[:, None, None] * noise_gain
    signal, mass = explained if numeric else SCORE_VARIANCE, moments * counts
    errors = (
        signal * (bias**2 @ mass) / np.sum(mass)
        + target.uncertainty * bias[..., -1] ** 2
        + noise**2 @ mass
        + shift[:, None] ** 2
    )
    least = errors.min(axis=1)
    allowed = least.min() + (SAME_ERROR if plan.loss.target_kind == "class" else 0.0)
    chosen = int(np.flatnonzero(least <= allowed)[-1])
    return float(clips[chosen]), float(steps[np.argmin(errors[chosen])])


def _explained(plan: Plan, target: TargetEstimate) -> float:
    """Return the prior variance of a number's scores; with a log link, means are log-normal."""
    variance = EXPLAINED * target.spread**2
    return math.log1p(variance) if isinstance(plan.loss, LogLink) else variance


def _largest_curvature(plan: Plan, target: TargetEstimate, explained: float) -> float:
    """Return the largest curvature for features of norm 1; for a number, in units of that at the centre.

    With a log link it is unbounded. Along the scores s themselves, if means m are log-normal, E[m·s²] is 1 + the
    scores' variance times E[m]·E[s²], and elsewhere less.

    For several classes it is that at the centre, with shares p: the largest eigenvalue of diag(p) − ppᵀ, 1/K for K
    equal shares. Records whose probabilities q have the mean p have, on average, less curvature in every direction:
    E[qqᵀ] is at least ppᵀ. The bound for a single record is ½ whatever K, and with steps that small descent may not
    converge.
    """
    if isinstance(plan.loss, LogLink):
        return 1.0 + explained
    if plan.loss.target_kind == "class":
        return curvature_of_classes(scipy.special.softmax(target.centre))
    return plan.loss.constants(1.0, plan.data.target_bound, math.inf).smoothness


def curvature_of_classes(shares: FloatArray) -> float:
    """Return the largest eigenvalue of diag(p) − ppᵀ, by bisection: between the two largest shares, Σ p²/(p − λ) rises
    through 1 there."""
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


def descent_errors(
    curvatures: FloatArray, step: float | FloatArray, momentum: float, rounds: int, averaged: int
) -> tuple[FloatArray, FloatArray]:
    """Return the residual bias and the accumulated noise of heavy-ball's averaged iterate, by curvature.

    For a start at distance 1 from the optimum, and noise of standard deviation 1 in every round.
    """
    distance, velocity = np.ones_like(curvatures), np.zeros_like(curvatures)
    total = np.zeros_like(curvatures)
    response = change = -step * np.ones_like(curvatures)  # to one round's noise, after as many rounds as there are sums
    sums = [np.zeros_like(curvatures)]
    for done in range(1, rounds + 1):
        velocity = momentum * velocity - step * curvatures * distance
        distance = distance + velocity
        if done > rounds - averaged:
            total = total + distance
        sums.append(sums[-1] + response)
        change = momentum * change - step * curvatures * response
        response = response + change
    # The noise of a round followed by `after` others enters the iterates after it, of which the last are averaged.
    accumulated = sum((sums[after + 1] - sums[max(after + 1 - averaged, 0)]) ** 2 for after in range(rounds))
    return total / averaged, np.sqrt(accumulated) / averaged
