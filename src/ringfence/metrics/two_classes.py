"""Two classes: shares by class, side of the threshold and score; and what follows from them."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ringfence.metrics.average_precision import average_precision
from ringfence.metrics.estimates import Cells, Found, Means, cells_of_tree
from ringfence.metrics.intervals import NOISE, Figure, cut_figure, normal, of_cells, proportion, sum_of_sizes
from ringfence.metrics.quantiles import log_quantiles
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import MARGIN, SCORE_LEVELS

LEAVES = 2**SCORE_LEVELS
BINS = 2 * LEAVES
FAR = 0.03
"""The least share of the records that can be seen through the noise, where it decides on a cut."""

RARE = "there are too few records of one class to be seen through the noise"


@dataclass(frozen=True)
class Scores:
    """Shares by class (the first category's records first) and bin, from the lowest score to the highest.

    `edges` are the scores between the bins: one fewer, with the threshold 0 in the middle.
    """

    cells: Cells
    edges: FloatArray

    @classmethod
    def of(cls, found: Found) -> "Scores":
        """Read the sides of the threshold from all rounds, and how scores lie on each side from the last."""
        confusion, tree = found.together("confusion"), found.latest("scores")
        class_and_side = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
        slopes = np.column_stack([class_and_side.prod(axis=1), class_and_side / MARGIN]) / 4
        masses = Cells(0.25 + slopes @ confusion.values, confusion.noise**2 * slopes @ slopes.T, found.records)
        below, above = np.split(tree.ruler, 2)
        order = np.concatenate([np.arange(LEAVES)[::-1], LEAVES + np.arange(LEAVES)])
        order = np.concatenate([order, BINS + order])
        cells = cells_of_tree(masses, tree)
        return cls(
            Cells(cells.shares[order], cells.noise[np.ix_(order, order)], found.records),
            np.concatenate([-below[::-1], [0.0], above]),
        )

    def middles(self) -> FloatArray:
        """Return a score for each bin: its middle; of the outermost, as far beyond its edge as the next is wide."""
        edges = self.edges
        outer = [2 * edges[0] - edges[1], *edges, 2 * edges[-1] - edges[-2]]
        return np.asarray((np.array(outer[1:]) + np.array(outer[:-1])) / 2)


def _of(positive: float, above: int | None = None) -> FloatArray:
    """Return 1 for the cells of a class, on one side of the threshold or on both."""
    one = np.zeros((2, 2, LEAVES))
    one[int(positive), slice(None) if above is None else above] = 1.0
    return one.reshape(-1)


def auc(scores: Scores) -> Figure:
    """Return the probability that a positive record has the higher score; equal bins count half."""
    negative, positive = np.split(scores.cells.shares, 2)
    beaten = np.cumsum(negative) - negative / 2
    beating = np.cumsum(positive[::-1])[::-1] - positive / 2
    over = float(positive @ beaten), np.concatenate([beating, beaten])
    under = float(negative.sum() * positive.sum()), np.repeat([positive.sum(), negative.sum()], BINS)
    return of_cells("AUC", scores.cells, over, under, unknown=RARE)


def figures(found: Found) -> list[Figure]:
    """Return all figures."""
    scores = Scores.of(found)
    cells, records = scores.cells, found.records
    right, taken, positive, hit = _of(1, 1) + _of(0, 0), _of(1, 1) + _of(0, 1), _of(1), _of(1, 1)
    share = float(positive @ cells.shares)
    larger = positive if share > 0.5 else 1 - positive

    def whole(name: str, slope: FloatArray) -> Figure:
        return proportion(name, float(slope @ cells.shares), cells.within(slope), records)

    def part(name: str, over: FloatArray, under: FloatArray, unknown: str = RARE) -> Figure:
        both = [(float(slope @ cells.shares), slope) for slope in (over, under)]
        return of_cells(name, cells, *both, unknown=unknown)

    gain = right - larger
    shown = [
        whole("accuracy", right),
        whole("accuracy of guessing the larger class", larger),
        normal("accuracy above guessing", float(gain @ cells.shares), cells.variance(gain)),
        whole("share of positives", positive),
        part("precision", hit, taken, "too few records are predicted positive to be seen through the noise"),
        part("recall", hit, positive),
        part("specificity", _of(0, 0), 1 - positive),
        part("F1", 2 * hit, taken + positive),
        auc(scores),
        average_precision(cells, RARE),
    ]
    wrong_by = np.concatenate([scores.middles(), -scores.middles()])
    losses = found.facts.loss.values(-wrong_by[:, None], np.ones(len(wrong_by)))
    if found.facts.loss.is_log_loss:
        shown += [_guessed(share, cells.variance(positive)), *calibration(scores)]
        if found.has("brier"):
            shown.append(_cut_mean("Brier score", found.together("brier"), 1.0, expit(wrong_by) ** 2, cells))
    if found.has("loss"):
        loss = found.latest("loss")
        name = "log loss" if found.facts.loss.is_log_loss else f"{found.facts.loss.name} loss"
        shown.append(_cut_mean(name, loss, float(loss.ruler[0]), losses, cells))
    return shown


def _guessed(share: float, variance: float) -> Figure:
    """Return the log loss of the best constant: the entropy of the shares."""
    kept = min(max(share, 1e-6), 1 - 1e-6)
    entropy = -kept * np.log(kept) - (1 - kept) * np.log1p(-kept)
    slope = np.log1p(-kept) - np.log(kept)
    return normal(
        "log loss of guessing the classes' shares",
        float(entropy),
        float(slope**2 * variance),
        least=0.0,
        most=float(np.log(2)),
    )


def _cut_mean(name: str, found: Means, cap: float, losses: FloatArray, cells: Cells) -> Figure:
    """Return the mean of losses that are cut at the cap; how they vary is seen in the cells."""
    mean, noise = found.scalar()
    losses = np.minimum(losses, cap)
    variance = (cap * noise) ** 2 + cells.variance(losses) - cells.within(losses)
    return cut_figure(name, normal(name, cap * mean, variance, least=0.0, most=cap), cap)


def confusion(found: Found) -> list[tuple[int, int, Figure]]:
    """Return the share of the records with each class and prediction."""
    cells = Scores.of(found).cells
    return [
        (
            own,
            side,
            proportion("share", float(_of(own, side) @ cells.shares), cells.within(_of(own, side)), found.records),
        )
        for own in (0, 1)
        for side in (0, 1)
    ]


def calibration(scores: Scores) -> list[Figure]:
    """Return the expected calibration error, and by how much predicted probabilities are too high on average."""
    chance = expit(scores.middles())
    over = np.concatenate([chance, chance - 1])
    bins = np.tile(np.kron(np.eye(BINS // 4), np.ones(4)), 2)
    return [
        normal("predicted too high by", float(over @ scores.cells.shares), scores.cells.variance(over)),
        sum_of_sizes("expected calibration error", scores.cells, bins * over),
    ]


def curve(scores: Scores) -> list[tuple[float, Figure, Figure]]:
    """Return the ROC curve: at each edge, the shares of negative and of positive records with higher scores."""
    cells = scores.cells

    def rate(name: str, positive: int, number: int) -> Figure:
        whole = _of(positive)
        above = np.tile(np.arange(BINS) > number, 2) * whole
        over, under = (float(slope @ cells.shares) for slope in (above, whole))
        return of_cells(name, cells, (over, above), (under, whole), unknown=RARE)

    return [
        (float(edge), rate("false positive rate", 0, number), rate("true positive rate", 1, number))
        for number, edge in enumerate(scores.edges)
    ]


def calibration_curve(scores: Scores) -> list[tuple[float, Figure]]:
    """Return, for every four bins, the mean predicted probability and the share of positives."""
    points = []
    cells, chance = scores.cells, expit(scores.middles())
    for number in range(BINS // 4):
        here = np.arange(BINS) // 4 == number
        whole, positive = np.tile(here, 2) * 1.0, np.concatenate([0.0 * here, 1.0 * here])
        weights = np.maximum(cells.shares.reshape(2, BINS).sum(axis=0), 1e-9) * here
        over, under = (float(slope @ cells.shares) for slope in (positive, whole))
        share = of_cells("share of positives", cells, (over, positive), (under, whole), unknown=NOISE)
        points.append((float(weights @ chance / weights.sum()), share))
    return points


def ruler(facts: Facts, largest: float, found: Found | None) -> dict[str, FloatArray]:
    """Return where to divide scores and cut losses: by halves of the largest score, then evenly, classes alike."""
    if found is None:
        edges = largest * 2.0 ** -np.arange(LEAVES - 1, 0, -1)
        return {"scores": np.concatenate([edges, edges]), "loss": np.array([2.0])}
    scores = Scores.of(found)
    by_class = scores.cells.shares.reshape(2, 2, LEAVES)
    sides = (by_class / np.maximum(by_class.sum(axis=(1, 2), keepdims=True), 0.05)).sum(axis=0)
    middle, even = LEAVES - 1, np.arange(1, LEAVES) / LEAVES
    below, above = -scores.edges[:middle][::-1], scores.edges[middle + 1 :]
    wrong = (below, by_class[1, 0][::-1]), (above, by_class[0, 1])
    least = max(FAR, 2 * max(scores.cells.within(_of(own, 1 - own)) ** 0.5 for own in (0, 1)))
    far = max(_far(edges, part, least) for edges, part in wrong)
    return {
        "scores": np.concatenate([log_quantiles(below, sides[0][::-1], even), log_quantiles(above, sides[1], even)]),
        "loss": np.maximum(facts.loss.values(np.array([[-2.0 * far]]), np.ones(1)), 1.0),
    }


def _far(edges: FloatArray, wrong: FloatArray, least: float) -> float:
    """Return the score that a fifth of these, or that least share of all records if it is more, lie beyond."""
    beyond = max(0.2, least / max(float(wrong.sum()), least))
    return float(log_quantiles(edges, wrong, np.array([1 - beyond]))[0])


def shares(facts: Facts, *, last: bool) -> dict[str, float]:
    """Return how much of the sensitivity each block gets: before the last round, none goes where a ruler is missing."""
    if not last:
        return {"confusion": 0.4, "scores": 0.6}
    return {"confusion": 0.3, "scores": 0.55, "brier": 0.08, "loss": 0.07, "paired": 0.15, "right": 0.15}
