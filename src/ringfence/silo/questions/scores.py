"""How a model scores records, and where numbers stand in a tree: what evaluation and comparison share."""

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions.evaluation import node_weights, signs
from ringfence.silo import exact_sums
from ringfence.silo.records import Records


def scores_of(plan: Plan, weights: FloatArray, records: Records) -> FloatArray:
    """Return the records' scores, without offsets, each the same wherever the record stands."""
    limbs = exact_sums.limbs(plan.loss.matrix(without_negligible(weights), plan.data.width))
    products, outputs = records.block() @ limbs, limbs.shape[1] // 2
    scores: FloatArray = products[:, :outputs] + products[:, outputs:]
    return scores


def leaf_of(edges: FloatArray, values: FloatArray) -> NDArray[np.int64]:
    """Return how many edges lie at or below each value. Of edges out of order, a search would tell by other values."""
    return np.searchsorted(np.sort(edges), values, side="right")


def tree_terms(levels: int, group: NDArray[np.int64], groups: int, leaf: NDArray[np.int64]) -> FloatArray:
    """Return, in the part of each record's group, the signs of the nodes above its leaf, and 0 elsewhere."""
    paths = signs(levels) * node_weights(levels)
    result = np.zeros((len(leaf), groups, paths.shape[1]))
    result[np.arange(len(leaf)), group] = paths[leaf]
    return result.reshape(len(leaf), -1)
