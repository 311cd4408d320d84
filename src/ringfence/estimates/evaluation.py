"""Evaluation of a model: from noisy answers to metrics, and from these to the next request."""

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ringfence.errors import PlanError
from ringfence.estimates import classification, multiclass, regression, survival
from ringfence.estimates.answers import (
    AnsweredRound,
    BinEdges,
    EvaluationAnswers,
    largest_score,
    pooled_answer,
    read_rounds,
)
from ringfence.estimates.metrics import (
    CalibrationBin,
    ConfusionCell,
    EvaluationReport,
    FigureBlocks,
    Figures,
    Metric,
    ModelMetrics,
    RocPoint,
    clipping_note,
    is_asked_for,
    normal_metric,
)
from ringfence.protocol import Evaluation, Facts, FloatArray, Loss, Schema, Squared
from ringfence.protocol.queries.evaluation import CURVE, EvaluationArgument


class _Kind(NamedTuple):
    """How targets of one kind are evaluated."""

    metrics: Callable[[EvaluationAnswers], list[Metric]]
    bin_edges: Callable[[Schema, Loss, float, EvaluationAnswers | None], BinEdges]
    block_shares: Callable[[Loss, bool, Figures], dict[str, float]]
    figures: Callable[[Loss], FigureBlocks]
    usual: Callable[[Loss, float], Iterable[str]]


_KINDS: dict[str, _Kind] = {
    "label": _Kind(
        classification.binary_metrics,
        classification.binary_bin_edges,
        classification.binary_block_shares,
        classification.binary_figures,
        classification.usual_binary_figures,
    ),
    "class": _Kind(
        multiclass.multiclass_metrics,
        multiclass.multiclass_bin_edges,
        multiclass.multiclass_block_shares,
        multiclass.multiclass_figures,
        multiclass.usual_multiclass_figures,
    ),
    "number": _Kind(
        regression.regression_metrics,
        regression.regression_bin_edges,
        regression.regression_block_shares,
        regression.regression_figures,
        lambda loss, noise: ("RMSE", "MAE", *([] if loss.aimed_share is None else [regression.BELOW])),
    ),
    "numbers": _Kind(
        regression.multitarget_metrics,
        regression.multitarget_bin_edges,
        regression.multitarget_block_shares,
        lambda loss: regression.regression_figures(Squared()),
        lambda loss, noise: ("RMSE", "MAE"),
    ),
    "time": _Kind(
        survival.survival_metrics,
        survival.survival_bin_edges,
        survival.survival_block_shares,
        survival.survival_figures,
        lambda loss, noise: survival.survival_figures(loss),
    ),
}


def chosen_figures(loss: Loss, asked: Sequence[str] | None, noise: float) -> tuple[str, ...] | None:
    """Return the names of the figures that are asked for, as printed; None for all.

    Names are compared without case; `all` and `default` stand for several, and None for the default, which depends on
    the `noise` in each number of a round: the standard deviation in the mean over all silos. PlanError if there is no
    such figure for this loss.
    """
    kind = _KINDS[loss.target_kind]
    known = {_plain(name): name for name in kind.figures(loss)}
    chosen: dict[str, None] = {}
    for name in map(_plain, ("default",) if asked is None else asked):
        if name == "all":
            return None
        if name != "default" and name not in known:
            raise PlanError(
                f"There is no figure '{name}' of a model with this target: choose from {', '.join(known.values())}; or "
                "all, or default."
            )
        chosen |= dict.fromkeys(kind.usual(loss, noise) if name == "default" else [known[name]])
    if not chosen:
        raise PlanError(f"No figure is named: choose from {', '.join(known.values())}; or all, or default.")
    return tuple(chosen)


def _plain(name: str) -> str:
    """Return a figure's name as it is compared: lower case, and R2 for R²."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


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
    Blocks that none of the query's figures needs have no share.
    """
    kind = _KINDS[facts.loss.target_kind]
    chosen, early = (kind.block_shares(facts.loss, end, query.figures) for end in (True, False))
    if not last and any(early.values()):
        chosen = early
    elif last and not rounds:
        chosen = {name: chosen.get(name, 0.0) + early.get(name, 0.0) for name in chosen | early}
    blocks = query.blocks(facts)
    total = sum(chosen.get(block.name, 0.0) for block in blocks) * (1 + 1e-12)
    shares = {block.name: chosen.get(block.name, 0.0) / total for block in blocks}
    known = None
    if rounds:
        sigma = pooled_answer(rounds[-1].answers).sigma
        noise = {
            one.name: sigma * math.sqrt(one.squared_diameter / shares[one.name]) for one in blocks if shares[one.name]
        }
        known = replace(read_rounds(query, facts, rounds), next_noise=noise)
    bin_edges = kind.bin_edges(facts.data, facts.loss, largest_score(facts.data, facts.loss, weights), known)
    bin_edges["paired"] = bin_edges["loss"] / 4  # models that are compared mostly differ by less
    edges = {block.name: bin_edges.get(block.name, np.zeros(0)) for block in blocks}
    return EvaluationArgument(weights, against, edges, shares)


def evaluation_report(
    query: Evaluation, facts: Facts, rounds: Sequence[AnsweredRound], *, by_silo: bool = True
) -> EvaluationReport:
    """Return the metrics over all silos' records, and `by_silo` those of each silo that answered the last round."""
    silos = rounds[-1].answers if by_silo else ()
    return EvaluationReport(
        unit=facts.unit,
        together=model_metrics(read_rounds(query, facts, rounds), query.figures),
        silos={name: model_metrics(read_rounds(query, facts, rounds, name), query.figures) for name in silos},
        positive=facts.data.target_column.classes[-1] if facts.loss.target_kind == "label" else None,
    )


def model_metrics(answers: EvaluationAnswers, figures: Figures = None) -> ModelMetrics:
    """Return the metrics that are asked for, and for classifiers the confusion matrix, ROC and calibration curve."""
    loss, column = answers.loss, answers.data.target_column
    own = (one for one in _KINDS[loss.target_kind].metrics(answers) if is_asked_for(one.name, figures))
    metrics = (*own, *_metrics_against_other_model(answers))
    if column.is_number:
        return ModelMetrics(records=answers.records, metrics=metrics)

    def drawn(name: str, *blocks: str) -> bool:
        """Return whether a curve or matrix was asked for and measured."""
        return is_asked_for(name, figures) and all(answers.has(block) for block in blocks)

    roc, cells, bins = [], [], []
    if loss.target_kind == "label":
        if drawn(classification.CONFUSION, "confusion"):
            cells = classification.binary_confusion(answers)
        if drawn(classification.ROC, "scores") or drawn("AUC", "scores"):
            roc = classification.roc_curve(classification.ScoreShares.of(answers))
        if drawn(classification.CALIBRATION, "scores") and loss.is_log_loss:
            bins = classification.binary_calibration_curve(classification.ScoreShares.of(answers))
    else:
        if drawn(classification.CONFUSION, "cells"):
            cells = multiclass.multiclass_confusion(answers)
        if drawn(classification.CALIBRATION, "confidence"):
            bins = multiclass.multiclass_calibration_curve(answers)
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
            metric = normal_metric(name, clip * better, clip**2 * variance, least=-clip, most=clip, precise="any")
            metrics.append(metric if block == "right" else metric.noted(clipping_note(clip, "difference")))
    return metrics
