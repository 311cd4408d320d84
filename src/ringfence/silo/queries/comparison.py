"""The terms of a comparison: how much the models' losses on each record differ."""

import numpy as np

from ringfence.protocol import Comparison, FloatArray, Plan
from ringfence.protocol.arrays import TINY, row_norms
from ringfence.protocol.losses.targets import values_of
from ringfence.protocol.queries.comparison import SIZE_LEVELS
from ringfence.protocol.queries.evaluation import CURVE
from ringfence.silo.queries.evaluation import leaf_of, scores_of, tree_terms
from ringfence.silo.records import exact_sums
from ringfence.silo.records.records import Records


def terms(query: Comparison, plan: Plan, argument: FloatArray, records: Records) -> FloatArray:
    """Return every record's place in the tree of norms, or its clipped differences of losses."""
    models, bin_edges = query.read(plan, argument)
    with np.errstate(over="ignore", invalid="ignore"):  # NaN counts as 0
        losses = np.stack(
            [values_of(plan.loss, scores_of(plan, own, records), records.targets) for own in models], axis=1
        )
        differences = losses - losses.mean(axis=1, keepdims=True)
        values = _sizes(differences, bin_edges) if query.part == "sizes" else _losses(differences, bin_edges)
    kept = (1 - exact_sums.slack(query.length(plan))) * query.scale
    return np.nan_to_num(values * kept)


def _sizes(differences: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the comparison's tree terms of the norm of each record's differences; NaN counts as the largest."""
    leaf = leaf_of(edges, row_norms(differences))
    return tree_terms(SIZE_LEVELS, np.zeros(len(leaf), dtype=np.int64), 1, leaf)


def _losses(differences: FloatArray, clip: FloatArray) -> FloatArray:
    """Return each record's differences of losses in units of the clipping norm, clipped to 1, and the squared norm."""
    inside = differences / max(float(clip[0]), TINY)
    inside /= np.maximum(row_norms(inside), 1.0)[:, None]
    squares = np.sum(inside * inside, axis=1, keepdims=True)
    return np.concatenate([inside, CURVE * squares], axis=1)
