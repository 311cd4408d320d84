"""Numbers: errors by size, means of cut errors and of what lies beyond the cut, and the spread of targets."""

import math

import numpy as np

from ringfence.metrics.estimates import Found, Means, cells_of_tree, everybody
from ringfence.metrics.intervals import NOISE, Figure, cut_figure, figure, normal, proportion, ratio
from ringfence.metrics.intervals import shown as shown_number
from ringfence.metrics.tails import FAR, Bounded, Sizes, Targets, most_beyond
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import CURVE, RESIDUAL_LEVELS, TARGET_LEVELS

MOST = 1e100
"""Larger than any figure."""


def _sizes(found: Found) -> Sizes:
    tree = found.latest("residuals")
    return Sizes(cells_of_tree(everybody(found.records), tree), tree.ruler)


def _targets(found: Found) -> Targets:
    tree = found.latest("targets")
    return Targets(cells_of_tree(everybody(found.records), tree), tree.ruler, found.facts.data.target_bound)


def figures(found: Found) -> list[Figure]:
    """Return all figures, in units of the target."""
    unit, offset = found.facts.data.target_scaling
    shown = [*_errors(found, unit, offset), _below(found)] if found.has("squared") else [_below(found)]
    if found.has("loss"):
        loss = found.latest("loss")
        (value, noise), cap = loss.scalar(), float(loss.ruler[0])
        variance = noise**2 + max(value * (1 - value), 0.0) / found.records
        name = f"{found.facts.loss.name} loss of scaled targets"
        shown.append(cut_figure(name, normal(name, cap * value, cap**2 * variance, least=0.0, most=cap), cap))
    return shown


def _below(found: Found) -> Figure:
    """Return the coverage: of a model of a quantile, beside what it aims at."""
    below, noise = found.together("below").scalar()
    name = "share of targets below the prediction"
    share = proportion(name, (1 + below) / 2, (noise / 2) ** 2, found.records)
    aim = found.facts.loss.aimed_share
    return share.model_copy(update={"note": "" if aim is None else f"the model aims at {aim:g}"})


def _errors(found: Found, unit: float, offset: float) -> list[Figure]:
    sizes, squared, absolute = _sizes(found), found.latest("squared"), found.latest("absolute")
    cap = float(squared.ruler[0])
    square, size = _mean(squared, cap, 2, sizes), _mean(absolute, cap, 1, sizes)
    inner = Bounded(square.least, square.least, square.least_variance, square.least, square.least_variance)
    cut = shown_number(unit * cap)
    tail = f"if errors of x times {cut} are at most 1/x³ as frequent as those beyond {cut}"
    shown = [
        error := _shaped("RMSE", square, unit, root=True, most=math.sqrt(cap**2 + most_beyond(cap, 2)), note=tail),
        _shaped("RMSE of cut errors", inner, unit, root=True, most=cap, note=f"each error counts at most {cut}"),
        _shaped("MAE", size, unit, root=False, most=cap + most_beyond(cap, 1), note=tail),
    ]
    if found.has("target") and found.has("targets"):
        mean, variance, spread = _target(found.latest("target"), _targets(found))
        note = "targets far from the others are taken to fall off as those before them do"
        own, most = unit * mean + offset, 2 * found.facts.data.target_bound
        shown += [
            _shaped("RMSE of guessing the mean", spread, unit, root=True, most=most, note=note),
            normal("mean of the targets", own, unit**2 * variance, least=-MOST, most=MOST),
            _explained(square, spread, tail) if error.value is not None else error.model_copy(update={"name": "R²"}),
        ]
    return shown


def _mean(found: Means, cut: float, moment: int, sizes: Sizes) -> Bounded:
    """Return the mean of |x|^m: at least that of what is cut; at most, with the heaviest tail beyond the cut."""
    (mean, deviation), (cells, middles) = found.scalar(), sizes.cut(cut)
    powers, heaviest = middles**moment, np.append(np.zeros(len(middles) - 1), most_beyond(cut, moment))
    inside, noise = cut**moment * mean, (cut**moment * deviation) ** 2

    def sampling(slopes: FloatArray) -> float:
        return cells.variance(slopes) - cells.within(slopes)

    return Bounded(
        value=inside + sizes.expected_beyond(cut, moment),
        least=inside,
        least_variance=noise + sampling(powers),
        most=inside + float(heaviest @ cells.shares),
        most_variance=noise + cells.within(heaviest) + sampling(powers + heaviest),
    )


def _shaped(name: str, mean: Bounded, unit: float, *, root: bool, most: float, note: str) -> Figure:
    """Return a mean, or its root, in units of the target."""

    def shape(value: float) -> float:
        return unit * (math.sqrt(max(value, 0.0)) if root else max(value, 0.0))

    low, high = (shape(end) for end in mean.ends())
    value = min(max(shape(mean.value), low), high)
    told = figure(name, value, low, high, least=0.0, most=unit * most, unknown=NOISE)
    return told.model_copy(update={"note": note})


def _target(found: Means, targets: Targets) -> tuple[float, float, Bounded]:
    """Return the targets' mean, the variance of its error, and their variance: what is beyond the window is the tail's,
    and may be off by all of it."""
    centre, reach = (float(number) for number in found.ruler)
    records = targets.cells.records
    mean, square = float(found.values[0]), float(found.values[1]) / CURVE
    beyond, fourths = (targets.expected_beyond(centre, reach, moment) for moment in (2, 4))
    fourth = square * min(1.0, 3 * square)  # of a number in ±1, at most the square; about 3 squares of a Gaussian's
    of_mean = found.noise**2 + max(square - mean**2, 0.0) / records
    of_square = (found.noise / CURVE) ** 2 + max(fourth - square**2, 0.0) / records + (2 * mean) ** 2 * of_mean
    spread = reach**2 * (square - mean**2 + found.noise**2) + beyond
    variance = reach**4 * of_square + fourths / records + beyond**2
    return centre + reach * mean, reach**2 * of_mean, Bounded(spread, spread, variance, spread, variance)


def _explained(square: Bounded, spread: Bounded, note: str) -> Figure:
    """Return R² = 1 − MSE/variance: at most with the least errors and the largest variance, at least the other way."""
    unknown = "the targets' variance is too small to be seen through the noise"

    def unexplained(over: float, under: float, *variances: float) -> Figure:
        return ratio("R²", over, under, (variances[0], variances[1], 0.0), least=-MOST, most=MOST, unknown=unknown)

    fewest = unexplained(square.least, spread.most, square.least_variance, spread.most_variance).low
    largest = unexplained(square.most, spread.least, square.most_variance, spread.least_variance).high
    if fewest is None or largest is None or spread.value <= 0 or (fewest <= 0 and largest >= 1):
        return Figure(name="R²", value=None, low=None, high=None, unknown=unknown)
    value = min(max(square.value / spread.value, fewest), largest)
    told = figure("R²", 1 - value, 1 - largest, 1 - fewest, least=-MOST, most=1.0, unknown=unknown)
    return told.model_copy(update={"note": note})


def ruler(facts: Facts, largest: float, found: Found | None) -> dict[str, FloatArray]:
    """Return where to divide errors and targets and where to cut: by the public bounds, then by what was found."""
    bound, count, targets = facts.data.target_bound, 2**RESIDUAL_LEVELS, 2**TARGET_LEVELS
    if found is None:
        cut, window = (bound + largest) / 4, (0.0, bound)
        errors = (bound + largest) * 2.0 ** (-np.arange(count - 1, 0, -1) / 2)
        edges = np.linspace(-bound, bound, targets + 1)[1:-1]
    else:
        sizes, seen = _sizes(found), _targets(found)
        cut, window = min(sizes.far(), bound + largest), seen.window()
        half = np.arange(1, count // 2) / (count // 2)  # the root divides at the cut: so is the share beyond seen best
        below = sizes.quantiles((1 - FAR) * (1 - (1 - half) ** 1.5))  # finer where they are large
        errors = np.concatenate([np.minimum(below, cut), [cut], cut * 2.0 ** (4 * half)])
        edges = seen.quantiles(np.arange(1, targets) / targets)
    losses = facts.loss.values(np.array([[-cut], [cut]]), np.zeros(2))
    cuts = dict.fromkeys(("squared", "absolute"), np.array([cut])) | {
        "loss": np.maximum(losses.max(keepdims=True), TINY)
    }
    return {"residuals": errors, "targets": edges, "target": np.array(window), **cuts}


def shares(facts: Facts, *, last: bool) -> dict[str, float]:
    """Return how much of the sensitivity each block gets: before the last round, none goes where a ruler is missing."""
    if not last:
        return {"below": 0.1, "residuals": 0.5, "targets": 0.4}
    own = 0.0 if facts.loss.is_squared_error else 0.1
    return {
        "below": 0.06,
        "residuals": 0.2,
        "squared": 0.4,
        "absolute": 0.1,
        "target": 0.24,
        "loss": own,
        "paired": 0.3,
    }
