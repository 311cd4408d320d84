"""Confidence intervals for coefficients from noisy second moments, and where to measure these.

With H, g and V the mean curvature, gradient and scatter of gradients at weights w, all noisy, the shifted gradient
M(Δ) = g + HΔ has mean 0 at the true Δ, up to the change of the loss's curvature over Δ. Its covariance there is

    V/n + (τ² + s²|Δ|²)·I + s²·ΔΔᵀ

with τ and s the noise in a number of g and in an off-diagonal one of H (`docs/proofs.md`, Lemma Q7). Functions ℓ·Δ are
tested by a·M(Δ), a = H⁻¹ℓ, at the likeliest Δ under the hypothesis. The variance depends on the hypothesis, so the
values that pass solve Fieller's inequality. Where they are unbounded, the curvature is lost in noise.

Any place gives valid intervals; a good one gives short ones. The noise is the same along all axes, so whitened axes
lose least. The sensitivity is the same for any axes, so earlier answers may choose them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtr

from ringfence.estimates.intervals import critical_value, fieller_interval
from ringfence.protocol import Facts, FloatArray, SecondMoments, unpack
from ringfence.protocol.queries.second_moments import MomentsArgument, independent_features

_CLIP = 3.0
"""Where residuals are clipped, in standard deviations, if the loss does not bound them."""

_SPARE = 1.5
"""The squared clipping norm of features, relative to their mean squared norm along the axes."""

_FIRST = 0.25
_LEAST = 0.1
_RATIOS = np.linspace(0.05, 30.0, 3000)
"""Clips, in standard deviations of a residual."""


class SiloMoments(NamedTuple):
    """A silo's share of all records, its answer averaged over so many rounds, and the noise of one round."""

    weight: float
    sigma: float
    answer: FloatArray
    rounds: int = 1

    @property
    def noise(self) -> float:
        """The noise in the silo's averaged second moments."""
        return self.sigma / math.sqrt(self.rounds)

    def joined(self, answer: FloatArray) -> "SiloMoments":
        """Return the silo's second moments averaged with one more round's answer."""
        rounds = self.rounds + 1
        return self._replace(answer=self.answer + (answer - self.answer) / rounds, rounds=rounds)


def pooled_moments(silos: Mapping[str, SiloMoments]) -> tuple[FloatArray, float, FloatArray]:
    """Return the silos' average answer, the noise in it, and their shares of it."""
    weights = np.array([silo.weight for silo in silos.values()])
    shares = weights / weights.sum()
    answers, noises = (np.array([getattr(silo, what) for silo in silos.values()]) for what in ("answer", "noise"))
    return shares @ answers, float(np.linalg.norm(shares * noises)), shares


class MomentBlocks(NamedTuple):
    """The parts of an answer to second moments, as matrices."""

    curvature: FloatArray
    gradient: FloatArray
    scatter: FloatArray

    @classmethod
    def of(cls, asked: MomentsArgument, answer: FloatArray) -> "MomentBlocks":
        """Read the blocks of second moments from an answer, in the units of the request."""
        axes = len(asked.axes)
        half = axes * (axes + 1) // 2
        return cls(_symmetric(answer[:half], axes), answer[half : half + axes], _symmetric(answer[half + axes :], axes))

    def in_loss_units(self, asked: MomentsArgument) -> "MomentBlocks":
        """Return the blocks of second moments in units of the loss."""
        return MomentBlocks(
            self.curvature * asked.curvature, self.gradient * asked.residual, self.scatter * asked.residual**2
        )


def _symmetric(triangle: FloatArray, size: int) -> FloatArray:
    """Return the symmetric matrix of an upper triangle whose diagonal was released times √½."""
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = triangle
    return upper + upper.T + (math.sqrt(2.0) - 2.0) * np.diag(np.diag(upper))


@dataclass(frozen=True)
class CoefficientInterval:
    """An estimate, its standard error, an interval and a p-value against 0; infinite if noise hides the curvature."""

    estimate: float
    error: float
    low: float
    high: float
    p_value: float

    @property
    def is_known(self) -> bool:
        """Whether the coefficient's interval is bounded."""
        return math.isfinite(self.error)


def coefficient_intervals(
    asked: MomentsArgument,
    silos: Mapping[str, SiloMoments],
    records: int,
    functions: FloatArray,
    offsets: FloatArray,
    *,
    level: float,
    by_silo: bool = False,
) -> list[CoefficientInterval]:
    """Return an interval for each linear function (a row) of the best weights, plus its offset.

    `records` is their number in all: they count as independent draws. With `by_silo`, silos are the draws: the spread
    of their answers, noise included, gives the error, with Student's t of one degree less than silos.
    """
    answer, noise, shares = pooled_moments(silos)
    each = [MomentBlocks.of(asked, silo.answer).in_loss_units(asked) for silo in silos.values()]
    whole = MomentBlocks.of(asked, answer).in_loss_units(asked)
    try:
        inverse = np.linalg.inv(whole.curvature)
    except np.linalg.LinAlgError:
        return [_unbounded(math.nan)] * len(functions)
    step = -inverse @ whole.gradient
    curvature_noise = noise * asked.curvature
    flat = (noise * asked.residual) ** 2
    values, vectors = np.linalg.eigh(whole.scatter)
    scatter = (vectors * np.maximum(values, 0.0)) @ vectors.T / records
    shift = curvature_noise**2 * np.outer(step, step)
    spread = scatter + (flat + curvature_noise**2 * step @ step) * np.eye(len(step)) + shift

    def interval(function: FloatArray, at: float) -> CoefficientInterval:
        """Return the interval of one coefficient: a linear function of the weights, plus its offset."""
        a = inverse @ function
        along = inverse @ spread @ a / (a @ spread @ a or 1.0)  # a function that is 0 has no error
        if by_silo:
            constant = np.array([a @ (own.gradient + own.curvature @ step) for own in each])
            slope = np.array([a @ own.curvature @ along for own in each]) - 1.0
            scale = shares * math.sqrt(len(each) / (len(each) - 1))
            terms = [float(np.sum((scale * x) * (scale * y))) for x, y in _products(constant, slope)]
        else:
            terms = [float(curvature_noise**2 * (a @ a * (x @ y) + a @ x * (a @ y))) for x, y in _products(step, along)]
            terms[0] += max(float(a @ whole.scatter @ a) / records, 0.0) + flat * float(a @ a)
        freedom = len(each) - 1 if by_silo else math.inf
        return _tested(at + float(function @ step), terms, level, freedom)

    rows = functions @ asked.axes.T
    return [interval(row, float(at)) for row, at in zip(rows, functions @ asked.weights + offsets, strict=True)]


def _products(constant: FloatArray, slope: FloatArray) -> Sequence[tuple[FloatArray, FloatArray]]:
    """Return the pairs whose products make up the constant, linear and quadratic term of a variance."""
    return (constant, constant), (constant, slope), (slope, slope)


def _tested(estimate: float, variance: Sequence[float], level: float, freedom: float) -> CoefficientInterval:
    """Return all coefficients that a test accepts; at distance x from the estimate its variance is v₀ + 2v₁x + v₂x²."""
    square = critical_value(level, freedom) ** 2
    constant, linear, quadratic = (square * term for term in variance)
    ends = fieller_interval(1 - quadratic, linear, -constant)
    if ends is None or not constant >= 0:
        return _unbounded(estimate)
    at_zero = variance[0] - 2 * variance[1] * estimate + variance[2] * estimate**2
    below = -abs(estimate) / math.sqrt(at_zero) if at_zero > 0 else -math.inf
    p_value = 2 * float(ndtr(below) if math.isinf(freedom) else stdtr(freedom, below))
    return CoefficientInterval(estimate, math.sqrt(variance[0]), estimate + ends.low, estimate + ends.high, p_value)


def _unbounded(estimate: float) -> CoefficientInterval:
    """Return the interval of a coefficient whose curvature is lost in noise."""
    return CoefficientInterval(estimate, math.inf, -math.inf, math.inf, 1.0)


def first_moment_request(query: SecondMoments, facts: Facts) -> MomentsArgument:
    """Return the first round's argument: the start weights, and features in units of their largest norm.

    The unit of unbounded residuals is a quarter of the largest target: most errors are far smaller.
    """
    start, bound = unpack(query.start), facts.data.target_bound
    steepest = facts.loss.constants(1.0, bound, math.inf).lipschitz
    curvature = facts.loss.constants(1.0, bound, facts.data.feature_norm * float(np.linalg.norm(start))).smoothness
    axes = np.eye(facts.data.width)[independent_features(facts.data)] / facts.data.feature_norm
    return MomentsArgument(start, steepest if math.isfinite(steepest) else _FIRST * bound, curvature, axes)


def next_moment_request(facts: Facts, asked: MomentsArgument, answer: FloatArray, noise: float) -> MomentsArgument:
    """Return the next round's argument: a Newton step further, along whitened axes, in the residuals' unit.

    Curvatures below the noise count as the noise in the step, and as a tenth of it in the choice of axes: an axis that
    is too long is clipped, one that is too short stays hidden in noise.
    """
    blocks, count = MomentBlocks.of(asked, answer), len(asked.axes)
    values, vectors = np.linalg.eigh(blocks.curvature)
    floor = 2 * math.sqrt(count) * noise  # the largest eigenvalue of such noise
    step = -vectors @ (vectors.T @ blocks.gradient / np.maximum(values, floor)) * asked.residual / asked.curvature
    mean = math.sqrt(_mean_curvature(facts, asked, blocks) / count)
    longer = vectors / np.sqrt(np.maximum(values, _LEAST * floor)) * mean
    return asked._replace(
        weights=asked.weights + asked.axes.T @ step,
        residual=_residual_unit(facts, asked, blocks, noise),
        axes=longer.T @ asked.axes / math.sqrt(_SPARE),
    )


def _mean_curvature(facts: Facts, asked: MomentsArgument, blocks: MomentBlocks) -> float:
    """Return the records' mean curvature, in its unit, read from the constant feature; 1 if there is none."""
    if not facts.data.intercept:
        return 1.0
    back = np.linalg.inv(asked.axes[:, independent_features(facts.data)])[-1]
    return float(np.clip(back @ blocks.curvature @ back / facts.data.intercept**2, 0.05, 1.0))


def _residual_unit(facts: Facts, asked: MomentsArgument, blocks: MomentBlocks, noise: float) -> float:
    """Return where to clip residuals: at their bound, or at `_CLIP` standard deviations of a normal law.

    The scatter is E min(ρ², 1) times that of features, the curvature P(|ρ| < 1) times that.
    """
    if math.isfinite(facts.loss.constants(1.0, facts.data.target_bound, math.inf).lipschitz):
        return asked.residual
    size = max(float(np.linalg.norm(blocks.curvature)), noise)
    seen = max(float(np.sum(blocks.scatter * blocks.curvature)) / size**2, 2 * noise / size)
    inside = 2 * ndtr(_RATIOS) - 1
    density = np.exp(-(_RATIOS**2) / 2) / math.sqrt(2 * math.pi)
    expected = ((inside - 2 * _RATIOS * density) / _RATIOS**2 + 1 - inside) / inside  # falls with the ratio
    return _CLIP * asked.residual / float(np.interp(-seen, -expected, _RATIOS))
