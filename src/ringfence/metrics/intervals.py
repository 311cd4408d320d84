"""Figures, and intervals that cover sampling and noise with probability 95 %."""

import math

import numpy as np
from scipy.stats import norm

from ringfence.metrics.estimates import Cells
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.public import Public

COVERAGE = 0.95
Z = float(norm.ppf(0.5 + COVERAGE / 2))
DRAWS = 4000


class Figure(Public):
    """A figure and the ends of its interval. Where the interval is all that the figure can be there is no value, and
    `unknown` says why. `note` says what the figure takes for granted, where it does."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    unknown: str = ""
    note: str = ""

    def sentence(self) -> str:
        """Return the figure in words."""
        if self.value is None or self.low is None or self.high is None:
            return f"{self.name} is unknown: {self.unknown}"
        granted = f" ({self.note})" if self.note else ""
        return f"{self.name} {shown(self.value)}, between {shown(self.low)} and {shown(self.high)}{granted}"


def shown(number: float) -> str:
    """Write a number with three digits."""
    if 0.01 <= abs(number) < 10 or number == 0:
        return f"{number:.3f}"
    return f"{float(f'{number:.3g}'):.15g}" if 10 <= abs(number) < 1e6 else f"{number:.3g}"


def figure(name: str, value: float, low: float, high: float, *, least: float, most: float, unknown: str) -> Figure:
    """Return a figure that lies between `least` and `most`, or say why it cannot be told.

    Noise may put the value beyond what it can be. What is left of its interval would then look the more precise the
    farther off it is, so the interval moves along as the value is moved to the bound, which only makes it wider.
    """
    low, high = low - max(value - most, 0.0), high + max(least - value, 0.0)
    if not (math.isfinite(low) and math.isfinite(high)) or (low <= least and high >= most):
        return Figure(name=name, value=None, low=None, high=None, unknown=unknown)
    inside = [float(min(max(number, least), most)) for number in (value, low, high)]
    return Figure(name=name, value=inside[0], low=inside[1], high=inside[2])


NOISE = "the noise is as large as what it hides; more records or more budget would tell"


def normal(
    name: str, value: float, variance: float, *, least: float = -1.0, most: float = 1.0, unknown: str = NOISE
) -> Figure:
    """Return a figure whose error is about Gaussian."""
    reach = Z * math.sqrt(max(variance, 0.0))
    return figure(name, value, value - reach, value + reach, least=least, most=most, unknown=unknown)


def cut_figure(name: str, found: Figure, cap: float, what: str = "loss") -> Figure:
    """Return a figure that says where its losses, or what else, were cut."""
    return found.model_copy(update={"name": name, "note": f"each record's {what} counts at most {shown(cap)}"})


def proportion(name: str, value: float, noise: float, records: int, unknown: str = NOISE) -> Figure:
    """Return a share of the records, of which the noise's variance is known: all p with (p̂ − p)² ≤ z²·(noise +
    p(1 − p)/n), which without noise is Wilson's interval."""
    wider = 1 + Z**2 / records
    middle = (value + Z**2 / (2 * records)) / wider
    reach = math.sqrt(max(middle**2 - (value**2 - Z**2 * noise) / wider, 0.0))
    return figure(name, value, middle - reach, middle + reach, least=0.0, most=1.0, unknown=unknown)


def ratio(
    name: str,
    over: float,
    under: float,
    variances: tuple[float, float, float],
    *,
    least: float = 0.0,
    most: float = 1.0,
    unknown: str,
) -> Figure:
    """Return over/under by Fieller's interval: all r for which over − r·under may be 0.

    `variances` are those of `over`, of `under`, and their covariance. Where `under` may be 0, r can be anything.
    """
    of_over, of_under, both = variances
    a, b, c = under**2 - Z**2 * of_under, over * under - Z**2 * both, over**2 - Z**2 * of_over
    if a <= 0 or under <= 0:
        return Figure(name=name, value=None, low=None, high=None, unknown=unknown)
    reach = math.sqrt(max(b**2 - a * c, 0.0))
    return figure(name, over / under, (b - reach) / a, (b + reach) / a, least=least, most=most, unknown=unknown)


def of_cells(
    name: str,
    cells: Cells,
    over: tuple[float, FloatArray],
    under: tuple[float, FloatArray],
    *,
    least: float = 0.0,
    most: float = 1.0,
    unknown: str,
) -> Figure:
    """Return the ratio of two smooth functions of cells, each given by its value and slopes."""
    variances = cells.variance(over[1]), cells.variance(under[1]), cells.variance(over[1], under[1])
    return ratio(name, over[0], under[0], variances, least=least, most=most, unknown=unknown)


def sum_of_sizes(name: str, cells: Cells, slopes: FloatArray) -> Figure:
    """Return Σ|m| of several sums m of cells, one row of slopes each, with an interval that may be too wide.

    It errs by at most Σ|e| of the errors e of these sums, whose distribution is known: no more than its 95 % quantile.
    """
    values, vectors = np.linalg.eigh(cells.covariance(slopes))
    errors = np.random.default_rng(0).normal(size=(DRAWS, len(slopes))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    reach = float(np.quantile(np.sum(np.abs(errors), axis=1), COVERAGE))
    found = float(np.sum(np.abs(slopes @ cells.shares)))
    return figure(name, found, found - reach, found + reach, least=0.0, most=1.0, unknown=NOISE)
