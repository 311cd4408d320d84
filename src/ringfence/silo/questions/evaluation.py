"""How well a model predicts the records, as the numbers that `protocol.questions.evaluation` names."""

from collections.abc import Mapping

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.losses import Loss
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Evaluation
from ringfence.protocol.questions.evaluation import (
    CURVE,
    MARGIN,
    MOST_CONFUSED,
    RESIDUAL_LEVELS,
    SCORE_LEVELS,
    TARGET_LEVELS,
)
from ringfence.silo import exact_sums
from ringfence.silo.questions.scores import leaf_of, scores_of, tree_terms
from ringfence.silo.records import Records

Terms = dict[str, FloatArray]
Ruler = Mapping[str, FloatArray]


def compute(
    question: Evaluation, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the mean, over the records that take part, of what each says of the model."""
    asked = question.read(plan, argument)
    scores, loss, targets = scores_of(plan, asked.weights, records), plan.loss, records.targets
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number counts as 0
        terms = _TERMS[loss.target_kind](loss, scores, targets, asked.ruler)
        losses = loss.values(scores, targets)
        terms["loss"] = _cut(losses, asked.ruler["loss"])[:, None]
        if asked.against is not None:
            other = scores_of(plan, asked.against, records)
            terms["paired"] = _curved(_cut(losses - loss.values(other, targets), asked.ruler["paired"]))
            if loss.target_kind != "number":
                right = _predicted(loss, scores) == targets, _predicted(loss, other) == targets
                terms["right"] = _curved(right[0] * 1.0 - right[1])
    kept = 1 - exact_sums.slack(question.length(plan))
    values = np.concatenate(
        [terms[name] * (kept * scale) for name, scale in question.scale(plan, asked).items()], axis=1
    )
    return exact_sums.mean(records.means(np.nan_to_num(values)), chosen, batch)


def _predicted(loss: Loss, scores: FloatArray) -> FloatArray:
    if loss.target_kind == "class":
        classes: FloatArray = np.argmax(scores, axis=1).astype(np.float64)
        return classes
    return np.where(scores[:, 0] > 0, 1.0, -1.0)


def _cut(values: FloatArray, cap: FloatArray) -> FloatArray:
    """Return values in units of the cap, none beyond ±1."""
    return np.clip(values / max(float(cap[0]), TINY), -1.0, 1.0)


def _curved(values: FloatArray) -> FloatArray:
    """Return numbers in ±1 beside their squares."""
    return np.stack([values, CURVE * values**2], axis=1)


def _of_labels(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    score, predicted = scores[:, 0], _predicted(loss, scores)
    positive, above = (targets > 0).astype(np.int64), (predicted > 0).astype(np.int64)
    edges = np.split(ruler["scores"], 2)
    leaf = np.where(above, *(leaf_of(side, np.abs(score)) for side in edges[::-1]))
    terms = {
        "confusion": np.stack([predicted * np.sign(targets), MARGIN * np.sign(targets), MARGIN * predicted], axis=1),
        "scores": tree_terms(SCORE_LEVELS, 2 * positive + above, 4, leaf),
    }
    if loss.has_probabilities:
        probability = 0.5 * (1 + np.tanh(0.5 * score))
        terms["brier"] = (probability - positive)[:, None] ** 2
    return terms


def _of_classes(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    predicted, own = _predicted(loss, scores).astype(np.int64), targets.astype(np.int64)
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    right = (predicted == own).astype(np.int64)
    classes, numbers = loss.outputs, np.arange(len(own))
    confused = classes <= MOST_CONFUSED
    cells = np.zeros((len(own), classes ** (2 if confused else 1)))
    cells[numbers, own * classes + predicted if confused else own] = 1.0
    leaf = leaf_of(ruler["confidence"], probabilities.max(axis=1))
    off = probabilities.copy()
    off[numbers, own] -= 1.0
    return {
        "correct": 2.0 * right[:, None] - 1,
        "cells": cells,
        "confidence": tree_terms(SCORE_LEVELS, right, 2, leaf),
        "brier": np.minimum(np.sum(off**2, axis=1, keepdims=True) / 2, 1.0),
    }


def _of_numbers(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    error = np.abs(scores[:, 0] - targets)
    everybody = np.zeros(len(targets), dtype=np.int64)
    centre, reach = ruler["target"]
    return {
        "below": np.where(targets <= scores[:, 0], 1.0, -1.0)[:, None],
        "residuals": tree_terms(RESIDUAL_LEVELS, everybody, 1, leaf_of(ruler["residuals"], error)),
        "squared": _cut(error, ruler["squared"])[:, None] ** 2,
        "absolute": _cut(error, ruler["absolute"])[:, None],
        "targets": tree_terms(TARGET_LEVELS, everybody, 1, leaf_of(ruler["targets"], targets)),
        "target": _curved(_cut(targets - centre, np.array([reach]))),
    }


_TERMS = {"label": _of_labels, "class": _of_classes, "number": _of_numbers}
