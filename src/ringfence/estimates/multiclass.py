"""Metrics of classifiers of several classes, by confidence."""

import math
from dataclasses import replace

import numpy as np

from ringfence.estimates.answers import (
    BinEdges,
    CellShares,
    EvaluationAnswers,
    cumulative_shares,
    fitted_leaves,
    leaf_shares,
    possible_shares,
)
from ringfence.estimates.classification import (
    BRIER,
    CALIBRATION,
    CONFUSION,
    ECE,
    LEAVES,
    calibration_curve,
    expected_calibration_error,
    loss_name,
)
from ringfence.estimates.intervals import half_width
from ringfence.estimates.metrics import (
    RELATIVE_REACH,
    FigureBlocks,
    Figures,
    Metric,
    clipped_loss_metric,
    difference_of_cells,
    needed_shares,
    share_metric,
    share_of_cells,
)
from ringfence.protocol import FloatArray, Loss, Schema
from ringfence.protocol.queries.evaluation import MOST_CONFUSED


def multiclass_figures(loss: Loss) -> FigureBlocks:
    """Return the blocks that each figure of a classifier of several classes needs."""
    cells, confidence = ("correct", "cells"), ("correct", "cells", "confidence")
    few = {CONFUSION: cells} if loss.categories <= MOST_CONFUSED else {}
    brier = {BRIER: ("brier",)} if loss.is_log_loss else {}
    return {"accuracy": cells, **few, **brier, loss_name(loss): ("loss",), ECE: confidence, CALIBRATION: confidence}


def _class_shares(answers: EvaluationAnswers) -> CellShares:
    """Return the shares of a classifier's classes, or of each class and prediction, by least squares.

    They add up to 1 and, in the second case, agree with the measured accuracy.
    """
    counted, correct = answers.averaged("cells"), answers.averaged("correct")
    size, classes = len(counted.values), answers.loss.categories
    ones = np.ones((1, size))
    observed, values, precision = np.eye(size), counted.values, np.full(size, counted.noise**-2)
    if size > classes:
        observed = np.vstack([observed, (2 * np.eye(classes) - 1).reshape(1, -1)])
        values, precision = np.append(values, correct.values), np.append(precision, correct.noise**-2)
    inner = observed.T * precision
    covariance = np.linalg.inv(inner @ observed)
    free = covariance @ inner @ values
    along = covariance @ ones.T / float(np.sum(covariance))
    shares = free + along[:, 0] * (1 - free.sum())
    # Noise is alike in all cells but for their sum on the diagonal, which is measured best and kept.
    parts = [np.ones(size)] if size == classes else [np.eye(classes).reshape(-1), 1 - np.eye(classes).reshape(-1)]
    fit, right = np.zeros(size), float(np.clip(parts[0] @ shares, 0.0, 1.0))
    for part, total in zip(parts, (right, 1 - right), strict=False):
        fit[part > 0] = possible_shares(total, np.eye(int(part.sum())), shares[part > 0])
    return CellShares(shares, covariance - along @ ones @ covariance, answers.records, fit)


def _accuracy(answers: EvaluationAnswers) -> tuple[float, float]:
    """Return the accuracy of a classifier of several classes, and the variance of its noise."""
    cells, classes = _class_shares(answers), answers.loss.categories
    if len(cells.shares) > classes:
        right = np.eye(classes).reshape(-1)
        return cells.total(right), cells.noise_variance(right)
    value, noise = answers.averaged("correct").scalar()
    return (1 + value) / 2, (noise / 2) ** 2


def multiclass_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return all metrics of a classifier of several classes."""
    metrics: list[Metric] = []
    for block, name in (("brier", BRIER), ("loss", loss_name(answers.loss))):
        if answers.has(block):
            metrics.append(clipped_loss_metric(name, answers.averaged(block), answers.records))
    if not answers.has("cells"):
        return metrics
    metrics = [*_accuracy_metrics(answers), *metrics]
    if answers.has("confidence"):
        by_confidence, middles = _confidence_shares(answers)
        metrics.append(expected_calibration_error(by_confidence, np.concatenate([middles, middles - 1])))
    return metrics


def _accuracy_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return the accuracy of a classifier of several classes, and that of guessing."""
    classes, cells, records = answers.loss.categories, _class_shares(answers), answers.records
    by_class = cells if len(cells.shares) == classes else cells.merged(np.repeat(np.eye(classes), classes, axis=1))
    largest = int(np.argmax(by_class.fitted))
    guess, variance = float(by_class.shares[largest]), float(by_class.noise[largest, largest])
    metrics = [
        share_metric("accuracy", *_accuracy(answers), records),
        share_metric(
            "accuracy of guessing the largest class", guess, variance, records, fitted=float(by_class.fitted[largest])
        ),
    ]
    if len(cells.shares) > classes:
        gain = np.eye(classes)
        gain[largest] -= 1.0
        slope = gain.reshape(-1)
        metrics.append(difference_of_cells("accuracy above guessing", cells, slope))
    return metrics


def multiclass_confusion(answers: EvaluationAnswers) -> list[tuple[int, int, Metric]]:
    """Return the share of the records with each class and prediction, unless there are too many classes."""
    cells, classes = _class_shares(answers), answers.loss.categories
    if len(cells.shares) == classes:
        return []
    slopes = np.eye(len(cells.shares))
    return [(*divmod(place, classes), share_of_cells("share", cells, slope)) for place, slope in enumerate(slopes)]


def _confidence_shares(answers: EvaluationAnswers) -> tuple[CellShares, FloatArray]:
    """Return the shares of wrong and of right predictions by confidence, and the middle of each bin."""
    tree = answers.latest("confidence")
    value, noise = _accuracy(answers)
    sides = CellShares(np.array([1 - value, value]), noise * np.array([[1.0, -1.0], [-1.0, 1.0]]), answers.records)
    bounds = np.concatenate([[1 / answers.loss.categories], tree.bin_edges, [1.0]])
    fit = fitted_leaves(np.clip(sides.shares, 0.0, 1.0), tree)
    return replace(leaf_shares(sides, tree), fit=fit), (bounds[1:] + bounds[:-1]) / 2


def multiclass_calibration_curve(answers: EvaluationAnswers) -> list[tuple[float, Metric]]:
    """Return, for every four bins, the mean confidence and the share of right predictions."""
    return calibration_curve("share of right predictions", *_confidence_shares(answers))


def multiclass_bin_edges(data: Schema, loss: Loss, largest: float, answers: EvaluationAnswers | None) -> BinEdges:
    """Return the edges between confidences: even ones at first, then quantiles."""
    lowest, even = 1 / loss.categories, np.arange(1, LEAVES) / LEAVES
    edges = lowest + (1 - lowest) * even
    if answers is not None and answers.has("confidence"):
        shares = _confidence_shares(answers)[0].shares.reshape(2, LEAVES).sum(axis=0)
        known = np.concatenate([[lowest], answers.latest("confidence").bin_edges, [1.0]])
        edges = np.interp(even, cumulative_shares(shares), known)
    return {"confidence": edges, "loss": np.array([2 * math.log(loss.categories)])}


def multiclass_block_shares(loss: Loss, last: bool, figures: Figures) -> dict[str, float]:
    """Return each block's share of the sensitivity.

    Of few figures, accuracy has half: its noise is that of `correct`, and `cells` are for the largest class. Blocks
    that need no bin edges are asked in both rounds.
    """
    shares = {"correct": 0.2, "cells": 0.4 if loss.categories <= MOST_CONFUSED else 0.2}
    if figures is not None:
        shares = {"correct": 0.5, "cells": 0.25, "confidence": 0.3, "brier": 0.25, "loss": 0.25}
        shares |= {"paired": 0.25, "right": 0.25} if last else {}
    elif not last:
        shares |= {"confidence": 0.4}
    else:
        shares |= {"confidence": 0.2, "brier": 0.1, "loss": 0.1, "paired": 0.15, "right": 0.15}
    return needed_shares(shares, multiclass_figures(loss), figures)


def usual_multiclass_figures(loss: Loss, noise: float) -> tuple[str, ...]:
    """Return the figures to measure by default, with that noise in each number of a round: the loss if it is usable.

    Losses are clipped at twice that of guessing, have a quarter of both rounds, and a model is to halve them.
    """
    relative = half_width(2 * noise**2) * 2 / 0.5
    return ("accuracy", loss_name(loss)) if relative <= RELATIVE_REACH else ("accuracy",)
