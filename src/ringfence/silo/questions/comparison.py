"""By how much models' losses on each record differ, as the numbers that `protocol.questions.comparison` names."""

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.losses.told import values_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Comparison
from ringfence.protocol.questions.comparison import SIZE_LEVELS
from ringfence.protocol.questions.evaluation import CURVE
from ringfence.silo import exact_sums
from ringfence.silo.questions.scores import leaf_of, scores_of, tree_terms
from ringfence.silo.records import Records


def total(
    question: Comparison, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up, over the records that take part, what each says of the models."""
    models, ruler = question.read(plan, argument)
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number counts as 0
        losses = np.stack(
            [values_of(plan.loss, scores_of(plan, own, records), records.targets) for own in models], axis=1
        )
        differences = losses - losses.mean(axis=1, keepdims=True)
        terms = _sizes(differences, ruler) if question.part == "sizes" else _losses(differences, ruler)
    kept = (1 - exact_sums.slack(question.length(plan))) * question.scale
    return exact_sums.column_sums(records.means(np.nan_to_num(terms * kept)), chosen)


def answer(question: Comparison, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int) -> FloatArray:
    """Return the means."""
    del question, plan, argument
    return exact_sums.quotient(total, batch)


def _sizes(differences: FloatArray, edges: FloatArray) -> FloatArray:
    """Return where the length of each record's differences stands in the tree; what is no number is the longest."""
    leaf = leaf_of(edges, exact_sums.norms(differences))
    return tree_terms(SIZE_LEVELS, np.zeros(len(leaf), dtype=np.int64), 1, leaf)


def _losses(differences: FloatArray, cut: FloatArray) -> FloatArray:
    """Return each record's differences in units of the cut, no longer than 1, beside their squared length."""
    inside = differences / max(float(cut[0]), TINY)
    inside /= np.maximum(exact_sums.norms(inside), 1.0)[:, None]
    squares = np.sum(inside * inside, axis=1, keepdims=True)
    return np.concatenate([inside, CURVE * squares], axis=1)
