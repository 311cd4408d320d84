"""Metrics of models that predict numbers: errors by size, clipped means, and the spread of targets.

Several targets have the metrics of each, and the mean of their R².
"""

import math

import numpy as np

from ringfence.estimates.answers import BinEdges, BlockMeans, EvaluationAnswers, leaf_shares_of_all
from ringfence.estimates.intervals import Interval, ratio_interval
from ringfence.estimates.metrics import (
    TOO_NOISY,
    FigureBlocks,
    Figures,
    Metric,
    bounded_metric,
    clipped_loss_metric,
    needed_shares,
    normal_metric,
    share_metric,
    three_digits,
)
from ringfence.estimates.tails import FAR, BoundedMean, ErrorSizes, TargetDistribution, most_beyond
from ringfence.protocol import FloatArray, Loss, Schema, Squared
from ringfence.protocol.arrays import TINY
from ringfence.protocol.queries.evaluation import CURVE, RESIDUAL_LEVELS, TARGET_LEVELS, number_blocks, target_block

_MOST = 1e100
"""Larger than any metric."""
_R2 = "R²"
BELOW = "share of targets below the prediction"

_FIGURES: FigureBlocks = {
    "RMSE": ("residuals", "squared", "targets", "target"),
    "RMSE of clipped errors": ("residuals", "squared"),
    "MAE": ("residuals", "absolute"),
    "mean of the targets": ("targets", "target"),
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
    """Return a regression's RMSE, mean absolute error and R²."""
    unit, offset = answers.data.target_scaling
    metrics: list[Metric] = []
    square = None
    if answers.has("squared"):
        squared, sizes = answers.latest("squared"), _error_sizes(answers)
        clip = squared.clip
        square = _mean_power(squared, clip, 2, sizes)
        clipped = BoundedMean.exactly(square.least, square.least_variance)
        most = math.sqrt(clip**2 + most_beyond(clip, 2))
        metrics += [
            _in_target_units("RMSE", square, unit, root=True, most=most).noted(tail := _tail_note(unit * clip)),
            _in_target_units("RMSE of clipped errors", clipped, unit, root=True, most=clip).noted(
                f"each error counts at most {three_digits(unit * clip)}"
            ),
        ]
    if answers.has("absolute"):
        absolute, sizes = answers.latest("absolute"), _error_sizes(answers)
        size, most = _mean_power(absolute, absolute.clip, 1, sizes), absolute.clip + most_beyond(absolute.clip, 1)
        note = _tail_note(unit * absolute.clip)
        metrics.append(_in_target_units("MAE", size, unit, root=False, most=most).noted(note))
    if answers.has("target") and answers.has("targets"):
        mean, variance, spread = _target_moments(answers.latest("target"), _target_distribution(answers))
        bound = 2 * answers.data.target_bound
        metrics += [
            _in_target_units("RMSE of guessing the mean", spread, unit, root=True, most=bound).noted(
                "assuming that the tails of the targets decay as their flanks do"
            ),
            normal_metric("mean of the targets", unit * mean + offset, unit**2 * variance, least=-_MOST, most=_MOST),
        ]
        if square is not None:
            known = metrics[0].value is not None
            metrics.append(_r_squared(square, spread, tail) if known else metrics[0].model_copy(update={"name": _R2}))
    return metrics


def _tail_note(clip: float) -> str:
    """State the tails that the intervals of a regression's errors beyond the clip allow for."""
    shown = three_digits(clip)
    return f"if errors of x times {shown} are at most 1/x³ as frequent as those beyond {shown}"


def _mean_power(means: BlockMeans, clip: float, power: int, sizes: ErrorSizes) -> BoundedMean:
    """Return the mean of errors' |x|^power: at least that of clipped ones; at most with the heaviest tail beyond."""
    (mean, deviation), (cells, middles) = means.scalar(), sizes.up_to(clip)
    powers, heaviest = middles**power, np.append(np.zeros(len(middles) - 1), most_beyond(clip, power))
    inside, noise = clip**power * mean, (clip**power * deviation) ** 2
    return BoundedMean(
        value=inside + sizes.expected_beyond(clip, power),
        least=inside,
        least_variance=noise + cells.sampling_variance(powers),
        most=inside + cells.total(heaviest),
        most_variance=noise + cells.noise_variance(heaviest) + cells.sampling_variance(powers + heaviest),
    )


def _in_target_units(name: str, mean: BoundedMean, unit: float, *, root: bool, most: float) -> Metric:
    """Return a mean of a regression's errors, or its root, in units of the target."""

    def scaled(value: float) -> float:
        """Return a regression's mean, or its root, times the target's unit."""
        return unit * (math.sqrt(max(value, 0.0)) if root else max(value, 0.0))

    low, high = (scaled(end) for end in mean.interval())
    value = min(max(scaled(mean.value), low), high)
    return bounded_metric(name, value, Interval(low, high), least=0.0, most=unit * most)


def _target_moments(means: BlockMeans, targets: TargetDistribution) -> tuple[float, float, BoundedMean]:
    """Return the mean of a regression's targets, the variance of its error, and the targets' variance.

    Beyond the window the variance is the modelled tail's, whose error may be all of it.
    """
    centre, reach = (float(number) for number in means.bin_edges)
    records = targets.cells.records
    mean, square = float(means.values[0]), float(means.values[1]) / CURVE
    beyond, fourths = (targets.expected_beyond(centre, reach, moment) for moment in (2, 4))
    fourth = square * min(1.0, 3 * square)  # of a number in ±1, at most the square; about 3 squares of a Gaussian's
    of_mean = means.noise**2 + max(square - mean**2, 0.0) / records
    of_square = (means.noise / CURVE) ** 2 + max(fourth - square**2, 0.0) / records + (2 * mean) ** 2 * of_mean
    spread = reach**2 * (square - mean**2 + means.noise**2) + beyond
    variance = reach**4 * of_square + fourths / records + beyond**2
    return centre + reach * mean, reach**2 * of_mean, BoundedMean.exactly(spread, variance)


def _r_squared(square: BoundedMean, spread: BoundedMean, note: str) -> Metric:
    """Return a regression's R² = 1 − MSE/variance: highest with least errors and largest variance, and vice versa."""
    unknown = "the targets' variance is too small for this much noise"
    least = ratio_interval(square.least, spread.most, (square.least_variance, spread.most_variance, 0.0))
    most = ratio_interval(square.most, spread.least, (square.most_variance, spread.least_variance, 0.0))
    if least is None or most is None or spread.value <= 0 or (least.low <= 0 and most.high >= 1):
        return Metric(name=_R2, unknown=unknown)
    low, high = (min(max(end, -_MOST), _MOST) for end in (least.low, most.high))
    value = min(max(square.value / spread.value, low), high)
    interval = Interval(1 - high, 1 - low)
    return bounded_metric(_R2, 1 - value, interval, least=-_MOST, most=1.0, unknown=unknown).noted(note)


def regression_bin_edges(data: Schema, loss: Loss, largest: float, answers: EvaluationAnswers | None) -> BinEdges:
    """Return the edges between errors and between targets, and the clips: by public bounds, then by the answers."""
    bound, count, targets = data.target_bound, 2**RESIDUAL_LEVELS, 2**TARGET_LEVELS
    if answers is None:
        clip, window = (bound + largest) / 4, (0.0, bound)
        errors = (bound + largest) * 2.0 ** (-np.arange(count - 1, 0, -1) / 2)
        edges = np.linspace(-bound, bound, targets + 1)[1:-1]
    else:
        clip, window = (bound + largest) / 4, (0.0, bound)
        errors, edges = np.zeros(count - 1), np.zeros(targets - 1)  # for blocks that are not asked for
        if answers.has("residuals"):
            sizes = _error_sizes(answers)
            clip = min(sizes.clip(), bound + largest)
            half = np.arange(1, count // 2) / (count // 2)  # the root divides at the clip, which measures the rest best
            below = sizes.quantiles((1 - FAR) * (1 - (1 - half) ** 1.5))  # finer where errors are large
            errors = np.concatenate([np.minimum(below, clip), [clip], clip * 2.0 ** (4 * half)])
        if answers.has("targets"):
            seen = _target_distribution(answers)
            window, edges = seen.window(), seen.quantiles(np.arange(1, targets) / targets)
    losses = loss.values(np.array([[-clip], [clip]]), np.zeros(2))
    clips = {"squared": np.array([clip]), "absolute": np.array([clip])}
    worst = np.maximum(losses.max(keepdims=True), TINY)
    return {"residuals": errors, "targets": edges, "target": np.array(window), **clips, "loss": worst}


def regression_block_shares(loss: Loss, last: bool, figures: Figures) -> dict[str, float]:
    """Return each block's share of the sensitivity: before the last round, none for blocks that need bin edges."""
    if not last:
        shares = {"below": 0.1, "residuals": 0.5, "targets": 0.4}
    else:
        shares = {"below": 0.06, "residuals": 0.2, "squared": 0.4, "absolute": 0.1, "target": 0.24}
        shares |= {"loss": 0.0 if loss.is_squared_error else 0.1, "paired": 0.3}
    return needed_shares(shares, regression_figures(loss), figures)


def _answers_of_target(answers: EvaluationAnswers, place: int, name: str) -> EvaluationAnswers:
    """Return the answers about one target of a regression with several, by the names of a single one's blocks."""
    names = {target_block(block.name, place): block.name for block in number_blocks()}
    rounds = [{names[name]: means for name, means in blocks.items() if name in names} for blocks in answers.rounds]
    return EvaluationAnswers(answers.data.for_target(name), Squared(), answers.records, rounds)


def multitarget_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return every target's metrics, in its units, and the mean R²."""
    metrics, explained = [], []
    for place, target in enumerate(answers.data.targets):
        own = regression_metrics(_answers_of_target(answers, place, target))
        explained += [metric for metric in own if metric.name == _R2]
        metrics += [metric.model_copy(update={"name": f"{target}: {metric.name}"}) for metric in own]
    return [*metrics, _mean_r_squared(explained)] if explained else metrics


def _mean_r_squared(explained: list[Metric]) -> Metric:
    """Return the mean of R² with the means of the intervals' ends.

    The deviation of a mean is at most the mean of the deviations, however the errors depend on one another. So for
    Gaussian errors, which the intervals assume, the coverage is at least the same.
    """
    ends = [[getattr(metric, end) for metric in explained] for end in ("value", "low", "high")]
    if any(None in each for each in ends):
        return Metric(name=_R2, unknown=TOO_NOISY)
    value, low, high = (float(np.mean(each)) for each in ends)
    return Metric(name=_R2, value=value, low=low, high=high, note="the mean over the targets")


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
