"""Intervals for linear functions of a model's weights, from noisy second moments.

With H, g and V the mean curvature, gradient and scatter of gradients at weights w, as told, the moved gradient
M(Δ) = g + HΔ has mean 0 at the right Δ, up to the loss's bend over Δ, and there its covariance is

    V/n + (τ² + s²|Δ|²)·I + s²·ΔΔᵀ

with τ and s the noise in a number of g and in one of H off its diagonal (`docs/proofs.md`, Lemma Q7). Functions ℓ·Δ are
tested by a·M(Δ), a = H⁻¹ℓ, at the Δ that the hypothesis leaves likeliest. The variance depends on the hypothesis, so
the values that pass solve a quadratic inequality (Fieller's). Where they are unbounded, the curvature that the function
depends on cannot be told from noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import norm, t

from ringfence.inference.asking import Blocks
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions.second_moments import Asked


class SiloAnswer(NamedTuple):
    """A silo's share of all records, its own answer, averaged over so many rounds, and the noise of one of them."""

    weight: float
    sigma: float
    answer: FloatArray
    rounds: int = 1

    @property
    def noise(self) -> float:
        """The noise in the average."""
        return self.sigma / math.sqrt(self.rounds)

    def joined(self, answer: FloatArray) -> "SiloAnswer":
        """Return the silo with one more round's answer."""
        rounds = self.rounds + 1
        return self._replace(answer=self.answer + (answer - self.answer) / rounds, rounds=rounds)


def pooled(silos: Mapping[str, SiloAnswer]) -> tuple[FloatArray, float, FloatArray]:
    """Return the silos' average answer, the noise in it, and their shares of it."""
    weights = np.array([silo.weight for silo in silos.values()])
    shares = weights / weights.sum()
    answers, noises = (np.array([getattr(silo, what) for silo in silos.values()]) for what in ("answer", "noise"))
    return shares @ answers, float(np.linalg.norm(shares * noises)), shares


@dataclass(frozen=True)
class CoefficientInterval:
    """An estimate, its standard error, an interval and a p-value against 0; infinite where nothing can be told."""

    estimate: float
    error: float
    low: float
    high: float
    p_value: float

    @property
    def is_told(self) -> bool:
        """Whether the curvature that it depends on can be told from noise."""
        return math.isfinite(self.error)


def intervals(
    asked: Asked,
    silos: Mapping[str, SiloAnswer],
    records: int,
    functions: FloatArray,
    offsets: FloatArray,
    *,
    level: float,
    by_silo: bool = False,
) -> list[CoefficientInterval]:
    """Return an interval for each of the linear functions (rows) of the right weights, plus its offset.

    `records` is how many there are in all: they count as independent draws. `by_silo` takes silos for draws instead:
    their own answers then say how far these scatter, noise included, with Student's t of one degree less than silos.
    """
    told, noise, shares = pooled(silos)
    each, whole = [_in_units(asked, silo.answer) for silo in silos.values()], _in_units(asked, told)
    try:
        inverse = np.linalg.inv(whole.curvature)
    except np.linalg.LinAlgError:
        return [_nothing(math.nan)] * len(functions)
    step = -inverse @ whole.gradient
    bend_noise = noise * asked.curvature
    flat = (noise * asked.residual) ** 2
    values, vectors = np.linalg.eigh(whole.scatter)
    scatter = (vectors * np.maximum(values, 0.0)) @ vectors.T / records
    spread = scatter + (flat + bend_noise**2 * step @ step) * np.eye(len(step)) + bend_noise**2 * np.outer(step, step)

    def interval(function: FloatArray, at: float) -> CoefficientInterval:
        a = inverse @ function
        along = inverse @ spread @ a / (a @ spread @ a)
        if by_silo:
            constant = np.array([a @ (own.gradient + own.curvature @ step) for own in each])
            slope = np.array([a @ own.curvature @ along for own in each]) - 1.0
            scale = shares * math.sqrt(len(each) / (len(each) - 1))
            terms = [float(np.sum((scale * x) * (scale * y))) for x, y in _squares(constant, slope)]
        else:
            terms = [float(bend_noise**2 * (a @ a * (x @ y) + a @ x * (a @ y))) for x, y in _squares(step, along)]
            terms[0] += max(float(a @ whole.scatter @ a) / records, 0.0) + flat * float(a @ a)
        constant_term, half, square = terms
        freedom = len(each) - 1 if by_silo else math.inf
        return _fieller(at + float(function @ step), (constant_term, 2 * half, square), level, freedom)

    rows = functions @ asked.axes.T
    return [interval(row, float(at)) for row, at in zip(rows, functions @ asked.weights + offsets, strict=True)]


def _squares(constant: FloatArray, slope: FloatArray) -> Sequence[tuple[FloatArray, FloatArray]]:
    return (constant, constant), (constant, slope), (slope, slope)


def _in_units(asked: Asked, answer: FloatArray) -> Blocks:
    told = Blocks.of(asked, answer)
    return Blocks(told.curvature * asked.curvature, told.gradient * asked.residual, told.scatter * asked.residual**2)


def _fieller(estimate: float, variance: Sequence[float], level: float, freedom: float) -> CoefficientInterval:
    """Return the values at distances x from the estimate that a test passes, of variance v₀ + v₁x + v₂x²."""
    law = norm if math.isinf(freedom) else t(freedom)
    square = float(law.ppf((1 + level) / 2)) ** 2
    constant, linear, quadratic = (square * term for term in variance)
    if not (quadratic < 1 and constant >= 0):
        return _nothing(estimate)
    root = math.sqrt(linear**2 + 4 * (1 - quadratic) * constant)
    low, high = ((linear + sign * root) / (2 * (1 - quadratic)) for sign in (-1.0, 1.0))
    at_zero = variance[0] - variance[1] * estimate + variance[2] * estimate**2
    p_value = 2 * float(law.sf(abs(estimate) / math.sqrt(at_zero))) if at_zero > 0 else 0.0
    return CoefficientInterval(estimate, math.sqrt(variance[0]), estimate + low, estimate + high, p_value)


def _nothing(estimate: float) -> CoefficientInterval:
    return CoefficientInterval(estimate, math.inf, -math.inf, math.inf, 1.0)
