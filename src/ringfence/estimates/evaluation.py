"""Evaluation of a model: from noisy answers to metrics, and from these to the next request."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ringfence.estimates import classification, regression, survival
from ringfence.estimates.answers import AnsweredRound, BinEdges, EvaluationAnswers, read_rounds
from ringfence.estimates.metrics import (
    CalibrationBin,
    ConfusionCell,
    EvaluationReport,
    Metric,
    ModelMetrics,
    RocPoint,
    clipping_note,
    normal_metric,
)
from ringfence.protocol import Evaluation, Facts, FloatArray, Loss, Schema
from ringfence.protocol.queries.evaluation import CURVE, EvaluationArgument


class _Kind(NamedTuple):
    """How targets of one kind are evaluated."""

    metrics: Callable[[EvaluationAnswers], list[Metric]]
    bin_edges: Callable[[Schema, Loss, float, EvaluationAnswers | None], BinEdges]
    block_shares: Callable[[Loss, bool], dict[str, float]]


_KINDS: dict[str, _Kind] = {
    "label": _Kind(classification.binary_metrics, classification.binary_bin_edges, classification.binary_block_shares),
    "class": _Kind(
        classification.multiclass_metrics, classification.multiclass_bin_edges, classification.multiclass_block_shares
    ),
    "number": _Kind(regression.regression_metrics, regression.regression_bin_edges, regression.regression_block_shares),
    "numbers": _Kind(
        regression.multitarget_metrics, regression.multitarget_bin_edges, regression.multitarget_block_shares
    ),
    "time": _Kind(survival.survival_metrics, survival.survival_bin_edges, survival.survival_block_shares),
}
_SMALLEST = 1e-9
"""The largest score of a model whose weights are 0."""


def next_evaluation_request(
    query: Evaluation,
    facts: Facts,
    weights: FloatArray,
    against: FloatArray | None,
    rounds: Sequence[AnsweredRound],
    *,
    last: bool,
) -> EvaluationArgument:
    """Return the argument of a stage's next round: bin edges that suit the answers of earlier rounds.

    Only the last round asks for blocks that need estimated bin edges; if it is the only one, it asks half for each.
    """
    kind = _KINDS[facts.loss.target_kind]
    largest = max(facts.data.feature_norm * float(np.linalg.norm(weights)), _SMALLEST)
    known = read_rounds(query, facts, rounds) if rounds else None
    bin_edges = kind.bin_edges(facts.data, facts.loss, largest, known)
    bin_edges["paired"] = bin_edges["loss"] / 4  # models that are compared mostly differ by less
    chosen = kind.block_shares(facts.loss, last)
    if last and not rounds:
        early = kind.block_shares(facts.loss, False)
        chosen = {name: chosen.get(name, 0.0) + early.get(name, 0.0) for name in chosen | early}
    blocks = query.blocks(facts)
    total = sum(chosen.get(block.name, 0.0) for block in blocks) * (1 + 1e-12)
    return EvaluationArgument(
        weights,
        against,
        {block.name: bin_edges.get(block.name, np.zeros(0)) for block in blocks},
        {block.name: chosen.get(block.name, 0.0) / total for block in blocks},
    )


def evaluation_report(query: Evaluation, facts: Facts, rounds: Sequence[AnsweredRound]) -> EvaluationReport:
    """Return the metrics over all silos' records, and those of each silo that answered the last round."""
    return EvaluationReport(
        unit=facts.unit,
        together=model_metrics(read_rounds(query, facts, rounds)),
        silos={name: model_metrics(read_rounds(query, facts, rounds, name)) for name in rounds[-1].answers},
        positive=facts.data.target_column.classes[-1] if facts.loss.target_kind == "label" else None,
    )


def model_metrics(answers: EvaluationAnswers) -> ModelMetrics:
    """Return all metrics, and for classifiers the confusion matrix, ROC curve and calibration curve."""
    loss, column = answers.loss, answers.data.target_column
    metrics = (*_KINDS[loss.target_kind].metrics(answers), *_metrics_against_other_model(answers))
    if column.is_number:
        return ModelMetrics(records=answers.records, metrics=metrics)
    roc = []
    if loss.target_kind == "label":
        scores, cells = classification.ScoreShares.of(answers), classification.binary_confusion(answers)
        roc = classification.roc_curve(scores)
        bins = classification.binary_calibration_curve(scores) if loss.is_log_loss else []
    else:
        cells = classification.multiclass_confusion(answers)
        bins = classification.multiclass_calibration_curve(answers)
    return ModelMetrics(
        records=answers.records,
        metrics=metrics,
        confusion=tuple(
            ConfusionCell(actual=column.classes[own], predicted=column.classes[side], share=share)
            for own, side, share in cells
        ),
        roc=tuple(RocPoint(threshold=at, false_positive_rate=fall, true_positive_rate=hit) for at, fall, hit in roc),
        calibration=tuple(CalibrationBin(predicted=predicted, share=share) for predicted, share in bins),
    )


def _metrics_against_other_model(answers: EvaluationAnswers) -> list[Metric]:
    """Return how much better the model is than the other one, from paired differences per record."""
    metrics = []
    for block, name in (("right", "accuracy above the other model's"), ("paired", "loss below the other model's")):
        if answers.has(block):
            means = answers.latest(block)
            clip = means.clip
            mean, square = float(means.values[0]), float(means.values[1]) / CURVE
            variance = means.noise**2 + max(square - mean**2, 0.0) / answers.records
            better = mean if block == "right" else -mean
            metric = normal_metric(name, clip * better, clip**2 * variance, least=-clip, most=clip)
            metrics.append(metric if block == "right" else metric.noted(clipping_note(clip, "difference")))
    return metrics
