"""The terms of an evaluation: how well a model predicts each record."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import Evaluation, FloatArray, Loss, Plan
from ringfence.protocol.arrays import TINY, without_negligible
from ringfence.protocol.losses.targets import shifted, split_targets, values_of
from ringfence.protocol.queries import evaluation as blocks
from ringfence.silo.records import exact_sums
from ringfence.silo.records.records import Records, exact_product

Terms = dict[str, FloatArray]
BinEdges = Mapping[str, FloatArray]


def terms(query: Evaluation, plan: Plan, argument: FloatArray, records: Records) -> FloatArray:
    """Return every row's blocks, side by side."""
    asked = query.read(plan, argument)
    loss, own = plan.loss, split_targets(records.targets).targets
    scores = scores_of(plan, asked.weights, records)
    with np.errstate(over="ignore", invalid="ignore"):  # NaN counts as 0
        found = _TERMS[loss.target_kind](loss, shifted(scores, records.targets), own, asked.bin_edges)
        losses = values_of(loss, scores, records.targets)
        clipped = _clipped(losses, asked.bin_edges["loss"])[:, None]
        found["loss"] = clipped if loss.may_be_negative else np.maximum(clipped, 0.0)
        if asked.against is not None:
            other = scores_of(plan, asked.against, records)
            paired = losses - values_of(loss, other, records.targets)
            found["paired"] = _squared_beside(_clipped(paired, asked.bin_edges["paired"]))
            if loss.target_kind in ("label", "class"):
                right = [loss.predictions(shifted(u, records.targets)) == own for u in (scores, other)]
                found["right"] = _squared_beside(right[0] * 1.0 - right[1])
    kept = 1 - exact_sums.slack(query.length(plan))
    values = np.concatenate([found[name] * (kept * scale) for name, scale in query.scale(plan, asked).items()], axis=1)
    result: FloatArray = np.nan_to_num(values)
    return result


def scores_of(plan: Plan, weights: FloatArray, records: Records) -> FloatArray:
    """Return the records' scores, without offsets; each is a function of its record alone, to the last bit."""
    return exact_product(records.block(), plan.loss.matrix(without_negligible(weights), plan.data.width))


def leaf_of(edges: FloatArray, values: FloatArray) -> NDArray[np.int64]:
    """Return each value's leaf in an evaluation's tree: how many edges lie at or below it, in any order."""
    return np.searchsorted(np.sort(edges), values, side="right")


def tree_terms(levels: int, group: NDArray[np.int64], groups: int, leaf: NDArray[np.int64]) -> FloatArray:
    """Return an evaluation's weighted signs of the nodes above each record's leaf, in its group, and 0 elsewhere."""
    paths = blocks.path_signs(levels) * blocks.node_weights(levels)
    result = np.zeros((len(leaf), groups, paths.shape[1]))
    result[np.arange(len(leaf)), group] = paths[leaf]
    return result.reshape(len(leaf), -1)


def _clipped(values: FloatArray, cap: FloatArray) -> FloatArray:
    """Return an evaluation's values in units of the cap, clipped to ±1."""
    return np.clip(values / max(float(cap[0]), TINY), -1.0, 1.0)


def _squared_beside(values: FloatArray) -> FloatArray:
    """Return an evaluation's numbers in ±1 beside their squares."""
    return np.stack([values, blocks.CURVE * values**2], axis=1)


def _of_labels(loss: Loss, scores: FloatArray, targets: FloatArray, bin_edges: BinEdges) -> Terms:
    """Return the evaluation's terms for a target with two labels."""
    score, predicted, signs = scores[:, 0], loss.predictions(scores), np.sign(targets)
    positive, above = (targets > 0).astype(np.int64), (predicted > 0).astype(np.int64)
    edges = np.split(bin_edges["scores"], 2)
    leaf = np.where(above, *(leaf_of(side, np.abs(score)) for side in edges[::-1]))
    terms = {
        "confusion": np.stack([predicted * signs, blocks.MARGIN * signs, blocks.MARGIN * predicted], axis=1),
        "scores": tree_terms(blocks.SCORE_LEVELS, 2 * positive + above, 4, leaf),
    }
    if loss.is_log_loss:
        probability = 0.5 * (1 + np.tanh(0.5 * score))
        terms["brier"] = (probability - positive)[:, None] ** 2
    return terms


def _of_classes(loss: Loss, scores: FloatArray, targets: FloatArray, bin_edges: BinEdges) -> Terms:
    """Return the evaluation's terms for a target with several classes."""
    predicted, own = loss.predictions(scores).astype(np.int64), targets.astype(np.int64)
    probabilities = loss.probabilities(scores)
    right = (predicted == own).astype(np.int64)
    classes, numbers = loss.categories, np.arange(len(own))
    confused = classes <= blocks.MOST_CONFUSED
    cells = np.zeros((len(own), classes ** (2 if confused else 1)))
    cells[numbers, own * classes + predicted if confused else own] = 1.0
    leaf = leaf_of(bin_edges["confidence"], probabilities.max(axis=1))
    off = probabilities.copy()
    off[numbers, own] -= 1.0
    return {
        "correct": 2.0 * right[:, None] - 1,
        "cells": cells,
        "confidence": tree_terms(blocks.SCORE_LEVELS, right, 2, leaf),
        "brier": np.minimum(np.sum(off**2, axis=1, keepdims=True) / 2, 1.0),
    }


def _of_numbers(loss: Loss, scores: FloatArray, targets: FloatArray, bin_edges: BinEdges) -> Terms:
    """Return the evaluation's terms for a target that is a number."""
    return _of_number(loss.predictions(scores), targets, bin_edges)


def _of_several_numbers(loss: Loss, scores: FloatArray, targets: FloatArray, bin_edges: BinEdges) -> Terms:
    """Return the evaluation's terms for several numeric targets."""
    predicted, terms = loss.predictions(scores), Terms()
    for place in range(loss.outputs):
        own = {block.name: bin_edges[blocks.target_block(block.name, place)] for block in blocks.number_blocks()}
        found = _of_number(predicted[:, place], targets[:, place], own)
        terms |= {blocks.target_block(name, place): values for name, values in found.items()}
    return terms


def _of_number(predicted: FloatArray, targets: FloatArray, bin_edges: BinEdges) -> Terms:
    """Return the evaluation's terms for one numeric target, from its predictions."""
    error = np.abs(predicted - targets)
    everybody = np.zeros(len(targets), dtype=np.int64)
    centre, reach = bin_edges["target"]
    return {
        "below": np.where(targets <= predicted, 1.0, -1.0)[:, None],
        "residuals": tree_terms(blocks.RESIDUAL_LEVELS, everybody, 1, leaf_of(bin_edges["residuals"], error)),
        "squared": _clipped(error, bin_edges["squared"])[:, None] ** 2,
        "absolute": _clipped(error, bin_edges["absolute"])[:, None],
        "targets": tree_terms(blocks.TARGET_LEVELS, everybody, 1, leaf_of(bin_edges["targets"], targets)),
        "target": _squared_beside(_clipped(targets - centre, np.array([reach]))),
    }


def _of_times(loss: Loss, scores: FloatArray, targets: FloatArray, bin_edges: BinEdges) -> Terms:
    """Return the evaluation's terms for a survival target: times and events."""
    events = targets[:, 1]
    expected = loss.residuals(scores, targets).sum(axis=1) + events
    return {
        "event": (2.0 * events - 1.0)[:, None],
        "expected": np.maximum(_clipped(expected, bin_edges["expected"]), 0.0)[:, None],
    }


_TERMS = {
    "label": _of_labels,
    "class": _of_classes,
    "number": _of_numbers,
    "numbers": _of_several_numbers,
    "time": _of_times,
}
