"""Metrics with confidence intervals, and the report of an evaluation that they make up.

The intervals cover sampling and the silos' noise: the value in the population that the records are a sample of.

A metric is usable, and has a value, if its interval's half-width is at most `REACH`; or, of a positive quantity in
units of its own (a loss, an RMSE), at most `RELATIVE_REACH` times the value. Otherwise only the interval is reported.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from ringfence.errors import OutputError
from ringfence.estimates.answers import BlockMeans, CellShares
from ringfence.estimates.display import metrics_frame, plot_metrics
from ringfence.estimates.intervals import COVERAGE, Interval, normal_interval, ratio_interval, wilson_interval
from ringfence.protocol import FloatArray, Public, Unit

TOO_NOISY = "too noisy to report; use more records or a larger epsilon"
_GUESSING = " of guessing "
ABOVE_GUESSING = " above guessing"
CLIPPED = " of clipped errors"
"""What the name of a metric ends with that stands in for one that noise hides."""

TOO_WIDE = "too wide to use; more records or a larger epsilon"
REACH, RELATIVE_REACH = 0.1, 0.25
"""The largest half-width of a usable metric: of a share, and of a positive quantity, relative to its value."""
Precise: TypeAlias = Literal["share", "ratio", "any"]
"""Whether a metric is usable by `REACH`, by `RELATIVE_REACH`, or whatever its interval is (only its sign counts)."""

Figures: TypeAlias = Collection[str] | None
"""Names of the figures that an evaluation is asked for; None means all."""


class Metric(Public):
    """A metric and the ends of its interval. If the interval is too wide to use there is no value, if it is the whole
    range of the metric there is no interval either, and `unknown` says why. `note` states an assumption."""

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unknown: str = ""
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether the metric is precise enough to be stated as a number."""
        return self.value is not None

    @property
    def half_width(self) -> float | None:
        """Half the length of the metric's interval; None if there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def sentence(self) -> str:
        """Return the metric in words."""
        if self.low is None or self.high is None:
            return f"{self.name} is unknown: {self.unknown}"
        if self.value is None:
            return f"{self.name} is {self.unknown}"
        note = f" ({self.note})" if self.note else ""
        ends = f"between {three_digits(self.low)} and {three_digits(self.high)}"
        return f"{self.name} {three_digits(self.value)}, {ends}{note}"

    def noted(self, note: str) -> "Metric":
        """Return the metric with an assumption stated."""
        return self.model_copy(update={"note": note})


def three_digits(number: float) -> str:
    """Write a metric's number with three digits, and without an exponent between 0.01 and a million."""
    if 0.01 <= abs(number) < 10 or number == 0:
        return f"{number:.3f}"
    return f"{float(f'{number:.3g}'):.15g}" if 10 <= abs(number) < 1e6 else f"{number:.3g}"


def is_precise(value: float, interval: Interval, precise: Precise) -> bool:
    """Return whether a number with this interval may be stated as a point."""
    largest = {"share": REACH, "ratio": RELATIVE_REACH * abs(value), "any": math.inf}[precise]
    return (interval.high - interval.low) / 2 <= largest


def bounded_metric(
    name: str,
    value: float,
    interval: Interval | None,
    *,
    least: float,
    most: float,
    unknown: str = TOO_NOISY,
    precise: Precise = "share",
    fitted: float | None = None,
) -> Metric:
    """Return a metric that lies between `least` and `most`; unknown if its interval is the whole range.

    Noise may put the value beyond a bound. Clamping the interval alone would make it the shorter the farther off the
    value is, so the interval is shifted together with the value, which only makes it wider. `fitted` is the value that
    agrees with the other metrics, if there is one: it is the one reported, and the interval includes it.
    """
    if interval is None:
        return Metric(name=name, unknown=unknown)
    low, high = interval.low - max(value - most, 0.0), interval.high + max(least - value, 0.0)
    if not (math.isfinite(low) and math.isfinite(high)) or (low <= least and high >= most):
        return Metric(name=name, unknown=unknown)
    shown = value if fitted is None else fitted
    value, low, high = (float(min(max(number, least), most)) for number in (shown, min(low, shown), max(high, shown)))
    # By the interval before it is clamped: else values near a bound would pass, and only those.
    if not is_precise(value, interval, precise):
        ends = f"between {three_digits(low)} and {three_digits(high)}"
        return Metric(name=name, low=low, high=high, unknown=f"{ends}: {TOO_WIDE}")
    return Metric(name=name, value=value, low=low, high=high)


def normal_metric(
    name: str, value: float, variance: float, *, least: float = -1.0, most: float = 1.0, precise: Precise = "share"
) -> Metric:
    """Return a metric with a Gaussian error."""
    return bounded_metric(name, value, normal_interval(value, variance), least=least, most=most, precise=precise)


def clipped_mean_metric(
    name: str, value: float, variance: float, clip: float, *, least: float = 0.0, what: str = "loss"
) -> Metric:
    """Return the mean of losses, or of something else, that were clipped."""
    metric = normal_metric(name, value, variance, least=least, most=clip, precise="any" if least < 0 else "ratio")
    return metric.noted(clipping_note(clip, what))


def clipped_loss_metric(name: str, means: BlockMeans, records: int) -> Metric:
    """Return the mean of clipped losses; the sampling variance of numbers in 0 to 1 with mean m is at most m(1 − m)."""
    (mean, noise), clip = means.scalar(), means.clip
    variance = noise**2 + max(mean * (1 - mean), 0.0) / records
    return clipped_mean_metric(name, clip * mean, clip**2 * variance, clip)


def clipping_note(clip: float, what: str) -> str:
    """State where each record's contribution to a metric was clipped."""
    return f"each record's {what} counts at most {three_digits(clip)}"


def share_metric(
    name: str, value: float, noise_variance: float, records: int, *, fitted: float | None = None
) -> Metric:
    """Return a share of the records, with Wilson's interval."""
    interval = wilson_interval(value, noise_variance, records)
    return bounded_metric(name, value, interval, least=0.0, most=1.0, fitted=fitted)


def share_of_cells(name: str, cells: CellShares, slope: FloatArray) -> Metric:
    """Return a sum of cells' shares times `slope`, with Wilson's interval."""
    fitted = float(slope @ cells.fitted)
    return share_metric(name, cells.total(slope), cells.noise_variance(slope), cells.records, fitted=fitted)


def difference_of_cells(name: str, cells: CellShares, slope: FloatArray) -> Metric:
    """Return a sum of cells' shares times `slope`, which may be negative, with a Gaussian error."""
    value, fitted = cells.total(slope), float(slope @ cells.fitted)
    interval = normal_interval(value, cells.variance(slope))
    return bounded_metric(name, value, interval, least=-1.0, most=1.0, fitted=fitted)


def ratio_of_shares(
    name: str, cells: CellShares, over: FloatArray, under: FloatArray, unknown: str = TOO_NOISY
) -> Metric:
    """Return the ratio of two sums of shares (Fieller)."""
    variances = cells.variance(over), cells.variance(under), cells.variance(over, under)
    interval = ratio_interval(cells.total(over), cells.total(under), variances)
    value = cells.total(over) / cells.total(under) if interval else 0.0
    fitted = float(over @ cells.fitted) / max(float(under @ cells.fitted), 1e-12)
    return bounded_metric(name, value, interval, least=0.0, most=1.0, unknown=unknown, fitted=fitted)


FigureBlocks: TypeAlias = Mapping[str, tuple[str, ...]]
"""The blocks of an answer that each figure of an evaluation needs, by the figure's name."""
_COMPARED = ("paired", "right")


def needed_shares(shares: Mapping[str, float], needs: FigureBlocks, figures: Figures) -> dict[str, float]:
    """Return the shares of the blocks that some figure needs, and of those that compare two models."""
    kept = {block for name in needs if figures is None or name in figures for block in needs[name]}
    return {name: share for name, share in shares.items() if name in kept or name in _COMPARED}


def is_asked_for(metric: str, figures: Figures) -> bool:
    """Return whether a metric is one of the figures asked for, or comes with one: guessing's, or of clipped errors."""
    own = metric.removesuffix(ABOVE_GUESSING).partition(_GUESSING)[0].removesuffix(CLIPPED)
    return figures is None or own in figures or metric in figures or own.rpartition(": ")[2] in figures


class ConfusionCell(Public):
    """The share of the records of one class that are predicted as another."""

    actual: str
    predicted: str
    share: Metric


class RocPoint(Public):
    """The shares of both classes with scores above a threshold."""

    threshold: float
    false_positive_rate: Metric
    true_positive_rate: Metric


class CalibrationBin(Public):
    """The mean predicted probability of some records, and how often the event occurred."""

    predicted: float
    share: Metric


class ModelMetrics(Public):
    """All metrics of a model on so many records (persons, where they are the unit)."""

    records: int
    metrics: tuple[Metric, ...]
    confusion: tuple[ConfusionCell, ...] = ()
    roc: tuple[RocPoint, ...] = ()
    calibration: tuple[CalibrationBin, ...] = ()

    def metric(self, name: str) -> Metric:
        """Return a metric by its name; KeyError if there is none."""
        found = {metric.name: metric for metric in self.metrics}
        if name not in found:
            raise KeyError(f"there is no metric '{name}', only {', '.join(found)}; `figures` asks for others")
        return found[name]

    def to_frame(self) -> Any:
        """Return the metrics as a table of pandas, a row each: value, ends of the interval, and a note."""
        return metrics_frame(self.metrics)

    @property
    def score(self) -> Metric:
        """The metric that scikit-learn calls score: accuracy or R²; unknown for survival times.

        Where noise hides how large a few errors are, the R² of clipped errors.
        """
        unknown = Metric(name="score", unknown="there is no single score for times")
        scores = [metric for metric in self.metrics if metric.name.removesuffix(CLIPPED) in ("accuracy", "R²")]
        return scores[-1] if scores else unknown

    def sentences(self) -> list[str]:
        """Return the metrics in words, each beside what guessing gives, if that is known, or those that stand in."""
        guesses = {name: (what, m) for m in self.metrics for name, _, what in [m.name.partition(_GUESSING)] if what}
        lines, names = [], {metric.name for metric in self.metrics}
        for metric in self.metrics:
            if _GUESSING in metric.name or metric.name + CLIPPED in names:
                continue
            what, guess = guesses.get(metric.name.removesuffix(CLIPPED), ("", metric))
            known = f"; guessing {what} gives {three_digits(guess.value)}" if what and guess.value is not None else ""
            lines.append(metric.sentence() + known)
        return lines


class EvaluationReport(Public):
    """The metrics over all silos' records and per silo. Each interval has probability `coverage`."""

    kind: Literal["ringfence-evaluation"] = "ringfence-evaluation"
    format: Literal[1] = 1
    unit: Unit
    coverage: float = COVERAGE
    together: ModelMetrics
    silos: dict[str, ModelMetrics]
    positive: str | None = None
    """The class that precision, recall and the share of positives speak of: the last of two. None if there is none."""

    @property
    def positive_words(self) -> str:
        """The positive class in words, after a semicolon; empty if there is none."""
        return f"; positive class: '{self.positive}'" if self.positive is not None else ""

    @property
    def _head(self) -> str:
        """What the metrics of the evaluation were measured on, and the class that they speak of."""
        measured = f"Measured privately on {self.together.records} {self.unit}s, with {self.coverage:.0%} intervals"
        return measured + self.positive_words

    def __getitem__(self, name: str) -> Metric:
        """Return a metric over all silos' records by its name, such as "accuracy"."""
        return self.together.metric(name)

    def to_frame(self) -> Any:
        """Return the metrics over all silos' records as a table of pandas; `silos[NAME].to_frame()` has a silo's."""
        return self.together.to_frame()

    def plot(self) -> Any:
        """Draw every known metric with its interval, of all silos' records and of each silo's, and return the axes."""
        known = {metric.name: metric.value for metric in self.together.metrics if metric.value is not None}
        names = tuple(name for name in known if _GUESSING not in name)
        if not names:
            raise OutputError(f"There is no metric to draw: all are {TOO_NOISY}.")
        guesses = {name.partition(_GUESSING)[0]: value for name, value in known.items() if _GUESSING in name}
        each = self.silos if len(self.silos) > 1 else {}
        return plot_metrics(self._head, {"all silos": self.together, **each}, names, guesses)

    def __str__(self) -> str:
        """Return the metrics of the evaluation in words, one per line."""
        return "\n  ".join([self._head, *self.together.sentences()])
