"""Who adds noise to which records, in runs side by side, and what every answer costs by the exact accountant.

A curator is a federation of one party that has all records. Every answer has Gaussian noise for replacing a record, by
a share of the party's squared shift; shares of a run add up to at most 1, which is exact (ε, δ)-DP for each record of
the party against anyone who sees all of its answers, however later queries depend on earlier answers.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray, Logistic, Loss
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.league.central import symmetric_noise
from ringfence.research.experiments.league.tables import LeagueTable

FAR = 1e4
"""Weights are clipped to this norm, so that a run that diverges stays finite."""


@dataclass(frozen=True, eq=False, repr=False)
class Party:
    """Records in one place, and the (ε, δ) of each of them against anyone who sees what the party sends."""

    features: FloatArray
    targets: FloatArray
    epsilon: float
    delta: float

    @property
    def records(self) -> int:
        """How many there are: public."""
        return len(self.targets)

    @property
    def shift(self) -> float:
        """The largest Gaussian shift that the budget allows."""
        return gaussian_shift(self.epsilon, self.delta)

    @cached_property
    def single(self) -> FloatArray:
        """The features in single precision, as the simulator has them: passes over records take half the time."""
        return self.features.astype(np.float32)

    @cached_property
    def lengths(self) -> FloatArray:
        """The norm of every record's features, in single precision too."""
        return np.asarray(np.linalg.norm(self.single, axis=1))

    @cached_property
    def moments(self) -> FloatArray:
        """(1/n)·Σxxᵀ."""
        return np.asarray(self.features.T @ self.features / self.records)

    @cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors of the moments."""
        values, axes = np.linalg.eigh(self.moments)
        return np.maximum(values, 0.0), axes


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """A problem and its parties; X bounds a record's features, Y its target."""

    loss: Loss
    shape: tuple[int, int]
    X: float
    Y: float
    parties: tuple[Party, ...]

    @property
    def shares(self) -> list[float]:
        """Every party's share of the records."""
        total = sum(party.records for party in self.parties)
        return [party.records / total for party in self.parties]

    @property
    def curvature(self) -> float:
        """The largest second derivative of the loss in a score: 1, ¼ or ½ for squared, logistic and softmax."""
        return self.loss.constants(1.0, 1.0, math.inf).smoothness

    @property
    def hessian_bound(self) -> float:
        """The largest eigenvalue of a record's Hessian."""
        return self.curvature * self.X**2

    @property
    def steepest(self) -> float:
        """The longest gradient of a record; of a number, at weights 0."""
        bound = 0.0 if self.loss.target_kind == "number" else math.inf
        return self.loss.constants(self.X, self.Y, bound).lipschitz

    def clipped_mean(self, party: Party, weights: FloatArray, clip: FloatArray) -> FloatArray:
        """Return each run's mean gradient of a party's records, each clipped to norm `clip`.

        Weights are (runs, features, outputs). Its sensitivity is 2·clip/n.
        """
        residuals = self.loss.residuals(scores(party, weights), party.targets.astype(np.float32))
        return sums(party, residuals, np.linalg.norm(residuals, axis=-1) * party.lengths[:, None], clip) / party.records

    def hessian(self, party: Party, weights: FloatArray) -> FloatArray:
        """Return each run's mean Hessian: at the weights for two classes, else its bound, the same for all runs.

        Its sensitivity is √2·hessian_bound/n in Frobenius norm. Softmax has Böhning's bound, ½·xxᵀ for every
        class, so that outputs share it.
        """
        if not isinstance(self.loss, Logistic):
            return np.broadcast_to(self.curvature * party.moments, (len(weights), *party.moments.shape))
        curved = self.loss.curvatures(scores(party, weights), party.targets)[..., 0]
        total = [(party.single * each[:, None]).T @ party.single for each in curved.T]
        return np.stack(total).astype(np.float64) / party.records


def silos(table: LeagueTable, epsilon: float) -> Federation:
    """Every silo adds its own noise: nobody is trusted."""
    parties = (Party(own.features, own.targets, epsilon, table.deltas[name]) for name, own in table.silos.items())
    return _federation(table, tuple(parties))


def curator(table: LeagueTable, epsilon: float) -> Federation:
    """A curator has all records, and the largest δ of the silos, and adds noise once."""
    return _federation(table, (Party(*table.pooled, epsilon, max(table.deltas.values())),))


class Releases:
    """Adds every party's noise, in runs side by side, and writes down the shift that each answer costs in each run."""

    def __init__(self, federation: Federation, runs: int, random: np.random.Generator) -> None:
        self.federation, self.runs, self.random = federation, runs, random
        self.shifts: list[list[FloatArray]] = [[] for _ in federation.parties]

    @property
    def start(self) -> FloatArray:
        """Weights 0 for every run."""
        return np.zeros((self.runs, *self.federation.shape))

    def charge(self, place: int, share: FloatArray | float) -> FloatArray:
        """Write down a share of a party's squared shift; return the shift that it buys, for each run."""
        shift = np.broadcast_to(self.federation.parties[place].shift * np.sqrt(share), (self.runs,))
        self.shifts[place].append(shift)
        return shift

    def release(
        self, place: int, answer: FloatArray, sensitivity: FloatArray | float, share: FloatArray | float
    ) -> FloatArray:
        """Return a party's answer, one row for each run, with noise; `sensitivity` in Euclidean norm."""
        sigma = np.asarray(sensitivity) / self.charge(place, share)
        return answer + wide(sigma, answer) * self.random.standard_normal(answer.shape)

    def release_symmetric(
        self, place: int, answer: FloatArray, sensitivity: float, share: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Return symmetric matrices with noise, and its σ for each run; `sensitivity` in Frobenius norm."""
        sigma = sensitivity / self.charge(place, share)
        noise = symmetric_noise(answer.shape[-1], self.random, self.runs)
        return answer + wide(sigma, answer) * noise, sigma

    def sketch(self, place: int, rows: int, root: FloatArray) -> FloatArray:
        """Return that many rows of N(0, rootᵀ·root), of one run; the caller charges for them."""
        del place
        return self.random.standard_normal((rows, len(root))) @ root

    def gradient(self, weights: FloatArray, clip: FloatArray, share: FloatArray | float) -> FloatArray:
        """Return the mean over all records of clipped gradients, each party's with noise."""
        total = self.start
        for place, (party, weight) in enumerate(zip(self.federation.parties, self.federation.shares, strict=True)):
            mean = self.federation.clipped_mean(party, weights, clip)
            total += weight * self.release(place, mean, 2 * clip / party.records, share)
        return total

    def second_moments(
        self, matrices: list[FloatArray], hessian_bound: float, share: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean of the parties' matrices, each with noise, and the edge of the noise's spectrum in each run.

        A record's own matrix is positive semidefinite of rank one with norm at most `hessian_bound`, so the mean of n
        has sensitivity √2·hessian_bound/n.
        """
        total, variance = np.zeros_like(matrices[0]), np.zeros(self.runs)
        for place, (party, weight) in enumerate(zip(self.federation.parties, self.federation.shares, strict=True)):
            seen, sigma = self.release_symmetric(
                place, matrices[place], math.sqrt(2) * hessian_bound / party.records, share
            )
            total = total + weight * seen
            variance += (weight * sigma) ** 2
        return total, np.sqrt(2 * self.federation.shape[0] * variance)


def wide(column: FloatArray, like: FloatArray) -> FloatArray:
    """Return a number for each run, so that it multiplies what each run has."""
    return np.asarray(column).reshape(-1, *(1,) * (like.ndim - 1))


def within_reach(weights: FloatArray) -> FloatArray:
    """Cut what each run has to a norm of at most FAR."""
    lengths = norms(weights)
    return weights * wide(FAR / np.maximum(lengths, FAR), weights)


def norms(rows: FloatArray) -> FloatArray:
    """Return the norm of what each run has."""
    return np.asarray(np.linalg.norm(rows.reshape(len(rows), -1), axis=1))


def clipped(rows: FloatArray, longest: FloatArray) -> FloatArray:
    """Cut what each run has to a norm; a projection, so that two of them get no farther apart."""
    return rows * wide(np.minimum(1.0, longest / np.maximum(norms(rows), 1e-300)), rows)


def _federation(table: LeagueTable, parties: tuple[Party, ...]) -> Federation:
    geometry = Geometry.of(table.schema)
    return Federation(table.loss, table.shape, geometry.feature_norm, geometry.target_bound, parties)


def scores(party: Party, weights: FloatArray) -> FloatArray:
    """Return every record's scores in every run: (records, runs, outputs)."""
    runs, width, outputs = weights.shape
    flat = party.single @ weights.transpose(1, 0, 2).reshape(width, runs * outputs).astype(np.float32)
    return flat.reshape(party.records, runs, outputs)


def sums(party: Party, residuals: FloatArray, lengths: FloatArray, clip: FloatArray) -> FloatArray:
    """Return Σxρᵀ of every run, (runs, features, outputs), where terms longer than the clip are shortened to it."""
    records, runs, outputs = residuals.shape
    kept = np.minimum(np.float32(1), clip.astype(np.float32) / np.maximum(lengths, np.float32(1e-30)))
    flat = party.single.T @ (residuals * kept[..., None]).reshape(records, runs * outputs)
    return flat.reshape(-1, runs, outputs).transpose(1, 0, 2).astype(np.float64)
