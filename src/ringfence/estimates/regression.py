"""Metrics of models that predict numbers: errors by size, clipped means, and the spread of targets.

Several targets have the metrics of each, and the mean of their R².
"""

import math
from dataclasses import replace

import numpy as np

from ringfence.estimates.answers import BinEdges, BlockMeans, EvaluationAnswers, leaf_shares_of_all
from ringfence.estimates.intervals import Interval, half_width, ratio_interval
from ringfence.estimates.metrics import (
    CLIPPED,
    TOO_NOISY,
    FigureBlocks,
    Figures,
    Metric,
    bounded_metric,
    clipped_loss_metric,
    needed_shares,
    normal_metric,
    share_metric,
    share_of_cells,
    three_digits,
)
from ringfence.estimates.tails import FAR, ErrorSizes, MeanEstimate, TargetDistribution, sampling_variance
from ringfence.protocol import FloatArray, Loss, Schema, Squared
from ringfence.protocol.arrays import TINY
from ringfence.protocol.queries.evaluation import CURVE, RESIDUAL_LEVELS, TARGET_LEVELS, number_blocks, target_block

_MOST = 1e100
"""Larger than any metric."""
_ROUNDING = 1e-9
_PRECISE = 0.2
"""The relative half-width up to which a mean of unclipped errors is preferred to that of clipped ones."""
_R2 = "R²"
_MEAN = "mean of the targets"
_HELP = "narrower bounds of the target, more records or a larger epsilon would show it"
_HIDDEN = f"noise hides how large errors and targets beyond the clips are; {_HELP}"
BELOW = "share of targets below the prediction"

_FIGURES: FigureBlocks = {
    "RMSE": ("residuals", "squared", "targets", "target"),
    "MAE": ("residuals", "absolute"),
    _MEAN: ("targets", "target"),
    _R2: ("residuals", "squared", "targets", "target"),
    BELOW: ("below",),
}
"""The blocks that each figure of a regression needs; the loss of its own is named after it."""


def regression_figures(loss: Loss) -> FigureBlocks:
    """Return the blocks that each figure of a regression needs."""
    own = {} if loss.is_squared_error else {_loss_name(loss): ("residuals", "loss")}
    return {**_FIGURES, **own}


def _loss_name(loss: Loss) -> str:
    """Return the name of a regression's loss, for its metric."""
    return f"{loss.name} loss of scaled targets"


def _error_sizes(answers: EvaluationAnswers) -> ErrorSizes:
    """Return the distribution of a regression's error sizes, from the last round."""
    tree = answers.latest("residuals")
    return ErrorSizes(leaf_shares_of_all(answers.records, tree), tree.bin_edges)


def _target_distribution(answers: EvaluationAnswers) -> TargetDistribution:
    """Return the distribution of a regression's targets, from the last round."""
    tree = answers.latest("targets")
    cells = leaf_shares_of_all(answers.records, tree)
    return TargetDistribution(cells, tree.bin_edges, answers.data.target_bound)


def regression_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return all metrics of a regression, in units of the target."""
    metrics = _error_metrics(answers)
    if answers.has("below"):
        metrics.append(_share_below(answers))
    if answers.has("loss"):
        metrics.append(clipped_loss_metric(_loss_name(answers.loss), answers.latest("loss"), answers.records))
    return metrics


def _share_below(answers: EvaluationAnswers) -> Metric:
    """Return the share of targets below the prediction, beside the quantile that the model aims at, if any."""
    below, noise = answers.averaged("below").scalar()
    aim = answers.loss.aimed_share
    share = share_metric(BELOW, (1 + below) / 2, (noise / 2) ** 2, answers.records)
    return share if aim is None else share.noted(f"the model aims at {aim:g}")


def _error_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return a regression's RMSE, mean absolute error and R², each of clipped errors where noise hides it."""
    metrics: list[Metric] = []
    if answers.has("squared"):
        metrics += _error_metric("RMSE", answers, "squared", 2)
    if answers.has("absolute"):
        metrics += _error_metric("MAE", answers, "absolute", 1)
    if answers.has("target") and answers.has("targets"):
        metrics += _target_metrics(answers)
        if answers.has("squared"):
            metrics += _r_squared(answers)
    return metrics


def _largest_error(data: Schema, loss: Loss, largest: float) -> float:
    """Return the largest error that the public bounds of targets and scores allow."""
    return data.target_bound + float(np.max(np.abs(loss.predictions(np.array([[-largest], [largest]])))))


def _error_clip(answers: EvaluationAnswers, block: str) -> float | None:
    """Return the clip of a regression's errors; None if no error can be larger."""
    clip, most = answers.latest(block).clip, _largest_error(answers.data, answers.loss, answers.largest)
    return None if clip >= most * (1 - _ROUNDING) else clip


def _mean_power(answers: EvaluationAnswers, block: str, power: int) -> MeanEstimate:
    """Return the mean of clipped errors' |x|^power."""
    means, sizes = answers.latest(block), _error_sizes(answers)
    (mean, noise), most = means.scalar(), means.clip**power
    powers = np.minimum(sizes.middles(_largest_error(answers.data, answers.loss, answers.largest)), means.clip) ** power
    sampling = sampling_variance(sizes.cells, powers, most * mean, most)
    return MeanEstimate(most * mean, (most * noise) ** 2 + sampling)


def _error_metric(name: str, answers: EvaluationAnswers, block: str, power: int) -> list[Metric]:
    """Return the root mean square error, or the mean absolute one; and that of clipped errors, if some were clipped."""
    unit, clip = answers.data.target_scaling[0], _error_clip(answers, block)
    mean, most = _mean_power(answers, block, power), answers.latest(block).clip
    if clip is None:
        return [_in_target_units(name, mean, unit, power, most)]
    hidden = f"noise hides how large the errors beyond {three_digits(unit * clip)} are; {_HELP}"
    own = _in_target_units(name + CLIPPED, mean, unit, power, most)
    return [Metric(name=name, unknown=hidden), own.noted(_clipped_errors(answers, clip))]


def _clipped_errors(answers: EvaluationAnswers, clip: float) -> str:
    """Say what errors count at most, and how many are larger."""
    sizes = _error_sizes(answers)
    share = share_of_cells("", sizes.cells, sizes.beyond(clip))
    shares = "some" if share.low is None else f"{share.low:.1%} to {share.high:.1%}"
    shown = three_digits(answers.data.target_scaling[0] * clip)
    return f"each error counts at most {shown}: noise hides how much larger {shares} of them are"


def _in_target_units(name: str, mean: MeanEstimate, unit: float, power: int, most: float) -> Metric:
    """Return a mean of a regression's errors, or the root of that of squares, in units of the target."""
    reach, centre = half_width(mean.variance), max(mean.value, 0.0)  # at 0, noise does not make the interval shorter
    ends = (centre, mean.value - reach, centre + reach)
    value, low, high = (unit * max(number, 0.0) ** (1 / power) for number in ends)
    return bounded_metric(name, value, Interval(low, high), least=0.0, most=unit * most, precise="ratio")


def _target_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return the RMSE of guessing the mean of a regression's targets, and that mean."""
    (unit, offset), window = answers.data.target_scaling, _target_window(answers)
    mean, spread = _target_moments(answers.latest("target"), _target_distribution(answers))
    guess = _in_target_units("RMSE of guessing the mean", spread, unit, 2, 2 * answers.data.target_bound)
    if window is None:
        value, variance = unit * mean.value + offset, unit**2 * mean.variance
        return [guess, normal_metric(_MEAN, value, variance, least=-_MOST, most=_MOST, precise="any")]
    clipped = guess.model_copy(update={"name": f"{guess.name} of clipped targets"})
    return [clipped.noted(_clipped_targets(answers, window)), Metric(name=_MEAN, unknown=_HIDDEN)]


def _target_window(answers: EvaluationAnswers) -> tuple[float, float] | None:
    """Return the middle and half the width of the window that targets were clipped to; None if all lie in it."""
    centre, reach = (float(number) for number in answers.latest("target").bin_edges)
    return None if reach >= (answers.data.target_bound + abs(centre)) * (1 - _ROUNDING) else (centre, reach)


def _clipped_targets(answers: EvaluationAnswers, window: tuple[float, float]) -> str:
    """Say where a regression's targets were clipped."""
    (unit, offset), (centre, reach) = answers.data.target_scaling, window
    low, high = sorted(unit * (centre + side * reach) + offset for side in (-1, 1))
    return f"targets count as at least {three_digits(low)} and at most {three_digits(high)}"


def _target_moments(means: BlockMeans, targets: TargetDistribution) -> tuple[MeanEstimate, MeanEstimate]:
    """Return the mean and the variance of a regression's targets, clipped to the window."""
    centre, reach = (float(number) for number in means.bin_edges)
    mean, square, noise = float(means.values[0]), float(means.values[1]) / CURVE, means.noise
    places = np.clip((targets.middles() - centre) / reach, -1.0, 1.0)
    of_mean = noise**2 + sampling_variance(targets.cells, places + 1, mean + 1, 2.0)
    spread = square - mean**2 + noise**2
    sampling = sampling_variance(targets.cells, (places - mean) ** 2, spread, (1 + abs(mean)) ** 2)
    of_spread = noise**2 * (CURVE**-2 + (2 * mean) ** 2) + sampling
    centred = MeanEstimate(centre + reach * mean, reach**2 * of_mean)
    return centred, MeanEstimate(reach**2 * spread, reach**4 * of_spread)


def _r_squared(answers: EvaluationAnswers) -> list[Metric]:
    """Return a regression's R² = 1 − MSE/variance; and that of clipped errors and targets, if some were clipped."""
    square = _mean_power(answers, "squared", 2)
    _, spread = _target_moments(answers.latest("target"), _target_distribution(answers))
    clip, window = _error_clip(answers, "squared"), _target_window(answers)
    notes = [] if clip is None else [_clipped_errors(answers, clip)]
    notes += [] if window is None else [_clipped_targets(answers, window)]
    unknown = "the targets' variance is too small for this much noise"
    ratio = ratio_interval(square.value, spread.value, (square.variance, spread.variance, 0.0))
    name = _R2 + CLIPPED if notes else _R2
    if ratio is None or spread.value < 2 * half_width(spread.variance) or (ratio.low <= 0 and ratio.high >= 1):
        own = Metric(name=name, unknown=unknown)
    else:
        interval = Interval(1 - ratio.high, 1 - ratio.low)
        own = bounded_metric(name, 1 - square.value / spread.value, interval, least=-_MOST, most=1.0, unknown=unknown)
    if not notes:
        return [own]
    return [Metric(name=_R2, unknown=_HIDDEN), own.noted("; ".join(notes))]


def regression_bin_edges(data: Schema, loss: Loss, largest: float, answers: EvaluationAnswers | None) -> BinEdges:
    """Return the edges between errors and between targets, and the clips: by public bounds, then by the answers."""
    bound, count, targets = data.target_bound, 2**RESIDUAL_LEVELS, 2**TARGET_LEVELS
    clip, window, most = (bound + largest) / 4, (0.0, bound), _largest_error(data, loss, largest)
    clips = {"squared": np.array([clip]), "absolute": np.array([clip])}
    errors = (bound + largest) * 2.0 ** (-np.arange(count - 1, 0, -1) / 2)
    edges = np.linspace(-bound, bound, targets + 1)[1:-1]
    if answers is not None and answers.has("residuals"):
        sizes = _error_sizes(answers)
        clip = min(sizes.clip(), most)
        half = np.arange(1, count // 2) / (count // 2)  # the root divides at the clip, which measures the rest best
        below = sizes.quantiles((1 - FAR) * (1 - (1 - half) ** 1.5))  # finer where errors are large
        errors = np.concatenate([np.minimum(below, clip), [clip], clip * (most / clip) ** half])
        for name, power in (("squared", 2), ("absolute", 1)):
            noise = answers.next_noise.get(name, math.inf) * most**power
            clips[name] = np.array([most if _is_precise(noise, sizes.least_mean(power), power) else clip])
    if answers is not None and answers.has("targets"):
        seen = _target_distribution(answers)
        edges = seen.quantiles(np.arange(1, targets) / targets)
        noise = answers.next_noise.get("target", math.inf) * bound * math.hypot(bound / CURVE, 2 * seen.mean())
        near = seen.window()
        is_short = near[1] < bound + abs(near[0]) and not _is_precise(noise, seen.least_variance(), 2)
        window = near if is_short else window
    losses = loss.values(np.array([[-clip], [clip]]), np.zeros(2))
    worst = np.maximum(losses.max(keepdims=True), TINY)
    return {"residuals": errors, "targets": edges, "target": np.array(window), **clips, "loss": worst}


def _is_precise(noise: float, mean: float, power: int) -> bool:
    """Return whether noise leaves a mean's root of this power within `_PRECISE` of itself."""
    return half_width(noise**2) <= power * _PRECISE * mean


def regression_block_shares(loss: Loss, last: bool, figures: Figures) -> dict[str, float]:
    """Return each block's share of the sensitivity: before the last round, none for blocks that need bin edges."""
    if not last:
        shares = {"below": 0.1, "residuals": 0.5, "targets": 0.4}
    else:
        shares = {"below": 0.06, "residuals": 0.12, "squared": 0.36, "absolute": 0.2, "target": 0.24}
        shares |= {"loss": 0.0 if loss.is_squared_error else 0.1, "paired": 0.3}
    return needed_shares(shares, regression_figures(loss), figures)


def _answers_of_target(answers: EvaluationAnswers, place: int, name: str) -> EvaluationAnswers:
    """Return the answers about one target of a regression with several, by the names of a single one's blocks."""
    names = {target_block(block.name, place): block.name for block in number_blocks()}
    rounds = [{names[name]: means for name, means in blocks.items() if name in names} for blocks in answers.rounds]
    noise = {names[name]: noise for name, noise in answers.next_noise.items() if name in names}
    return replace(answers, data=answers.data.for_target(name), loss=Squared(), rounds=rounds, next_noise=noise)


def multitarget_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return every target's metrics, in its units, and the mean R²."""
    metrics, explained = [], []
    for place, target in enumerate(answers.data.targets):
        own = regression_metrics(_answers_of_target(answers, place, target))
        explained += [metric for metric in own if metric.name.startswith(_R2)][-1:]
        metrics += [metric.model_copy(update={"name": f"{target}: {metric.name}"}) for metric in own]
    return [*metrics, *_mean_r_squared(explained)] if explained else metrics


def _mean_r_squared(explained: list[Metric]) -> list[Metric]:
    """Return the mean of R² with the means of the intervals' ends; of clipped errors, if any R² is.

    The deviation of a mean is at most the mean of the deviations, however the errors depend on one another. So for
    Gaussian errors, which the intervals assume, the coverage is at least the same.
    """
    name = max((metric.name for metric in explained), key=len)
    hidden = [] if name == _R2 else [Metric(name=_R2, unknown=_HIDDEN)]
    ends = [(metric.value, metric.low, metric.high) for metric in explained]
    known = [
        (low, high, (low + high) / 2 if value is None else value)
        for value, low, high in ends
        if low is not None and high is not None
    ]
    if len(known) < len(explained):
        return [*hidden, Metric(name=name, unknown=TOO_NOISY)]
    low, high, value = (float(number) for number in np.mean(known, axis=0))
    mean = bounded_metric(name, value, Interval(low, high), least=-_MOST, most=1.0)
    return [*hidden, mean.noted("the mean over the targets")]


def multitarget_bin_edges(data: Schema, loss: Loss, largest: float, answers: EvaluationAnswers | None) -> BinEdges:
    """Return every target's bin edges; the clip of the whole loss is the sum of theirs."""
    edges, clip = dict[str, FloatArray](), np.zeros(1)
    for place, target in enumerate(data.targets):
        known = None if answers is None else _answers_of_target(answers, place, target)
        own = regression_bin_edges(data.for_target(target), Squared(), largest, known)
        clip = clip + own.pop("loss")
        edges |= {target_block(name, place): marks for name, marks in own.items()}
    return {**edges, "loss": clip}


def multitarget_block_shares(loss: Loss, last: bool, figures: Figures) -> dict[str, float]:
    """Return each block's share of the sensitivity: the same for every target."""
    chosen: dict[str, float] = {}
    for place in range(loss.outputs):
        own = regression_block_shares(Squared(), last, figures)
        together = chosen.get("paired", 0.0) + own.pop("paired", 0.0)
        chosen |= {target_block(name, place): share for name, share in own.items()}
        chosen |= {"paired": together} if together else {}
    return chosen
