"""Answers read as shares and means, each beside the noise in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import Evaluation
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import node_weights, signs


@dataclass(frozen=True)
class Heard:
    """An answer, the standard deviation of the noise in each of its numbers, and how many records it is about."""

    vector: FloatArray
    sigma: float
    records: int


@dataclass(frozen=True)
class Round:
    """One round: what was asked, and what each silo answered."""

    argument: FloatArray
    heard: Mapping[str, Heard]


def pooled(heard: Mapping[str, Heard]) -> Heard:
    """Return the answer of all silos' records together."""
    records = sum(one.records for one in heard.values())
    shares = [one.records / records for one in heard.values()]
    vector = np.sum([share * one.vector for share, one in zip(shares, heard.values(), strict=True)], axis=0)
    sigma = np.linalg.norm([share * one.sigma for share, one in zip(shares, heard.values(), strict=True)])
    return Heard(vector, float(sigma), records)


@dataclass(frozen=True)
class Means:
    """Means of some numbers, the standard deviation of the noise in each, and the ruler that they were asked with."""

    values: FloatArray
    noise: float
    ruler: FloatArray

    def scalar(self) -> tuple[float, float]:
        """Return a single number's mean and noise."""
        return float(self.values[0]), self.noise


@dataclass(frozen=True)
class Found:
    """All that one silo, or all of them together, said in some rounds: means by block, one mapping per round."""

    facts: Facts
    records: int
    rounds: Sequence[Mapping[str, Means]]

    def has(self, name: str) -> bool:
        """Tell whether a block was asked for."""
        return any(name in found for found in self.rounds)

    def latest(self, name: str) -> Means:
        """Return what the last round that asked for a block found."""
        return next(found[name] for found in reversed(self.rounds) if name in found)

    def together(self, name: str) -> Means:
        """Return the mean over all rounds of a block that needs no ruler, those with less noise counting more."""
        every = [found[name] for found in self.rounds if name in found]
        precision = np.array([one.noise**-2 for one in every])
        values = precision @ np.array([one.values for one in every]) / precision.sum()
        return Means(values, float(precision.sum() ** -0.5), every[-1].ruler)


def found_by(question: Evaluation, facts: Facts, rounds: Sequence[Round], silo: str | None = None) -> Found:
    """Read what a silo, or all silos together, answered; the rounds are those in which somebody did."""
    every = []
    records = 0
    for one in rounds:
        if silo is not None and silo not in one.heard:
            continue
        heard = pooled(one.heard) if silo is None else one.heard[silo]
        asked = question.read(facts, one.argument)
        scale, records = question.scale(facts, asked), heard.records
        every.append(
            {
                name: Means(heard.vector[part] / scale[name], heard.sigma / scale[name], asked.ruler[name])
                for name, part in question.parts(facts).items()
                if scale[name] > 0
            }
        )
    return Found(facts, records, every)


@dataclass(frozen=True)
class Cells:
    """Shares of the records in cells that make up all of them, with the noise's covariance. They may be negative."""

    shares: FloatArray
    noise: FloatArray
    records: int

    def variance(self, slope: FloatArray, other: FloatArray | None = None) -> float:
        """Return the variance of a sum of shares times `slope`, by noise and by sampling; or its covariance."""
        slopes = np.array([slope, slope if other is None else other])
        return float(self.covariance(slopes)[0, 1])

    def covariance(self, slopes: FloatArray) -> FloatArray:
        """Return the covariance of several such sums, one row of slopes each."""
        kept = np.maximum(self.shares, 0.0)
        kept = kept / max(float(kept.sum()), 1e-12)
        means = slopes @ kept
        sampling = (slopes * kept) @ slopes.T - np.outer(means, means)
        return np.asarray(slopes @ self.noise @ slopes.T + sampling / self.records)

    def within(self, slope: FloatArray) -> float:
        """Return the noise's variance alone."""
        return float(slope @ self.noise @ slope)

    def summed(self, groups: FloatArray) -> "Cells":
        """Return the shares of coarser cells, one row of 0 and 1 for each."""
        return Cells(groups @ self.shares, groups @ self.noise @ groups.T, self.records)


def cells_of_tree(masses: Cells, tree: Means) -> Cells:
    """Return the shares of all leaves, group after group, of groups with these shares.

    The children of a node of share p whose signs average to d have the shares (p ± d)/2.
    """
    groups = len(masses.shares)
    nodes = len(tree.values) // groups
    levels = (nodes + 1).bit_length() - 1
    leaves = 2**levels
    depth = np.repeat(np.arange(levels), 2 ** np.arange(levels))
    below = signs(levels) / (node_weights(levels) * 2.0 ** (levels - depth))
    shares = masses.shares[:, None] / leaves + tree.values.reshape(groups, nodes) @ below.T
    noise: FloatArray = np.asarray(np.kron(masses.noise, np.full((leaves, leaves), 1 / leaves**2)), dtype=np.float64)
    noise += np.kron(np.eye(groups), tree.noise**2 * below @ below.T)
    return Cells(shares.reshape(-1), noise, masses.records)


def everybody(records: int) -> Cells:
    """Return the one cell that all records are in."""
    return Cells(np.ones(1), np.zeros((1, 1)), records)
