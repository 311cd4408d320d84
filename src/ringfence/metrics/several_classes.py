"""Several classes: how often a prediction is right, by class and by how sure the model was."""

import math

import numpy as np

from ringfence.metrics.estimates import Cells, Found, cells_of_tree
from ringfence.metrics.intervals import NOISE, Figure, cut_figure, normal, of_cells, proportion, sum_of_sizes
from ringfence.metrics.quantiles import reached
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import MOST_CONFUSED, SCORE_LEVELS

LEAVES = 2**SCORE_LEVELS


def _cells(found: Found) -> Cells:
    """Return the shares of the classes, or of each class and prediction: the nearest to what was found that add up to 1
    and, if they can tell it, to the accuracy."""
    counted, correct = found.together("cells"), found.together("correct")
    size, classes = len(counted.values), found.facts.loss.categories
    ones = np.ones((1, size))
    rows, told = [np.eye(size)], [counted.values]
    weights = [np.full(size, counted.noise**-2)]
    if size > classes:
        rows.append((2 * np.eye(classes) - 1).reshape(1, -1))
        told.append(correct.values)
        weights.append(np.full(1, correct.noise**-2))
    observed, precision = np.concatenate(rows), np.concatenate(weights)
    inner = observed.T * precision
    covariance = np.linalg.inv(inner @ observed)
    free = covariance @ inner @ np.concatenate(told)
    along = covariance @ ones.T / float(np.sum(covariance))
    return Cells(free + along[:, 0] * (1 - free.sum()), covariance - along @ ones @ covariance, found.records)


def _right(found: Found) -> tuple[float, float]:
    """Return the accuracy and the variance of its noise."""
    cells, classes = _cells(found), found.facts.loss.categories
    if len(cells.shares) > classes:
        right = np.eye(classes).reshape(-1)
        return float(right @ cells.shares), cells.within(right)
    value, noise = found.together("correct").scalar()
    return (1 + value) / 2, (noise / 2) ** 2


def figures(found: Found) -> list[Figure]:
    """Return all figures."""
    classes, cells, records = found.facts.loss.categories, _cells(found), found.records
    value, noise = _right(found)
    by_class = cells if len(cells.shares) == classes else cells.summed(np.repeat(np.eye(classes), classes, axis=1))
    largest = int(np.argmax(by_class.shares))
    guess, variance = float(by_class.shares[largest]), float(by_class.noise[largest, largest])
    shown = [
        proportion("accuracy", value, noise, records),
        proportion("accuracy of guessing the largest class", guess, variance, records),
    ]
    if len(cells.shares) > classes:
        gain = np.eye(classes)
        gain[largest] -= 1.0
        slope = gain.reshape(-1)
        shown.append(normal("accuracy above guessing", float(slope @ cells.shares), cells.variance(slope)))
    for name, cap in (("brier", 1.0), ("loss", None)):
        if found.has(name):
            told = found.together(name) if cap else found.latest(name)
            (mean, deviation), most = told.scalar(), cap or float(told.ruler[0])
            spread = deviation**2 + max(mean * (1 - mean), 0.0) / records
            own = "log loss" if found.facts.loss.is_log_loss else f"{found.facts.loss.name} loss"
            title = "Brier score" if cap else own
            shown.append(cut_figure(title, normal(title, most * mean, most**2 * spread, least=0.0, most=most), most))
    return [*shown, _calibration(found)]


def confusion(found: Found) -> list[tuple[int, int, Figure]]:
    """Return the share of the records with each class and prediction, where there are not too many."""
    cells, classes = _cells(found), found.facts.loss.categories
    if len(cells.shares) == classes:
        return []
    return [
        (*divmod(number, classes), proportion("share", float(share), float(cells.noise[number, number]), found.records))
        for number, share in enumerate(cells.shares)
    ]


def _confidence(found: Found) -> tuple[Cells, FloatArray]:
    """Return the shares of wrong and of right predictions by confidence, and a confidence for each bin."""
    tree = found.latest("confidence")
    value, noise = _right(found)
    masses = Cells(np.array([1 - value, value]), noise * np.array([[1.0, -1.0], [-1.0, 1.0]]), found.records)
    bounds = np.concatenate([[1 / found.facts.loss.categories], tree.ruler, [1.0]])
    return cells_of_tree(masses, tree), (bounds[1:] + bounds[:-1]) / 2


def _calibration(found: Found) -> Figure:
    cells, middles = _confidence(found)
    over = np.concatenate([middles, middles - 1])
    bins = np.tile(np.kron(np.eye(LEAVES // 4), np.ones(4)), 2)
    return sum_of_sizes("expected calibration error", cells, bins * over)


def calibration_curve(found: Found) -> list[tuple[float, Figure]]:
    """Return, for every four bins, the mean confidence and the share of right predictions."""
    cells, middles = _confidence(found)
    points = []
    for number in range(LEAVES // 4):
        here = (np.arange(LEAVES) // 4 == number) * 1.0
        whole, right = np.tile(here, 2), np.concatenate([0 * here, here])
        over, under = (float(slope @ cells.shares) for slope in (right, whole))
        share = of_cells("share of right predictions", cells, (over, right), (under, whole), unknown=NOISE)
        weights = np.maximum(cells.shares.reshape(2, LEAVES).sum(axis=0), 1e-9) * here
        points.append((float(weights @ middles / weights.sum()), share))
    return points


def ruler(facts: Facts, largest: float, found: Found | None) -> dict[str, FloatArray]:
    """Return where to divide confidences: evenly, then so that records are."""
    lowest, even = 1 / facts.loss.categories, np.arange(1, LEAVES) / LEAVES
    edges = lowest + (1 - lowest) * even
    if found is not None:
        cells, _ = _confidence(found)
        shares = cells.shares.reshape(2, LEAVES).sum(axis=0)
        edges = np.interp(even, reached(shares), np.concatenate([[lowest], found.latest("confidence").ruler, [1.0]]))
    return {"confidence": edges, "loss": np.array([2 * math.log(facts.loss.categories)])}


def shares(facts: Facts, *, last: bool) -> dict[str, float]:
    """Return how much of the sensitivity each block gets."""
    counted = 0.4 if facts.loss.categories <= MOST_CONFUSED else 0.2
    if not last:
        return {"correct": 0.2, "cells": counted, "confidence": 0.4}
    return {
        "correct": 0.2,
        "cells": counted,
        "confidence": 0.2,
        "brier": 0.1,
        "loss": 0.1,
        "paired": 0.15,
        "right": 0.15,
    }
