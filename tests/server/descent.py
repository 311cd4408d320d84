"""Runs of an algorithm as pure functions on functions known exactly, and the paper's Algorithm 1 to the letter."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ringfence.protocol import FloatArray, Plan
from ringfence.server.algorithms import accelerated

Map = Callable[[FloatArray], FloatArray]


def descend(
    plan: Plan, gradient: Map, start: FloatArray, settings: accelerated.Settings | None = None
) -> list[accelerated.State]:
    """Return the states before the first round and after each one. Without a domain, runs may stand side by side."""
    chosen = accelerated.settings(plan) if settings is None else settings
    states = [accelerated.init(start)]
    for round in range(plan.steps):
        asked = accelerated.query_weights(chosen, states[-1], round)
        states.append(accelerated.step(chosen, plan.proximal, states[-1], gradient(asked), round))
    return states


@dataclass(frozen=True)
class Quadratic:
    """½(w − best)ᵀH(w − best), with H = diag(eigenvalues)."""

    eigenvalues: FloatArray
    best: FloatArray

    def gap(self, weights: FloatArray) -> FloatArray:
        """Return how far above its minimum the function is."""
        gap: FloatArray = 0.5 * np.sum(self.eigenvalues * (weights - self.best) ** 2, axis=-1)
        return gap

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Return the gradient."""
        return self.eigenvalues * (weights - self.best)

    def without_ridge(self, ridge: float) -> Map:
        """Return the gradient of what is left when a ridge, which the server adds, is taken out."""
        return lambda weights: self.gradient(weights) - ridge * weights


@dataclass(frozen=True)
class Points:
    """All points of a run of Algorithm 1, in the paper's order: the start first."""

    w: list[FloatArray]
    model: list[FloatArray]


def algorithm_1(
    gradient: Map, project: Map, start: FloatArray, *, upsilon: float, rounds: int, convexity: float = 0.0
) -> Points:
    """Run the paper's Algorithm 1 with α = 2/(r+1), η = 4υ/(r(r+1)); `gradient` is that of the whole objective."""
    points, mu = Points([start], [start]), convexity
    for r in range(1, rounds + 1):
        alpha, eta = 2 / (r + 1), 4 * upsilon / (r * (r + 1))
        w, model = points.w[-1], points.model[-1]
        share = alpha * ((1 - alpha) * mu + eta) / (eta + (1 - alpha**2) * mu)
        asked = (1 - share) * model + share * w
        # ∇ of α[⟨g, u⟩ + (μ/2)‖asked − u‖²] + ½[(1−α)μ + η]‖w − u‖² is 0 at:
        free = (alpha * mu * asked + ((1 - alpha) * mu + eta) * w - alpha * gradient(asked)) / (mu + eta)
        points.w.append(project(free))
        points.model.append(alpha * points.w[-1] + (1 - alpha) * model)
    return points


def slope(x: list[float], y: list[float]) -> float:
    """Return the slope of the straight line nearest to the points."""
    return float(np.polyfit(x, y, 1)[0])


def ratios(values: list[float]) -> list[float]:
    """Return each value over the one before it."""
    return [after / before for before, after in pairwise(values)]
