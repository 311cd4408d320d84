"""Noisy answers of silos as means, shares and quantiles, each with the noise in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import scipy  # loads its modules on first use

from ringfence.protocol import Evaluation, Facts, FloatArray, Loss, Schema
from ringfence.protocol.queries.evaluation import node_weights, path_signs

BinEdges: TypeAlias = dict[str, FloatArray]
"""Bin edges, or a clip, by block of an evaluation."""

_SMALLEST = 1e-9
"""The largest score of a model whose weights are 0."""


@dataclass(frozen=True)
class NoisyAnswer:
    """An answer, the standard deviation of the noise in each of its numbers, and how many records it is about."""

    vector: FloatArray
    sigma: float
    records: int


@dataclass(frozen=True)
class AnsweredRound:
    """One round: the argument of its request, and each silo's answer."""

    argument: FloatArray
    answers: Mapping[str, NoisyAnswer]


def pooled_answer(answers: Mapping[str, NoisyAnswer]) -> NoisyAnswer:
    """Return the noisy answer of all silos' records together: the mean by records."""
    records = sum(one.records for one in answers.values())
    shares = [one.records / records for one in answers.values()]
    vector = np.sum([share * one.vector for share, one in zip(shares, answers.values(), strict=True)], axis=0)
    sigma = np.linalg.norm([share * one.sigma for share, one in zip(shares, answers.values(), strict=True)])
    return NoisyAnswer(vector, float(sigma), records)


@dataclass(frozen=True)
class BlockMeans:
    """The means in one block of an evaluation, the noise in each, and the bin edges of the request."""

    values: FloatArray
    noise: float
    bin_edges: FloatArray

    @property
    def clip(self) -> float:
        """Where each record's number in a block of answers was clipped: the only bin edge; 1 without any."""
        return float(self.bin_edges[0]) if len(self.bin_edges) else 1.0

    def scalar(self) -> tuple[float, float]:
        """Return the mean and noise of a block of an evaluation that has a single number."""
        return float(self.values[0]), self.noise


@dataclass(frozen=True)
class EvaluationAnswers:
    """Answers of one silo, or of all together, in some rounds of an evaluation: means by block and round.

    `largest` bounds the scores; `next_noise` is the noise that each block of the next round will have.
    """

    data: Schema
    loss: Loss
    records: int
    rounds: Sequence[Mapping[str, BlockMeans]]
    largest: float
    next_noise: Mapping[str, float] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether any round of the evaluation asked for a block."""
        return any(name in blocks for blocks in self.rounds)

    def latest(self, name: str) -> BlockMeans:
        """Return a block of the last round of the evaluation that asked for it."""
        return next(blocks[name] for blocks in reversed(self.rounds) if name in blocks)

    def averaged(self, name: str) -> BlockMeans:
        """Return the mean, weighted by precision, over all rounds that asked for a block with the last bin edges."""
        edges = self.latest(name).bin_edges
        every = [
            blocks[name] for blocks in self.rounds if name in blocks and np.array_equal(blocks[name].bin_edges, edges)
        ]
        precision = np.array([one.noise**-2 for one in every])
        values = precision @ np.array([one.values for one in every]) / precision.sum()
        return BlockMeans(values, float(precision.sum() ** -0.5), every[-1].bin_edges)


def largest_score(data: Schema, loss: Loss, weights: FloatArray) -> float:
    """Return the largest absolute score, offset included, that a model can give a record within the public bounds.

    Each block of features adds at most its largest norm times that of its weights; all together, their radius times
    the norm of all weights.
    """
    middle, reach = data.offset_range
    matrix, bounds = loss.matrix(weights, data.width), [block.bound for block in data.blocks]
    *parts, constant = np.split(matrix, np.cumsum([block.width for block in data.blocks]))
    apart = np.sum([bound * np.linalg.norm(part, axis=0) for bound, part in zip(bounds, parts, strict=True)], axis=0)
    together = (data.radius or data.blocks.bound) * np.linalg.norm(matrix[: len(matrix) - len(constant)], axis=0)
    scores = np.minimum(apart, together) + data.intercept * np.abs(constant).sum(axis=0)
    return max(float(scores.max()), _SMALLEST) + abs(middle) + reach


def read_rounds(
    query: Evaluation, facts: Facts, rounds: Sequence[AnsweredRound], silo: str | None = None
) -> EvaluationAnswers:
    """Return the block means of one silo, or of all silos together."""
    every, records, largest = [], 0, _SMALLEST
    for one in rounds:
        if silo is not None and silo not in one.answers:
            continue
        answer = pooled_answer(one.answers) if silo is None else one.answers[silo]
        asked = query.read(facts, one.argument)
        scale, records = query.scale(facts, asked), answer.records
        largest = largest_score(facts.data, facts.loss, asked.weights)
        every.append(
            {
                name: BlockMeans(answer.vector[part] / scale[name], answer.sigma / scale[name], asked.bin_edges[name])
                for name, part in query.slices(facts).items()
                if scale[name] > 0
            }
        )
    return EvaluationAnswers(facts.data, facts.loss, records, every, largest)


@dataclass(frozen=True)
class CellShares:
    """Noisy shares of the records in cells that make up all of them, with the noise's covariance; possibly negative.

    `fit` are the possible shares nearest to them, if they were computed: none is negative, and they add up to 1.
    """

    shares: FloatArray
    noise: FloatArray
    records: int
    fit: FloatArray | None = None

    @property
    def fitted(self) -> FloatArray:
        """Possible shares: those that were fitted, else the noisy ones clamped."""
        if self.fit is not None:
            return self.fit
        kept: FloatArray = np.maximum(self.shares, 0.0)
        return kept / max(float(kept.sum()), 1e-12)

    def total(self, slope: FloatArray) -> float:
        """Return the sum of cells' shares times `slope`."""
        return float(slope @ self.shares)

    def variance(self, slope: FloatArray, other: FloatArray | None = None) -> float:
        """Return the variance of a sum of cells' shares times `slope`, by noise and sampling; or a covariance."""
        slopes = np.array([slope, slope if other is None else other])
        return float(self.covariance(slopes)[0, 1])

    def covariance(self, slopes: FloatArray) -> FloatArray:
        """Return the covariance of several sums of cells' shares, one row of slopes each."""
        kept = self.fitted
        means = slopes @ kept
        sampling = (slopes * kept) @ slopes.T - np.outer(means, means)
        return np.asarray(slopes @ self.noise @ slopes.T + sampling / self.records)

    def noise_variance(self, slope: FloatArray) -> float:
        """Return the variance of a sum of cells' shares times `slope` by noise alone."""
        return float(slope @ self.noise @ slope)

    def sampling_variance(self, slope: FloatArray) -> float:
        """Return the variance of a sum of cells' shares times `slope` by sampling alone."""
        return self.variance(slope) - self.noise_variance(slope)

    def merged(self, groups: FloatArray) -> "CellShares":
        """Return the shares of coarser cells, one row of 0 and 1 for each."""
        fit = None if self.fit is None else groups @ self.fit
        return CellShares(groups @ self.shares, groups @ self.noise @ groups.T, self.records, fit)


def leaf_shares(groups: CellShares, tree: BlockMeans) -> CellShares:
    """Return the shares of all leaves, group after group, of groups with these shares.

    The children of a node of share p whose path_signs average to d have the shares (p ± d)/2.
    """
    count = len(groups.shares)
    nodes = len(tree.values) // count
    levels = (nodes + 1).bit_length() - 1
    leaves = 2**levels
    depth = np.repeat(np.arange(levels), 2 ** np.arange(levels))
    below = path_signs(levels) / (node_weights(levels) * 2.0 ** (levels - depth))
    shares = groups.shares[:, None] / leaves + tree.values.reshape(count, nodes) @ below.T
    noise: FloatArray = np.asarray(np.kron(groups.noise, np.full((leaves, leaves), 1 / leaves**2)), dtype=np.float64)
    noise += np.kron(np.eye(count), tree.noise**2 * below @ below.T)
    return CellShares(shares.reshape(-1), noise, groups.records)


def possible_shares(total: float, rows: FloatArray, values: FloatArray) -> FloatArray:
    """Return the non-negative shares with this sum for which `rows` times the shares is nearest to `values`."""
    if total <= 0:
        return np.zeros(rows.shape[1])
    heavy = 1e4 * max(float(np.abs(rows).max()), 1e-9)
    sums = np.full((1, rows.shape[1]), heavy)
    found = scipy.optimize.nnls(np.concatenate([rows, sums]), np.append(values / total, heavy))[0]
    return np.asarray(total * found / found.sum())


def fitted_leaves(groups: FloatArray, tree: BlockMeans) -> FloatArray:
    """Return possible shares of all leaves, group after group: those of each group add up to its share.

    Groups are fitted one by one, with their shares fixed. All at once, noise in the trees would increase the shares of
    small groups: a tree's numbers are at most its group's share.
    """
    nodes = len(tree.values) // len(groups)
    levels = (nodes + 1).bit_length() - 1
    rows = (path_signs(levels) * node_weights(levels)).T
    each = zip(groups, tree.values.reshape(len(groups), nodes), strict=True)
    return np.concatenate([possible_shares(float(share), rows, values) for share, values in each])


def leaf_shares_of_all(records: int, tree: BlockMeans) -> CellShares:
    """Return the shares of all leaves of a tree over all records."""
    return leaf_shares(CellShares(np.ones(1), np.zeros((1, 1)), records), tree)


def cumulative_shares(shares: FloatArray) -> FloatArray:
    """Return the share of cells below each edge, from 0 to 1: the isotonic regression of the noisy sums."""
    total = max(float(shares.sum()), 1e-9)
    below = scipy.optimize.isotonic_regression(np.cumsum(shares)[:-1] / total).x
    inside: FloatArray = np.concatenate([[0.0], np.clip(below, 0.0, 1.0), [1.0]])
    return inside + np.linspace(0.0, 1e-6, len(inside))  # strictly increasing, to be invertible


def log_quantiles(edges: FloatArray, shares: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles of positive numbers from cells' shares, interpolated on a logarithmic scale within a cell."""
    known = np.log(np.concatenate([[edges[0] / 2], edges, [edges[-1] * 2]]))
    return np.asarray(np.exp(np.interp(levels, cumulative_shares(shares), known)))
