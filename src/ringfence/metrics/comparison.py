"""Which of several models is best: where to cut their differences, and the differences with intervals."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from ringfence.metrics.estimates import Heard, Means, cells_of_tree, everybody
from ringfence.metrics.intervals import COVERAGE, NOISE, Figure, cut_figure, figure
from ringfence.metrics.quantiles import log_quantiles
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.questions import Comparison
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.comparison import SIZE_LEVELS
from ringfence.protocol.questions.evaluation import CURVE

ABOVE = "loss above the best candidate's"


def edges(facts: Facts, models: FloatArray) -> FloatArray:
    """Return where to divide sizes before anything is known: by roots of 2, from the largest that is possible.

    A record's losses under two models differ by L·|w − w'| at most, with L over weights as large as these.
    """
    reach = float(np.max(np.linalg.norm(models, axis=1)))
    lipschitz = facts.loss.constants_on(facts.data, reach).lipschitz
    largest = lipschitz * float(np.linalg.norm(models - models.mean(axis=0)))
    result: FloatArray = max(largest, TINY) * 2.0 ** (-np.arange(2**SIZE_LEVELS - 2, -1, -1) / 2)
    return result


def cut(question: Comparison, asked: FloatArray, sizes: Heard, sigma: float) -> float:
    """Return where to cut differences, after their sizes were counted between the edges `asked`.

    What lies beyond a cut is lost, a cut's length of each such record about, and the noise, `sigma` on each number of
    what is asked next, is in proportion to the cut. So as many may lie beyond as the noise is large, or as cannot be
    seen in the counts; never more than half.
    """
    tree = Means(sizes.vector / question.scale, sizes.sigma / question.scale, asked)
    cells = cells_of_tree(everybody(sizes.records), tree)
    upper_half = (np.arange(2**SIZE_LEVELS) >= 2 ** (SIZE_LEVELS - 1)) * 1.0
    beyond = max(2 * sigma * math.sqrt(question.models - 1), math.sqrt(cells.within(upper_half)))
    return float(log_quantiles(asked, cells.shares, np.array([1 - min(beyond, 0.5)]))[0])


def simultaneous(models: int) -> float:
    """Return how many deviations to either side all pairs of so many models need to be covered together."""
    pairs = models * (models - 1) / 2
    return float(norm.ppf(1 - (1 - COVERAGE) / (2 * pairs)))


def hidden(models: int, sigma: float) -> float:
    """Return the difference of two models' losses that noise of that size alone may hide, as a part of the cut."""
    return simultaneous(models) * math.sqrt(2) * sigma / Comparison(models=models, part="losses").scale


@dataclass(frozen=True)
class Compared:
    """The models' mean losses on some records, but for what is common to all: in loss, cut, beside the noise in each,
    and the mean square of a record's differences."""

    records: int
    cut: float
    losses: FloatArray
    noise: float
    square: float

    @classmethod
    def of(cls, question: Comparison, cut: float, heard: Heard) -> "Compared":
        """Read an answer to the question for losses."""
        numbers = heard.vector / question.scale
        noise, square = heard.sigma / question.scale, max(float(numbers[-1]) / CURVE, 0.0)
        return cls(heard.records, cut, cut * numbers[:-1], cut * noise, cut**2 * square)

    @property
    def best(self) -> int:
        """The number of the model with the least loss."""
        return int(np.argmin(self.losses))

    def above(self, model: int) -> Figure:
        """Return by how much a model's loss is above the best one's.

        With probability `COVERAGE` the intervals of all pairs of models cover their differences, so those of the pairs
        with the best do, though the same records chose it (Bonferroni). How two losses vary over records is not known,
        but as much as twice the mean square of all differences at most: an interval may be too wide.
        """
        z = simultaneous(len(self.losses))
        reach = z * math.sqrt(2 * (self.noise**2 + self.square / self.records)) if model != self.best else 0.0
        value, most = float(self.losses[model] - self.losses[self.best]), math.sqrt(2) * self.cut
        found = figure(ABOVE, value, value - reach, value + reach, least=-most, most=most, unknown=NOISE)
        return cut_figure(ABOVE, found, self.cut, "vector of differences")
