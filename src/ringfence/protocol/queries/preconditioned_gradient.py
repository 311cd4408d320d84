"""The preconditioned gradient: the mean of the records' gradients along axes of the request, each clipped to norm 1."""

from typing import ClassVar, Literal

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes, AxesForm, axes_length, unpacked
from ringfence.protocol.queries.base import Facts
from ringfence.protocol.queries.feature_moments import LARGEST_ARGUMENT
from ringfence.protocol.queries.gradient import GradientQuery


class PreconditionedGradient(GradientQuery):
    """The mean, over the batch, of the records' gradients at the request's weights along the request's axes.

    A record's gradient is outer(Ax, residual), x its features and A the axes, a row each, clipped to norm 1. The axes'
    scale decides how much is clipped, and their shape where the noise goes: along them it is isotropic.
    `axes` is the form in which a request carries them: a matrix, unless the plan names another.

    The diameter is 2, whatever weights and axes are (`docs/proofs.md`, Lemma Q11), also for persons, by each rule for
    their rows.
    """

    along: ClassVar[str] = ", along the requested axes,"
    chosen: ClassVar[str] = "weights and along axes"
    name: Literal["preconditioned-gradient"] = "preconditioned-gradient"
    axes: AxesForm | None = None

    def check(self, facts: Facts) -> None:
        """Refuse preconditioned gradients of outputs that share slopes: their constants are no features, as in axes."""
        if facts.loss.shares_slopes:
            raise ValueError(
                f"gradients along axes are not defined for the {facts.loss.called} loss: ask for gradients"
            )

    def argument_length(self, facts: Facts) -> int:
        """Return the weights and the axes of a preconditioned gradient."""
        return facts.dimension + axes_length(self.axes, facts.data.width)

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether weights are in the domain and the axes of a preconditioned gradient not too large."""
        weights, axes = np.split(argument, [facts.dimension])
        return facts.domain.contains(weights) and bool(np.all(np.abs(axes) <= LARGEST_ARGUMENT))

    def read(self, facts: Facts, argument: FloatArray) -> tuple[FloatArray, Axes]:
        """Return the weights and the axes of a request for a preconditioned gradient."""
        weights, axes = np.split(argument, [facts.dimension])
        return weights, unpacked(self.axes, axes)

    def record_norm(self, facts: Facts) -> float:
        """Return 1, the clipping norm of preconditioned gradients."""
        return 1.0

    def breadth(self, facts: Facts) -> int:
        """Return a record's features along the axes, and its outputs, for a preconditioned gradient."""
        return facts.data.width + facts.loss.outputs

    def uncovered(self, facts: Facts) -> str:
        """Name the axes of preconditioned gradients, which no loss bound covers."""
        return "axes that the server chooses"
