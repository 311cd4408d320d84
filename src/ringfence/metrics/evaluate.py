"""From answers to figures, and from figures to what to ask next."""

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from ringfence.metrics import numbers, several_classes, several_numbers, times, two_classes
from ringfence.metrics.estimates import Found, Round, found_by
from ringfence.metrics.intervals import Figure, cut_figure, normal
from ringfence.metrics.report import Bin, Cell, Evaluated, EvaluationReport, Point
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import Evaluation
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import CURVE, Asked

_KINDS: dict[str, ModuleType] = {
    "label": two_classes,
    "class": several_classes,
    "number": numbers,
    "numbers": several_numbers,
    "time": times,
}
_SMALLEST = 1e-9
"""Stands for the largest score of a model without any."""


def next_asked(
    question: Evaluation,
    facts: Facts,
    weights: FloatArray,
    against: FloatArray | None,
    heard: Sequence[Round],
    *,
    last: bool,
) -> Asked:
    """Return what to ask in a stage's next round, after what was heard in those before: a ruler that suits the records.

    Only the last round asks for what a ruler must be known for; where it is the only one, half of each.
    """
    kind = _KINDS[facts.loss.target_kind]
    largest = max(facts.data.feature_norm * float(np.linalg.norm(weights)), _SMALLEST)
    ruler = kind.ruler(facts, largest, found_by(question, facts, heard) if heard else None)
    ruler["paired"] = ruler["loss"] / 4  # models that are compared mostly differ by less
    chosen = dict(kind.shares(facts, last=last))
    if last and not heard:
        early = kind.shares(facts, last=False)
        chosen = {name: chosen.get(name, 0.0) + early.get(name, 0.0) for name in chosen | early}
    blocks = question.blocks(facts)
    total = sum(chosen.get(block.name, 0.0) for block in blocks) * (1 + 1e-12)
    return Asked(
        weights,
        against,
        {block.name: ruler.get(block.name, np.zeros(0)) for block in blocks},
        {block.name: chosen.get(block.name, 0.0) / total for block in blocks},
    )


def report(question: Evaluation, facts: Facts, rounds: Sequence[Round]) -> EvaluationReport:
    """Return the figures of all silos' records together, and of each silo that answered the last round."""
    names = list(rounds[-1].heard)
    return EvaluationReport(
        unit=facts.unit,
        together=evaluated(found_by(question, facts, rounds)),
        silos={name: evaluated(found_by(question, facts, rounds, name)) for name in names},
    )


def evaluated(found: Found) -> Evaluated:
    """Return all figures of what was found."""
    kind, column = found.facts.loss.target_kind, found.facts.data.target_column
    figures = [*_KINDS[kind].figures(found), *_compared(found)]
    if column.is_number:
        return Evaluated(records=found.records, figures=tuple(figures))
    cells = (two_classes if kind == "label" else several_classes).confusion(found)
    roc, bins = [], []
    if kind == "label":
        scores = two_classes.Scores.of(found)
        roc = two_classes.curve(scores)
        if found.facts.loss.is_log_loss:
            bins = two_classes.calibration_curve(scores)
    else:
        bins = several_classes.calibration_curve(found)
    return Evaluated(
        records=found.records,
        figures=tuple(figures),
        confusion=tuple(
            Cell(actual=column.classes[own], predicted=column.classes[side], share=share) for own, side, share in cells
        ),
        roc=tuple(Point(threshold=at, false_positive_rate=fall, true_positive_rate=hit) for at, fall, hit in roc),
        calibration=tuple(Bin(predicted=predicted, share=share) for predicted, share in bins),
    )


def _compared(found: Found) -> list[Figure]:
    """Return by how much the model is better than the other one, record by record."""
    shown = []
    for block, name in (("right", "accuracy above the other model's"), ("paired", "loss below the other model's")):
        if found.has(block):
            told = found.latest(block)
            cap = float(told.ruler[0]) if len(told.ruler) else 1.0
            mean, square = float(told.values[0]), float(told.values[1]) / CURVE
            variance = told.noise**2 + max(square - mean**2, 0.0) / found.records
            better = mean if block == "right" else -mean
            figure = normal(name, cap * better, cap**2 * variance, least=-cap, most=cap)
            shown.append(figure if block == "right" else cut_figure(name, figure, cap, "difference"))
    return shown
