"""Numbers: errors by size, means of cut errors with what lies beyond the cut, and the spread of targets."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gamma, gammaincc

from ringfence.metrics.estimates import Cells, Found, Means, cells_of_tree, everybody
from ringfence.metrics.intervals import NOISE, Figure, Z, cut_figure, figure, normal, proportion, ratio
from ringfence.metrics.intervals import shown as shown_number
from ringfence.metrics.quantiles import log_quantiles, reached
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import CURVE, RESIDUAL_LEVELS, TARGET_LEVELS
from ringfence.protocol.schema import Numeric

MOST = 1e100
"""Larger than any figure."""

FAR = 0.01
"""The share of errors that a cut is meant to leave beyond it."""

_BODY = (0.3, 0.1)
"""Where the tail is fitted: the shares of records beyond."""


@dataclass(frozen=True)
class Tail:
    """P(|x| > t) = exp(−(t/scale)^power): what is thought to lie beyond a cut."""

    scale: float
    power: float

    @classmethod
    def through(cls, near: float, far: float) -> "Tail":
        """Fit the two sizes that the shares `_BODY` lie beyond."""
        inner, outer = (-math.log(share) for share in _BODY)
        power = math.log(outer / inner) / math.log(max(far / near, 1.05))
        power = min(max(power, 0.7), 4.0)
        return cls(far / outer ** (1 / power), power)

    def size(self, share: float) -> float:
        """Return the size that so large a share lies beyond."""
        return self.scale * float((-math.log(share)) ** (1 / self.power))

    def beyond(self, cut: float, moment: int) -> float:
        """Return E max(|x|^m − cut^m, 0), which is ∫ m·t^(m−1)·P(|x| > t) dt from the cut on."""
        shape = moment / self.power
        whole = moment * self.scale**moment / self.power * float(gamma(shape))
        return whole * float(gammaincc(shape, (cut / self.scale) ** self.power))


@dataclass(frozen=True)
class Sizes:
    """Shares of records by size: of numbers above 0, between edges."""

    cells: Cells
    edges: FloatArray

    def middles(self) -> FloatArray:
        """Return a size for each cell."""
        bounds: FloatArray = np.concatenate([[0.0], self.edges, [2 * self.edges[-1] - self.edges[-2]]])
        return np.asarray((bounds[1:] + bounds[:-1]) / 2)

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Return sizes that those shares of records lie below."""
        return log_quantiles(self.edges, self.cells.shares, levels)

    def tail(self) -> Tail:
        """Return the fitted tail."""
        near, far = self.quantiles(1 - np.array(_BODY))
        return Tail.through(float(near), float(far))


@dataclass(frozen=True)
class Targets:
    """Shares of targets between edges, of which the outermost cells end at the public bound."""

    cells: Cells
    edges: FloatArray
    bound: float

    def _known(self) -> FloatArray:
        return np.concatenate([[-self.bound], self.edges, [self.bound]])

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Return targets that those shares lie below."""
        return np.interp(levels, reached(self.cells.shares), self._known())

    def window(self) -> tuple[float, float]:
        """Return the middle and half of the width of where nearly all targets lie."""
        centre = float(np.mean(self.quantiles(np.array([0.1, 0.9]))))
        return centre, min(1.3 * self.around(centre).size(FAR), 2 * self.bound)

    def around(self, centre: float) -> Tail:
        """Return the tail of the distances from the centre."""
        known, below = self._known(), reached(self.cells.shares)
        distances = np.linspace(0, 2 * self.bound, 20001)
        inside = np.interp(centre + distances, known, below) - np.interp(centre - distances, known, below)
        near, far = np.interp(1 - np.array(_BODY), np.maximum.accumulate(inside), distances)
        return Tail.through(float(near), float(far))


@dataclass(frozen=True)
class _Mean:
    """A mean, the variance of its error by noise and sampling, and what of it lies beyond a cut and is not measured."""

    value: float
    variance: float
    beyond: float = 0.0


def _mean(found: Means, cut: float, moment: int, sizes: Sizes) -> _Mean:
    """Return the mean of |x|^m: of what is cut as it was found, and of the rest as the tail has it."""
    mean, noise = found.scalar()
    tail, scale = sizes.tail(), cut**moment
    powers = np.minimum(sizes.middles(), cut) ** moment
    sampling = sizes.cells.variance(powers) - sizes.cells.within(powers)
    sampling += tail.beyond(cut, 2 * moment) / sizes.cells.records
    beyond = tail.beyond(cut, moment)
    return _Mean(scale * mean + beyond, (scale * noise) ** 2 + sampling, beyond)


def _sizes(found: Found) -> Sizes:
    tree = found.latest("residuals")
    return Sizes(cells_of_tree(everybody(found.records), tree), tree.ruler)


def _targets(found: Found) -> Targets:
    tree = found.latest("targets")
    return Targets(cells_of_tree(everybody(found.records), tree), tree.ruler, found.facts.data.target_bound)


def figures(found: Found) -> list[Figure]:
    """Return all figures, in units of the target."""
    sizes, column = _sizes(found), found.facts.data.target_column
    unit, offset = (column.unit, column.offset) if isinstance(column, Numeric) else (1.0, 0.0)
    below, noise = found.together("below").scalar()
    shown = [proportion("share of targets below the prediction", (1 + below) / 2, (noise / 2) ** 2, found.records)]
    if found.has("squared"):
        squared, absolute = found.latest("squared"), found.latest("absolute")
        cap = float(squared.ruler[0])
        square, size = _mean(squared, cap, 2, sizes), _mean(absolute, cap, 1, sizes)
        inner = _Mean(square.value - square.beyond, square.variance)
        cut = shown_number(unit * cap)
        beyond = f"errors beyond {cut} are taken to fall off as those before it do"
        shown += [
            _shaped("RMSE", square, unit, root=True, note=beyond),
            _shaped("RMSE of cut errors", inner, unit, root=True, note=f"each record's error counts {cut} at most"),
            _shaped("MAE", size, unit, root=False, note=beyond),
        ]
        if found.has("target") and found.has("targets"):
            mean, spread = _target(found.latest("target"), _targets(found))
            note = "targets far from the others are taken to fall off as those before them do"
            shown += [
                _shaped("RMSE of guessing the mean", spread, unit, root=True, note=note),
                normal(
                    "mean of the targets", unit * mean.value + offset, unit**2 * mean.variance, least=-MOST, most=MOST
                ),
                _explained(square, spread),
            ]
    if found.has("loss"):
        loss = found.latest("loss")
        (value, noise), cap = loss.scalar(), float(loss.ruler[0])
        variance = noise**2 + max(value * (1 - value), 0.0) / found.records
        name = f"{found.facts.loss.name} loss of scaled targets"
        shown.append(cut_figure(name, normal(name, cap * value, cap**2 * variance, least=0.0, most=cap), cap))
    return shown


def _shaped(name: str, mean: _Mean, unit: float, *, root: bool, note: str) -> Figure:
    """Return a mean, or its root, in units of the target; what lies beyond the cut may be off by all of it."""
    reach = Z * math.hypot(math.sqrt(mean.variance), mean.beyond)

    def shape(value: float) -> float:
        return unit * (math.sqrt(max(value, 0.0)) if root else max(value, 0.0))

    if mean.value <= reach:  # not even its order of magnitude is known
        return Figure(name=name, value=None, low=None, high=None, unknown=NOISE, note=note)
    ends = shape(mean.value), shape(mean.value - reach), shape(mean.value + reach)
    return figure(name, *ends, least=-1.0, most=MOST, unknown=NOISE).model_copy(update={"note": note})


def _target(found: Means, targets: Targets) -> tuple[_Mean, _Mean]:
    """Return the targets' mean, and their variance: what is beyond the window is the tail's."""
    centre, reach = (float(number) for number in found.ruler)
    records = targets.cells.records
    mean, square = float(found.values[0]), float(found.values[1]) / CURVE
    tail = targets.around(centre)
    beyond = tail.beyond(reach, 2)
    fourth = square * min(1.0, 3 * square)  # of a number in ±1, at most the square; about 3 squares of a Gaussian's
    of_mean = found.noise**2 + max(square - mean**2, 0.0) / records
    of_square = (found.noise / CURVE) ** 2 + max(fourth - square**2, 0.0) / records + (2 * mean) ** 2 * of_mean
    spread = reach**2 * (square - mean**2 + found.noise**2) + beyond
    variance = reach**4 * of_square + tail.beyond(reach, 4) / records
    return _Mean(centre + reach * mean, reach**2 * of_mean), _Mean(spread, variance, beyond)


def _explained(square: _Mean, spread: _Mean) -> Figure:
    """Return R² = 1 − MSE/variance."""
    variances = (square.variance + square.beyond**2, spread.variance + spread.beyond**2, 0.0)
    unknown = "the targets' variance is too small to be seen through the noise"
    of = ratio("R²", square.value, spread.value, variances, least=0.0, most=1e9, unknown=unknown)
    if of.value is None or of.low is None or of.high is None or of.low <= 0:
        return Figure(name="R²", value=None, low=None, high=None, unknown=of.unknown or NOISE)
    return figure("R²", 1 - of.value, 1 - of.high, 1 - of.low, least=-1e9, most=1.0, unknown=unknown)


def ruler(facts: Facts, largest: float, found: Found | None) -> dict[str, FloatArray]:
    """Return where to divide errors and targets and where to cut: by the public bounds, then by what was found."""
    bound, count, targets = facts.data.target_bound, 2**RESIDUAL_LEVELS, 2**TARGET_LEVELS
    if found is None:
        cut, window = (bound + largest) / 4, (0.0, bound)
        errors = (bound + largest) * 2.0 ** (-np.arange(count - 1, 0, -1) / 2)
        edges = np.linspace(-bound, bound, targets + 1)[1:-1]
    else:
        sizes, seen = _sizes(found), _targets(found)
        cut, window = min(sizes.tail().size(FAR), bound + largest), seen.window()
        errors = sizes.quantiles(1 - (1 - np.arange(1, count) / count) ** 1.5)  # finer where they are large
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
