"""Metrics of classifiers of two classes, by score.

Average precision: let a be the share of records that are positive and above a threshold, and b(a) that of negative ones
above it. Average precision is the mean of a/(a + b(a)) over a from 0 to the share of positives. It falls with b at
every a, so simultaneous bands for all cumulative shares bound it. The first precisions, which divide by nearly 0, need
not be estimated. The interval is wider than necessary: bands hold everywhere, and the order within a cell is unknown.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ringfence.estimates.answers import (
    BinEdges,
    BlockMeans,
    CellShares,
    EvaluationAnswers,
    fitted_leaves,
    leaf_shares,
    log_quantiles,
    possible_shares,
)
from ringfence.estimates.intervals import (
    Interval,
    absolute_sum_half_width,
    half_width,
    ratio_interval,
    simultaneous_half_widths,
)
from ringfence.estimates.metrics import (
    REACH,
    FigureBlocks,
    Figures,
    Metric,
    bounded_metric,
    clipped_loss_metric,
    clipped_mean_metric,
    difference_of_cells,
    needed_shares,
    normal_metric,
    ratio_of_shares,
    share_of_cells,
)
from ringfence.protocol import FloatArray, Loss, Schema
from ringfence.protocol.queries.evaluation import MARGIN, SCORE_LEVELS

LEAVES = 2**SCORE_LEVELS
BINS = 2 * LEAVES
_VISIBLE = 0.03
"""The smallest share of the records that noise allows to base a clip on."""
_AUC_NOISE = 9.5 / 0.875
"""Noise variance of an AUC over that of the numbers in a round's answer, for two classes of equal size."""
_ENDS = 65
"""Shares of positives, within their bounds, at which average precision is computed."""

RARE = "too few records of one class for this much noise"
CONFUSION, ROC, CALIBRATION = "confusion matrix", "ROC curve", "calibration curve"
BRIER, ECE, _BIAS = "Brier score", "expected calibration error", "mean predicted minus observed"


def binary_figures(loss: Loss) -> FigureBlocks:
    """Return the blocks that each figure of a classifier of two classes needs."""
    sides, scores = ("confusion",), ("confusion", "scores")
    counted = ("accuracy", "share of positives", "precision", "recall", "specificity", "F1", CONFUSION)
    ranked = ("AUC", "average precision", ROC)
    likely: FigureBlocks = {_BIAS: scores, ECE: scores, CALIBRATION: scores, BRIER: ("brier",)}
    return {
        **dict.fromkeys(counted, sides),
        **dict.fromkeys(ranked, scores),
        **(likely if loss.is_log_loss else {}),
        loss_name(loss): ("loss",),
    }


@dataclass(frozen=True)
class ScoreShares:
    """Shares by class (the first category's records first) and bin, from the lowest score to the highest.

    `edges` are the scores between the bins: one fewer, with the threshold 0 in the middle.
    """

    cells: CellShares
    edges: FloatArray

    @classmethod
    def of(cls, answers: EvaluationAnswers) -> "ScoreShares":
        """Read the sides of a classifier's threshold from all rounds, and the scores on each side from the last."""
        confusion = answers.averaged("confusion")
        class_and_side = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
        slopes = np.column_stack([class_and_side.prod(axis=1), class_and_side / MARGIN]) / 4
        shares = 0.25 + slopes @ confusion.values
        whitened = np.column_stack([class_and_side.prod(axis=1), MARGIN * class_and_side]).T
        sides = possible_shares(1.0, whitened, confusion.values)
        groups = CellShares(shares, confusion.noise**2 * slopes @ slopes.T, answers.records)
        asked = answers.has("scores")  # without a tree, cells of equal shares: only their sums on each side are used
        nothing = BlockMeans(np.zeros(4 * (LEAVES - 1)), 0.0, np.zeros(2 * (LEAVES - 1)))
        tree = answers.latest("scores") if asked else nothing
        below, above = np.split(tree.bin_edges, 2)
        order = np.concatenate([np.arange(LEAVES)[::-1], LEAVES + np.arange(LEAVES)])
        order = np.concatenate([order, BINS + order])
        cells, fit = (
            leaf_shares(groups, tree),
            fitted_leaves(sides, tree) if asked else np.repeat(sides, LEAVES) / LEAVES,
        )
        return cls(
            CellShares(cells.shares[order], cells.noise[np.ix_(order, order)], answers.records, fit[order]),
            np.concatenate([-below[::-1], [0.0], above]),
        )

    def middles(self) -> FloatArray:
        """Return the middle of each bin of a classifier's scores; the outermost are as wide as their neighbours."""
        edges = self.edges
        outer = [2 * edges[0] - edges[1], *edges, 2 * edges[-1] - edges[-2]]
        return np.asarray((np.array(outer[1:]) + np.array(outer[:-1])) / 2)


def _indicator(positive: int, above: int | None = None) -> FloatArray:
    """Return 1 for a classifier's cells of a class, on one side of the threshold or on both."""
    cells = np.zeros((2, 2, LEAVES))
    cells[positive, slice(None) if above is None else above] = 1.0
    return cells.reshape(-1)


def auc_metric(scores: ScoreShares) -> Metric:
    """Return the probability that a positive record has the higher score; ties within a bin count half.

    It is the ratio of two products of shares, each linear in the noisy shares around the fitted ones.
    """
    cells = scores.cells
    negative, positive = np.split(cells.fitted, 2)
    beaten = np.cumsum(negative) - negative / 2
    beating = np.cumsum(positive[::-1])[::-1] - positive / 2
    slopes = np.concatenate([beating, beaten]), np.repeat([positive.sum(), negative.sum()], BINS)
    fitted = float(positive @ beaten), float(negative.sum() * positive.sum())
    over, under = (
        value + float(slope @ (cells.shares - cells.fitted)) for value, slope in zip(fitted, slopes, strict=True)
    )
    variances = cells.variance(slopes[0]), cells.variance(slopes[1]), cells.variance(*slopes)
    interval = ratio_interval(over, under, variances)
    value, fit = over / under if interval else 0.0, fitted[0] / max(fitted[1], 1e-12)
    return bounded_metric("AUC", value, interval, least=0.0, most=1.0, unknown=RARE, fitted=fit)


def average_precision(cells: CellShares) -> Metric:
    """Return the average precision; cells are those of the negative class, then of the positive, by rising score."""
    bins = len(cells.shares) // 2
    above = np.triu(np.ones((bins, bins)))[::-1]  # from the highest cell on, down to all of them
    none = np.zeros_like(above)
    slopes = np.concatenate([np.hstack([none, above]), np.hstack([above, none])])
    sums, reach = slopes @ cells.shares, simultaneous_half_widths(cells.covariance(slopes))
    low, high = (np.split(np.clip(sums + side, 0.0, 1.0), 2) for side in (-reach, reach))
    positive_low, negative_low = (np.maximum.accumulate(band) for band in low)
    positive_high, negative_high = (np.minimum.accumulate(band[::-1])[::-1] for band in high)
    ends = np.linspace(max(positive_low[-1], 1e-9), max(positive_high[-1], 2e-9), _ENDS)
    # Positives beyond what a cell and all higher ones can hold take all negatives of these along.
    best = max(_mean_precision(end, positive_high, np.concatenate([[0.0], negative_low])) for end in ends)
    worst = min(_mean_precision(end, positive_low, np.append(negative_high, negative_high[-1])) for end in ends)
    positive, negative = np.split(slopes @ cells.fitted, 2)
    between = [
        _mean_precision(max(positive[-1], 1e-9), positive, negatives)
        for negatives in (np.concatenate([[0.0], negative]), np.append(negative, negative[-1]))
    ]
    value, interval = float(np.mean(between)), Interval(min(worst, *between), max(best, *between))
    return bounded_metric("average precision", value, interval, least=0.0, most=1.0, unknown=RARE)


def _mean_precision(end: float, steps: FloatArray, negatives: FloatArray) -> float:
    """Return the mean of a/(a + b) over a from 0 to the end, with b the negatives of a's step: one more than steps.

    ∫ a/(a + b) da is a − b·ln(a + b).
    """
    edges = np.concatenate([[0.0], np.minimum(steps, end), [end]])
    total = 0.0
    for begin, stop, b in zip(edges[:-1], edges[1:], negatives, strict=True):
        if stop > begin:
            total += stop - begin - (b * math.log((stop + b) / (begin + b)) if b > 0 else 0.0)
    return total / end


def binary_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return all metrics of a classifier of two classes."""
    if not answers.has("confusion"):
        return _loss_metrics(answers, None)
    scores = ScoreShares.of(answers)
    cells, loss = scores.cells, answers.loss
    right, taken = _indicator(1, 1) + _indicator(0, 0), _indicator(1, 1) + _indicator(0, 1)
    positive, hit = _indicator(1), _indicator(1, 1)
    share = float(positive @ cells.fitted)
    larger = positive if share > 0.5 else 1 - positive
    metrics = [
        share_of_cells("accuracy", cells, right),
        share_of_cells("accuracy of guessing the larger class", cells, larger),
        difference_of_cells("accuracy above guessing", cells, right - larger),
        share_of_cells("share of positives", cells, positive),
        ratio_of_shares("precision", cells, hit, taken, "too few records are predicted positive for this much noise"),
        ratio_of_shares("recall", cells, hit, positive, RARE),
        ratio_of_shares("specificity", cells, _indicator(0, 0), 1 - positive, RARE),
        ratio_of_shares("F1", cells, 2 * hit, taken + positive, RARE),
    ]
    if answers.has("scores"):
        metrics += [auc_metric(scores), average_precision(cells)]
    if loss.is_log_loss:
        metrics.append(_entropy_metric(share, cells.variance(positive)))
        if answers.has("scores"):
            over = np.concatenate([expit(scores.middles()), expit(scores.middles()) - 1])
            metrics += [difference_of_cells(_BIAS, cells, over), expected_calibration_error(cells, over)]
    return [*metrics, *_loss_metrics(answers, scores if answers.has("scores") else None)]


def _loss_metrics(answers: EvaluationAnswers, scores: ScoreShares | None) -> list[Metric]:
    """Return the means of clipped losses; the scores, if known, show how much these vary."""
    metrics, loss = [], answers.loss
    wrong_by = np.zeros(0) if scores is None else np.concatenate([scores.middles(), -scores.middles()])
    for block, name in (("brier", BRIER), ("loss", loss_name(loss))):
        if answers.has(block):
            means = answers.averaged(block)
            if scores is None:
                metrics.append(clipped_loss_metric(name, means, answers.records))
                continue
            own = loss.values(-wrong_by[:, None], np.ones(len(wrong_by))) if block == "loss" else expit(wrong_by) ** 2
            metrics.append(_clipped_loss_metric(name, means, own, scores.cells))
    return metrics


def loss_name(loss: Loss) -> str:
    """Return the name of a classifier's loss, for its metric."""
    return "log loss" if loss.is_log_loss else f"{loss.name} loss"


def _entropy_metric(share: float, variance: float) -> Metric:
    """Return the log loss of the best constant: the entropy of the class shares."""
    kept = min(max(share, 1e-6), 1 - 1e-6)
    entropy = float(-kept * np.log(kept) - (1 - kept) * np.log1p(-kept))
    slope = np.log1p(-kept) - np.log(kept)
    name = "log loss of guessing the classes' shares"
    most = float(np.log(2))
    return normal_metric(name, entropy, float(slope**2 * variance), least=0.0, most=most, precise="ratio")


def _clipped_loss_metric(name: str, means: BlockMeans, losses: FloatArray, cells: CellShares) -> Metric:
    """Return a classifier's mean of clipped losses; their sampling variance is estimated from the cells."""
    (mean, noise), clip = means.scalar(), means.clip
    losses = np.minimum(losses, clip)
    variance = (clip * noise) ** 2 + cells.variance(losses) - cells.noise_variance(losses)
    return clipped_mean_metric(name, clip * mean, variance, clip)


def binary_confusion(answers: EvaluationAnswers) -> list[tuple[int, int, Metric]]:
    """Return the share of the records with each class and prediction."""
    cells = ScoreShares.of(answers).cells
    slopes = [(own, side, _indicator(own, side)) for own in (0, 1) for side in (0, 1)]
    return [(own, side, share_of_cells("share", cells, slope)) for own, side, slope in slopes]


def expected_calibration_error(cells: CellShares, over: FloatArray) -> Metric:
    """Return Σ|mean predicted − observed| over groups of four bins, weighted by their shares."""
    bins = np.tile(np.kron(np.eye(len(over) // 8), np.ones(4)), 2)
    slopes = bins * over
    value, fitted = (float(np.sum(np.abs(slopes @ shares))) for shares in (cells.shares, cells.fitted))
    reach = absolute_sum_half_width(cells.covariance(slopes))
    return bounded_metric(ECE, value, Interval(value - reach, value + reach), least=0.0, most=1.0, fitted=fitted)


def roc_curve(scores: ScoreShares) -> list[tuple[float, Metric, Metric]]:
    """Return at each edge the shares of negative and of positive records with higher scores; none if one is unusable.

    The area under these points, joined by straight lines, is the AUC.
    """

    def rate(name: str, positive: int, number: int) -> Metric:
        """Return the share of a class's records whose score lies above an edge, for the ROC curve."""
        whole = _indicator(positive)
        above = np.tile(np.arange(BINS) > number, 2) * whole
        return ratio_of_shares(name, scores.cells, above, whole, RARE)

    points = [
        (float(edge), rate("false positive rate", 0, number), rate("true positive rate", 1, number))
        for number, edge in enumerate(scores.edges)
    ]
    return points if all(rate.usable for point in points for rate in point[1:]) else []


def binary_calibration_curve(scores: ScoreShares) -> list[tuple[float, Metric]]:
    """Return, for every four bins, the mean predicted probability and the share of positives."""
    return calibration_curve("share of positives", scores.cells, expit(scores.middles()))


def calibration_curve(name: str, cells: CellShares, predicted: FloatArray) -> list[tuple[float, Metric]]:
    """Return a classifier's calibration curve: per four bins, the mean prediction and the observed share."""
    points, bins = [], len(predicted)
    for number in range(bins // 4):
        here = (np.arange(bins) // 4 == number) * 1.0
        share = ratio_of_shares(name, cells, np.concatenate([0.0 * here, here]), np.tile(here, 2))
        weights = np.maximum(cells.fitted.reshape(2, bins).sum(axis=0), 1e-9) * here
        points.append((float(weights @ predicted / weights.sum()), share))
    return points


def binary_bin_edges(data: Schema, loss: Loss, largest: float, answers: EvaluationAnswers | None) -> BinEdges:
    """Return the edges between scores and the clip of losses: powers of 2 at first, then quantiles."""
    if answers is None or not answers.has("scores"):
        edges = largest * 2.0 ** -np.arange(LEAVES - 1, 0, -1)
        return {"scores": np.concatenate([edges, edges]), "loss": np.array([2.0])}
    scores = ScoreShares.of(answers)
    by_class = scores.cells.shares.reshape(2, 2, LEAVES)
    sides = (by_class / np.maximum(by_class.sum(axis=(1, 2), keepdims=True), 0.05)).sum(axis=0)
    middle, even = LEAVES - 1, np.arange(1, LEAVES) / LEAVES
    below, above = -scores.edges[:middle][::-1], scores.edges[middle + 1 :]
    wrong = (below, by_class[1, 0][::-1]), (above, by_class[0, 1])
    least = max(_VISIBLE, 2 * max(scores.cells.noise_variance(_indicator(own, 1 - own)) ** 0.5 for own in (0, 1)))
    far = max(_far_score(edges, part, least) for edges, part in wrong)
    return {
        "scores": np.concatenate([log_quantiles(below, sides[0][::-1], even), log_quantiles(above, sides[1], even)]),
        "loss": np.maximum(loss.values(np.array([[-2.0 * far]]), np.ones(1)), 1.0),
    }


def _far_score(edges: FloatArray, wrong: FloatArray, least: float) -> float:
    """Return the score exceeded by a fifth of the wrong predictions, or by the share `least` of all records."""
    beyond = max(0.2, least / max(float(wrong.sum()), least))
    return float(log_quantiles(edges, wrong, np.array([1 - beyond]))[0])


def binary_block_shares(loss: Loss, last: bool, figures: Figures) -> dict[str, float]:
    """Return each block's share of the sensitivity: before the last round, none for blocks that need bin edges.

    With noise σ in each number of a round, and shares c₁ and c₂ of the confusion block in the two rounds, the noise
    variance of the accuracy is 1.5·σ²/(c₁ + c₂), and that of the AUC about 8·σ²/(1 − c₂) (5 to 9, by how well the
    classes are separated): the first tree only finds bin edges, for which c₁ = ¾ leaves enough. The product of the two
    is least for c₂ = (1 − c₁)/2. A loss needs the first tree alone, to be clipped.
    """
    if figures is None:
        first = {"confusion": 0.4, "scores": 0.6}
        second = {"confusion": 0.3, "scores": 0.55, "brier": 0.08, "loss": 0.07, "paired": 0.15, "right": 0.15}
        return second if last else first
    needs = dict(binary_figures(loss))
    if last:
        shares = {"confusion": 0.125, "scores": 0.875, "brier": 0.3, "loss": 0.5, "paired": 0.25, "right": 0.25}
        return needed_shares(shares, needs, figures)
    needs[loss_name(loss)] = ("confusion", "scores")
    return needed_shares({"confusion": 0.75, "scores": 0.25, "brier": 0.25}, needs, figures)


def usual_binary_figures(loss: Loss, noise: float) -> tuple[str, ...]:
    """Return the figures to measure by default, with that noise in each number of a round: AUC if it will be usable.

    Its noise variance is 8/0.875 + 1.5/0.875 times σ² with the shares of `binary_block_shares`.
    """
    return ("accuracy", "AUC") if half_width(_AUC_NOISE * noise**2) <= REACH else ("accuracy",)
