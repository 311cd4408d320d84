"""Chooses axes, clip, step size and start of preconditioned descent, from a survey of features and target or a prior.

The choice minimises the expected squared error of the final scores, from public numbers and noisy answers alone: the
bias that descent leaves, the noise it accumulates, and the shift by clipping. The prior of the weights is isotropic
along the whitened axes, so that the signal's share along an axis is that of the second moments. This and the constants
below are the only assumptions.

In a simulation, arrays begin with an axis of runs.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import scipy.special

from ringfence.protocol import Axes, FloatArray, LogLink, Loss, Plan, Preconditioned
from ringfence.protocol.arrays import Number
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
    uncertainty: Number
    spread: Number = 1.0
    imbalance: Number = 0.0
    curvature: Number = 1.0


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
    middles, gap = (edges[..., 1:] + edges[..., :-1]) / 2, edges[..., 1] - edges[..., 0]
    likely = project_onto_simplex(shares)
    centre = np.sum(likely * middles, axis=-1, keepdims=True)
    variance = np.sum(likely * (middles - centre) ** 2, axis=-1) + gap**2 / 12
    spread = np.sqrt(np.sum((middles - middles.mean(axis=-1, keepdims=True)) ** 2, axis=-1))
    error = np.minimum(noise * spread, (edges[..., -1] - edges[..., 0]) / 4)
    return TargetEstimate(centre, error**2, np.sqrt(variance))


def in_score_units(plan: Plan, target: TargetEstimate) -> TargetEstimate:
    """Convert the estimate of a number to scores: with a log link, to the logarithm of its mean.

    To first order, error and deviation of a logarithm are those of the number in units of the mean. The server does not
    know the records' offsets; their prior is uniform over their range.
    """
    loss = plan.loss
    if not isinstance(loss, LogLink):
        return target
    mean = target.centre[..., 0] - loss.zero
    uncertainty = target.uncertainty / mean**2 + plan.data.offset_bound**2 / 3
    centre = np.log(mean)[..., None]
    return TargetEstimate(centre, uncertainty, target.spread / mean, curvature=mean * loss.slope_per_error(mean))


def estimate_from_class_shares(shares: FloatArray, noise: float) -> TargetEstimate:
    """Estimate the log odds of classes from noisy shares, shrunk towards 0, and the imbalance of two classes."""
    likely = np.maximum(shares, noise)
    likely = likely / np.sum(likely, axis=-1, keepdims=True)
    odds = np.log(likely)
    if likely.shape[-1] == 2:
        prior, error, scores = SCORE_VARIANCE, (noise / np.prod(likely, axis=-1)) ** 2, np.diff(odds, axis=-1)
        imbalance = abs(likely[..., 1] - likely[..., 0]) * likely.min(axis=-1)
    else:
        prior, error, imbalance = CLASS_VARIANCE, np.mean((noise / likely) ** 2, axis=-1), 0.0
        scores = odds - odds.mean(axis=-1, keepdims=True)
    kept = prior / (prior + error)
    return TargetEstimate(scores * kept[..., None], error * kept, 1.0, imbalance)


def project_onto_simplex(shares: FloatArray) -> FloatArray:
    """Return the nearest class shares that are not negative and add up to 1."""
    falling = np.sort(shares, axis=-1)[..., ::-1]
    above = (np.cumsum(falling, axis=-1) - 1.0) / np.arange(1, shares.shape[-1] + 1)
    last = np.sum(falling > above, axis=-1, keepdims=True) - 1  # it is below all that are kept, and no other
    result: FloatArray = np.maximum(shares - np.take_along_axis(above, last, axis=-1), 0.0)
    return result


class TargetSurvey(NamedTuple):
    """State of a survey of the target: the next round's window of a number, and the sum of classes' shares so far."""

    lower: Number
    upper: Number
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
            edges = np.linspace(self.lower, self.upper, shares.shape[-1] + 1, axis=-1)
            target = estimate_from_histogram(shares, edges, noise)
            bound, centre = plan.data.target_bound, target.centre[..., 0]
            reach = REACH * target.spread + target.uncertainty**0.5
            window = np.maximum(-bound, centre - reach), np.minimum(bound, centre + reach)
            return target, TargetSurvey(*window, shares, rounds)
        shares = self.shares + shares
        end = np.ones(shares.shape[:-1])
        return estimate_from_class_shares(shares / rounds, noise / rounds**0.5), TargetSurvey(-end, end, shares, rounds)


def prior_of_survey(plan: Plan, algorithm: Preconditioned) -> tuple[FeatureMomentsEstimate, TargetEstimate]:
    """Return the prior for features and target that were not surveyed, from the schema alone."""
    features = prior_of_features(plan.data, survey_noise_edge(plan), rank_one=algorithm.axes is not None)
    return features, prior_of_target(plan)


def survey_noise_edge(plan: Plan) -> float:
    """Return the noise edge of a survey of second moments that would have cost as much as a training round."""
    return noise_edge(DIAMETER / 2 * training_noise(plan), plan.data.width)


def choose_descent(
    plan: Plan, features: FeatureMomentsEstimate, target: TargetEstimate, momentum: float
) -> tuple[Axes, FloatArray, FloatArray]:
    """Return the axes, step size and start with the least expected error of heavy-ball descent.

    The axes are scaled so that gradients along them are clipped to norm 1.
    """
    whitened = features.whitened(features.edge / 2)  # the root mean square of the noise's eigenvalues
    target = in_score_units(plan, target)
    clip, step, _ = _best_clip_and_step(plan, whitened, target, momentum)
    unit = clip * whitened.norm * target.spread * target.curvature
    start = np.zeros((*unit.shape, plan.data.width, plan.loss.outputs))
    if plan.data.intercept:
        start[..., -1, :] = target.centre / plan.data.intercept
    projected = np.apply_along_axis(plan.domain.project, -1, start.reshape(*unit.shape, -1))
    return whitened.axes.scaled(1 / unit), step / target.curvature * unit**2, projected


def unlearned_share(plan: Plan, features: FeatureMomentsEstimate) -> float:
    """Return the expected squared error of scores after descent, relative to their variance, for a prior target."""
    target, algorithm = in_score_units(plan, prior_of_target(plan)), plan.algorithm
    momentum = algorithm.momentum if isinstance(algorithm, Preconditioned) else 0.0
    error = _best_clip_and_step(plan, features.whitened(features.edge / 2), target, momentum)[2]
    return float(error / (_explained(plan, target) if plan.loss.target_kind == "number" else SCORE_VARIANCE))


def _best_clip_and_step(
    plan: Plan, whitened: WhitenedAxes, target: TargetEstimate, momentum: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the clip, in typical gradient norms, and the step size with the least expected error, and the error.

    For a number both assume that its loss has the curvature 1 at the centre: with a curvature c, steps 1/c times as
    long and clips c times as large leave the same bias and the same noise.

    The error omits the bias from clipping several classes' gradients, so many clips, each with its own step size, have
    about the same error. The largest of these is taken, which has the least bias.
    """
    numeric, explained = plan.loss.target_kind == "number", _explained(plan, target)
    moments, counts = _distinct(whitened.moments)
    clips = np.geomspace(0.2, 6.0 if numeric else 1.0, 24)
    steepest = _largest_curvature(plan, target, explained) * np.maximum(moments[..., -1], 0.5)
    steps = np.array(STEPS) / steepest[..., None]
    if numeric:  # exponentially distributed residuals: the share that is not clipped, and the bias of clipping
        residual = math.sqrt(1 - EXPLAINED)  # deviation of the residuals, in the target's deviations
        curvature = -np.expm1(-clips / residual)
        shift = MEDIAN_GAP * np.exp(-clips / residual) * residual * _column(target.spread)
    else:
        curvature = LABEL_CURVATURE * np.minimum(1.0, 2 * clips)
        shift = (1 - clips) * _column(target.imbalance) / LABEL_CURVATURE
    # Axes: runs, clips, steps, moments.
    bias, noise_gain = descent_errors(
        curvature[:, None, None] * moments[..., None, None, :],
        steps[..., None, :, None],
        momentum,
        plan.steps,
        averaged_iterates(plan.loss, plan.steps),
    )
    unit = clips * _column(whitened.norm * target.spread * training_noise(plan))
    signal, mass = explained if numeric else SCORE_VARIANCE, moments * counts
    explained_share = np.asarray(signal / np.sum(mass, axis=-1))
    errors = (
        explained_share[..., None, None] * np.einsum("...csm,...m->...cs", bias**2, mass)
        + np.asarray(target.uncertainty)[..., None, None] * bias[..., -1] ** 2
        + unit[..., None] ** 2 * np.einsum("...csm,...m->...cs", noise_gain**2, mass)
        + shift[..., None] ** 2
    )
    least = errors.min(axis=-1)
    allowed = least.min(axis=-1, keepdims=True) + (SAME_ERROR if plan.loss.target_kind == "class" else 0.0)
    chosen = len(clips) - 1 - np.argmax((least <= allowed)[..., ::-1], axis=-1)  # the largest of them
    best = np.argmin(np.take_along_axis(errors, chosen[..., None, None], axis=-2)[..., 0, :], axis=-1)
    return clips[chosen], np.take_along_axis(steps, best[..., None], axis=-1)[..., 0], least.min(axis=-1)


def _column(numbers: Number) -> FloatArray:
    """Return numbers, perhaps one for each run, shaped to broadcast with a row of candidates."""
    return np.asarray(numbers)[..., None]


def _distinct(moments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the moments in rising order, the smallest at most as often as in every run, and how many each stands for.

    Those below the noise are equal: few are left.
    """
    rising = np.sort(moments, axis=-1)
    repeated = int(np.min(np.sum(rising == rising[..., :1], axis=-1)))
    counts = np.ones(rising.shape[-1] - repeated + 1)
    counts[0] = repeated
    return rising[..., repeated - 1 :], counts


def _explained(plan: Plan, target: TargetEstimate) -> Number:
    """Return the prior variance of a number's scores; with a log link, means are log-normal."""
    variance = EXPLAINED * target.spread**2
    return np.log1p(variance) if isinstance(plan.loss, LogLink) else variance


def _largest_curvature(plan: Plan, target: TargetEstimate, explained: Number) -> Number:
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
        return np.apply_along_axis(curvature_of_classes, -1, scipy.special.softmax(target.centre, axis=-1))
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
    curvatures: FloatArray, step: Number, momentum: float, rounds: int, averaged: int
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
