"""Logistic problems whose population is known: what an algorithm's excess risk can be measured on.

A record of silo i has features x = z/max{1, ‖z‖} with z ~ N(m_i, Σ), where Σ has eigenvalues ∝ 1/j, and the label +1
with probability sigmoid(⟨x, w_i⟩). With identical silos m_i = 0 and w_i = w*; else every silo has its own mean and
its own shift of w*. Nobody trains on fresh features; their labels' probabilities stand in for labels, so that no luck
of the labels is in the population risk, and its minimum over identical silos is w* exactly.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol import FloatArray
from ringfence.simulation import engine

IDENTICAL, DIFFERENT = "identical silos", "different silos"
PROBLEMS = (IDENTICAL, DIFFERENT)

DISTANCE = 10.0
"""D₀: the radius of the ball of weights, also in the plan request."""
TRUE_NORM = 8.0
SPREAD = 0.75
"""Trace of Σ."""
MEAN_NORM, SHIFT_NORM = 0.4, 4.0


@dataclass(frozen=True)
class Size:
    """How large a problem is, the most rounds of a run, and how many fresh features measure the population risk."""

    silos: int
    records: int
    dimension: int
    rounds: int
    fresh: int

    @property
    def delta(self) -> float:
        """1/n²."""
        return 1 / self.records**2


FULL = Size(25, 4096, 50, 200, 200_000)
QUICK = Size(4, 256, 5, 16, 4_000)


@dataclass(frozen=True)
class World:
    """The distribution of every silo's records: one row of means and of weights per silo."""

    means: FloatArray
    weights: FloatArray

    def draw(self, per_silo: int, choices: np.random.Generator) -> list[tuple[FloatArray, FloatArray]]:
        """Return features, and the probability of the label +1, of so many records of every silo."""
        spectrum = 1 / np.arange(1, self.means.shape[1] + 1)
        deviations = np.sqrt(SPREAD * spectrum / spectrum.sum())
        drawn = []
        for mean, weights in zip(self.means, self.weights, strict=True):
            features = mean + deviations * choices.standard_normal((per_silo, len(mean)))
            features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
            drawn.append((features, 1 / (1 + np.exp(-features @ weights))))
        return drawn


@dataclass(frozen=True)
class Sample:
    """Features with probabilities of the label +1 (0 or 1 where the label is known), and the least mean loss there."""

    features: FloatArray
    probabilities: FloatArray
    least: float

    def excess(self, weights: FloatArray) -> FloatArray:
        """Return the excess loss of every row of weights."""
        return _losses(self.features, self.probabilities, weights.T) - self.least


@dataclass(frozen=True)
class Dataset:
    """The records that silos train on, in three forms."""

    silos: list[tuple[FloatArray, FloatArray]]
    federation: Any
    sample: Sample


def world(problem: str, size: Size) -> World:
    """Return a problem's distributions: the same each time."""
    choices = np.random.default_rng([size.dimension, 11])

    def directions(count: int) -> FloatArray:
        drawn = choices.standard_normal((count, size.dimension))
        normalised: FloatArray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return normalised

    truth = TRUE_NORM * directions(1)
    differ = 1.0 if problem == DIFFERENT else 0.0
    return World(
        differ * MEAN_NORM * directions(size.silos),
        truth + differ * SHIFT_NORM * directions(size.silos),
    )


@lru_cache(maxsize=2)
def population(problem: str, size: Size) -> Sample:
    """Return the fresh records that stand for the population."""
    drawn = world(problem, size).draw(size.fresh // size.silos, np.random.default_rng([size.dimension, 12]))
    return _sample(*(np.concatenate(parts) for parts in zip(*drawn, strict=True)))


@lru_cache(maxsize=2)
def dataset(problem: str, size: Size, trial: int) -> Dataset:
    """Return the training records of a trial: every trial has its own, from the same distributions."""
    choices = np.random.default_rng([size.dimension, 13, trial])
    silos = [
        (features, np.where(choices.random(len(likely)) < likely, 1.0, -1.0))
        for features, likely in world(problem, size).draw(size.records, choices)
    ]
    features, labels = (np.concatenate(parts) for parts in zip(*silos, strict=True))
    return Dataset(silos, engine.federation(silos), _sample(features, (labels + 1) / 2))


def _losses(features: FloatArray, probabilities: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the mean of E log(1 + exp(−y⟨x, w⟩)) for every column of weights: log(1 + e^u) − p·u."""
    scores = features @ columns
    result: FloatArray = np.mean(np.logaddexp(0.0, scores) - probabilities[:, None] * scores, axis=0)
    return result


def _sample(features: FloatArray, probabilities: FloatArray) -> Sample:
    """Find the least loss by Newton's method; it must be attained within the ball, which bounds compare with."""
    weights = np.zeros(features.shape[1])
    for _ in range(50):
        sigmoid = 1 / (1 + np.exp(-features @ weights))
        gradient = features.T @ (sigmoid - probabilities) / len(features)
        if np.linalg.norm(gradient) < 1e-10:
            break
        curvature = features.T @ (features * (sigmoid * (1 - sigmoid))[:, None]) / len(features)
        weights -= np.linalg.solve(curvature, gradient)
    if not (np.linalg.norm(gradient) < 1e-8 and np.linalg.norm(weights) < DISTANCE):
        raise TrainingError(
            "The optimum of a synthetic problem was not found inside its ball. Make the problem larger, or w* smaller."
        )
    return Sample(features, probabilities, float(_losses(features, probabilities, weights[:, None])[0]))
