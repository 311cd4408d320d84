"""Where to ask for second moments: the first round's place, and a better one by what a round told.

Any place gives valid intervals; a good one gives short ones. Noise is the same along all axes, so axes along which
features scatter alike, as far as noise lets one tell, lose least. The lemma on what a record moves holds for any axes,
which is why they may be chosen by earlier answers.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import unpack
from ringfence.protocol.questions import SecondMoments
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.second_moments import Asked, independent

CUT = 3.0
"""Where residuals are cut, in their standard deviations, if a loss does not bound them."""

SPARE = 1.5
"""The squared norm at which features are cut, of their mean squared norm along the axes."""

_FIRST = 0.25
_LEAST = 0.1
_RATIOS = np.linspace(0.05, 30.0, 3000)
"""Cuts, in standard deviations of a residual."""


class Blocks(NamedTuple):
    """An answer's parts, as matrices, in the request's units."""

    curvature: FloatArray
    gradient: FloatArray
    scatter: FloatArray

    @classmethod
    def of(cls, asked: Asked, answer: FloatArray) -> "Blocks":
        """Read an answer."""
        axes = len(asked.axes)
        half = axes * (axes + 1) // 2
        return cls(_symmetric(answer[:half], axes), answer[half : half + axes], _symmetric(answer[half + axes :], axes))


def first(question: SecondMoments, facts: Facts) -> Asked:
    """Return the place of the first round: the weights to start from, features in units of their largest norm.

    The unit of residuals that nothing bounds is a quarter of the largest target: errors are mostly far smaller.
    """
    start, bound = unpack(question.start), facts.data.target_bound
    steepest = facts.loss.constants(1.0, bound, math.inf).lipschitz
    bend = facts.loss.constants(1.0, bound, facts.data.feature_norm * float(np.linalg.norm(start))).smoothness
    axes = np.eye(facts.data.width)[independent(facts.data)] / facts.data.feature_norm
    return Asked(start, steepest if math.isfinite(steepest) else _FIRST * bound, bend, axes)


def following(facts: Facts, asked: Asked, answer: FloatArray, noise: float) -> Asked:
    """Return where to ask next: a Newton step further, along axes of about equal curvature, in the residuals' unit.

    Curvatures below the noise count as that much in the step, and as a tenth of it in the choice of axes: an axis that
    turns out too long is cut, one too short stays hidden in noise.
    """
    told, count = Blocks.of(asked, answer), len(asked.axes)
    values, vectors = np.linalg.eigh(told.curvature)
    floor = 2 * math.sqrt(count) * noise  # the largest eigenvalue of such noise
    step = -vectors @ (vectors.T @ told.gradient / np.maximum(values, floor)) * asked.residual / asked.curvature
    longer = vectors / np.sqrt(np.maximum(values, _LEAST * floor)) * math.sqrt(_typical(facts, asked, told) / count)
    return asked._replace(
        weights=asked.weights + asked.axes.T @ step,
        residual=_residual_unit(facts, asked, told, noise),
        axes=longer.T @ asked.axes / math.sqrt(SPARE),
    )


def _typical(facts: Facts, asked: Asked, told: Blocks) -> float:
    """Return the mean curvature of records, in its unit, as the constant feature shows it; 1 where there is none."""
    if not facts.data.intercept:
        return 1.0
    back = np.linalg.inv(asked.axes[:, independent(facts.data)])[-1]
    return float(np.clip(back @ told.curvature @ back / facts.data.intercept**2, 0.05, 1.0))


def _residual_unit(facts: Facts, asked: Asked, told: Blocks, noise: float) -> float:
    """Return the size to cut residuals at: their bound, or `CUT` standard deviations, found as if they were normal.

    The scatter is E min(ρ², 1) times that of features, the curvature P(|ρ| < 1) times that.
    """
    if math.isfinite(facts.loss.constants(1.0, facts.data.target_bound, math.inf).lipschitz):
        return asked.residual
    size = max(float(np.linalg.norm(told.curvature)), noise)
    seen = max(float(np.sum(told.scatter * told.curvature)) / size**2, 2 * noise / size)
    inside = 2 * ndtr(_RATIOS) - 1
    density = np.exp(-(_RATIOS**2) / 2) / math.sqrt(2 * math.pi)
    expected = ((inside - 2 * _RATIOS * density) / _RATIOS**2 + 1 - inside) / inside  # falls with the ratio
    return CUT * asked.residual / float(np.interp(-seen, -expected, _RATIOS))


def _symmetric(triangle: FloatArray, size: int) -> FloatArray:
    """Return the matrix of an upper triangle whose diagonal is told times √½."""
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = triangle
    return upper + upper.T + (math.sqrt(2.0) - 2.0) * np.diag(np.diag(upper))
