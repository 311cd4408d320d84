"""How well a model predicts the records, as the numbers that `protocol.questions.evaluation` names."""

from collections.abc import Mapping

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.losses import Loss
from ringfence.protocol.losses.told import shifted, told, values_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Evaluation
from ringfence.protocol.questions.evaluation import (
    CURVE,
    MARGIN,
    MOST_CONFUSED,
    RESIDUAL_LEVELS,
    SCORE_LEVELS,
    TARGET_LEVELS,
    number_blocks,
    of_target,
)
from ringfence.silo import exact_sums
from ringfence.silo.questions.scores import leaf_of, scores_of, tree_terms
from ringfence.silo.records import Records

Terms = dict[str, FloatArray]
Ruler = Mapping[str, FloatArray]


def total(
    question: Evaluation, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up, over the records that take part, what each says of the model."""
    asked = question.read(plan, argument)
    loss, own = plan.loss, told(records.targets).targets
    scores = scores_of(plan, asked.weights, records)
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number counts as 0
        terms = _TERMS[loss.target_kind](loss, shifted(scores, records.targets), own, asked.ruler)
        losses = values_of(loss, scores, records.targets)
        cut = _cut(losses, asked.ruler["loss"])[:, None]
        terms["loss"] = cut if loss.may_be_negative else np.maximum(cut, 0.0)
        if asked.against is not None:
            other = scores_of(plan, asked.against, records)
            terms["paired"] = _curved(_cut(losses - values_of(loss, other, records.targets), asked.ruler["paired"]))
            if loss.target_kind in ("label", "class"):
                right = [loss.predictions(shifted(u, records.targets)) == own for u in (scores, other)]
                terms["right"] = _curved(right[0] * 1.0 - right[1])
    kept = 1 - exact_sums.slack(question.length(plan))
    values = np.concatenate(
        [terms[name] * (kept * scale) for name, scale in question.scale(plan, asked).items()], axis=1
    )
    return exact_sums.column_sums(records.means(np.nan_to_num(values)), chosen)


def answer(question: Evaluation, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int) -> FloatArray:
    """Return the means."""
    del question, plan, argument
    return exact_sums.quotient(total, batch)


def _cut(values: FloatArray, cap: FloatArray) -> FloatArray:
    """Return values in units of the cap, none beyond ±1."""
    return np.clip(values / max(float(cap[0]), TINY), -1.0, 1.0)


def _curved(values: FloatArray) -> FloatArray:
    """Return numbers in ±1 beside their squares."""
    return np.stack([values, CURVE * values**2], axis=1)


def _of_labels(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    score, predicted = scores[:, 0], loss.predictions(scores)
    positive, above = (targets > 0).astype(np.int64), (predicted > 0).astype(np.int64)
    edges = np.split(ruler["scores"], 2)
    leaf = np.where(above, *(leaf_of(side, np.abs(score)) for side in edges[::-1]))
    terms = {
        "confusion": np.stack([predicted * np.sign(targets), MARGIN * np.sign(targets), MARGIN * predicted], axis=1),
        "scores": tree_terms(SCORE_LEVELS, 2 * positive + above, 4, leaf),
    }
    if loss.is_log_loss:
        probability = 0.5 * (1 + np.tanh(0.5 * score))
        terms["brier"] = (probability - positive)[:, None] ** 2
    return terms


def _of_classes(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    predicted, own = loss.predictions(scores).astype(np.int64), targets.astype(np.int64)
    probabilities = loss.probabilities(scores)
    right = (predicted == own).astype(np.int64)
    classes, numbers = loss.categories, np.arange(len(own))
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
    return _of_number(loss.predictions(scores), targets, ruler)


def _of_several_numbers(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    predicted, terms = loss.predictions(scores), Terms()
    for place in range(loss.outputs):
        own = {block.name: ruler[of_target(block.name, place)] for block in number_blocks()}
        found = _of_number(predicted[:, place], targets[:, place], own)
        terms |= {of_target(name, place): values for name, values in found.items()}
    return terms


def _of_number(predicted: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    error = np.abs(predicted - targets)
    everybody = np.zeros(len(targets), dtype=np.int64)
    centre, reach = ruler["target"]
    return {
        "below": np.where(targets <= predicted, 1.0, -1.0)[:, None],
        "residuals": tree_terms(RESIDUAL_LEVELS, everybody, 1, leaf_of(ruler["residuals"], error)),
        "squared": _cut(error, ruler["squared"])[:, None] ** 2,
        "absolute": _cut(error, ruler["absolute"])[:, None],
        "targets": tree_terms(TARGET_LEVELS, everybody, 1, leaf_of(ruler["targets"], targets)),
        "target": _curved(_cut(targets - centre, np.array([reach]))),
    }


def _of_times(loss: Loss, scores: FloatArray, targets: FloatArray, ruler: Ruler) -> Terms:
    events = targets[:, 1]
    expected = loss.residuals(scores, targets).sum(axis=1) + events
    return {
        "event": (2.0 * events - 1.0)[:, None],
        "expected": np.maximum(_cut(expected, ruler["expected"]), 0.0)[:, None],
    }


_TERMS = {
    "label": _of_labels,
    "class": _of_classes,
    "number": _of_numbers,
    "numbers": _of_several_numbers,
    "time": _of_times,
}
