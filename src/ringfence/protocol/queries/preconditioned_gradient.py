"""The preconditioned gradient: the mean of the records' gradients along axes of the request, each clipped to norm 1."""

from typing import ClassVar, Literal

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes, AxesForm, axes_length, unpacked
from ringfence.protocol.plan.effort import NUMBER, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.queries.base import Facts, MeanQuery
from ringfence.protocol.queries.feature_moments import LARGEST_ARGUMENT
from ringfence.protocol.queries.gradient import sums_held


class PreconditionedGradient(MeanQuery):
    """The mean, over the batch, of the records' gradients at the request's weights along the request's axes.

    A record's gradient is outer(Ax, residual), x its features and A the axes, a row each, clipped to norm 1. The axes'
    scale decides how much is clipped, and their shape where the noise goes: along them it is isotropic.
    `axes` is the form in which a request carries them: a matrix, unless the plan names another.

    The diameter is 2, whatever weights and axes are (`docs/proofs.md`, Lemma Q11), also for persons, by each rule for
    their rows.
    """

    trains: ClassVar[bool] = True
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
        """Tell whether weights are in the domain and the axes of a preconditioned gradient not too large."""
        weights, axes = np.split(argument, [facts.dimension])
        return facts.domain.contains(weights) and bool(np.all(np.abs(axes) <= LARGEST_ARGUMENT))

    def read(self, facts: Facts, argument: FloatArray) -> tuple[FloatArray, Axes]:
        """Return the weights and the axes of a request for a preconditioned gradient."""
        weights, axes = np.split(argument, [facts.dimension])
        return weights, unpacked(self.axes, axes)

    def length(self, facts: Facts) -> int:
        """Return a number for each weight: the preconditioned gradient."""
        return facts.dimension

    def diameter(self, facts: Facts) -> float:
        """Return 2: preconditioned gradients are clipped to norm 1."""
        return 2.0

    def rounded(self, facts: Facts) -> float:
        """Return 0: rounding keeps a preconditioned gradient within its clip."""
        return 0.0

    def record_norm(self, facts: Facts) -> float:
        """Return 1, the clipping norm of preconditioned gradients."""
        return 1.0

    def terms_summed(self, facts: Facts) -> int:
        """Return a number for each weight: each coordinate of a preconditioned gradient is summed."""
        return facts.dimension

    def breadth(self, facts: Facts) -> int:
        """Return a record's features along the axes, and its outputs, for a preconditioned gradient."""
        return facts.data.width + facts.loss.outputs

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count the product of features and axes, and a gradient, for a preconditioned gradient."""
        breadth = self.breadth(facts)
        product = 2 * PRODUCT * records * (axes_length(self.axes, facts.data.width) + facts.dimension)
        sums = PASS / 2 * records * facts.dimension if facts.person_rule == "sum" else 0.0
        held = 6 * breadth * at_once(records, breadth) + sums_held(facts, records)
        return Effort(product + 4 * PASS * records * breadth + sums, NUMBER * held)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that the query reveals the average gradient along axes (preconditioned) that the server chooses."""
        columns = facts.data.inputs
        return (
            f"In each of {rounds} rounds, {facts.dimension} numbers: the average gradient of the {facts.loss.called} "
            f"loss, for predicting '{facts.data.target_words}' from {columns}, at weights and along axes that the "
            "server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Say how the gradient of a record, or a person, is clipped to norm 1 along the preconditioning axes."""
        most = facts.rows_per_person
        return {
            None: "Each record's gradient, along the requested axes, is clipped to norm 1",
            "mean": "A person counts as the mean over all rows, each row's gradient, along the requested axes, clipped "
            "to norm 1",
            "rows": f"A person counts as the first {most} rows, 1/{most} each, with gradients, along the requested "
            "axes, clipped to norm 1",
            "sum": "The sum of the gradients of a person's rows, along the requested axes, is clipped to norm 1",
        }[facts.person_rule]

    def uncovered(self, facts: Facts) -> str:
        """Name the axes of preconditioned gradients, which no loss bound covers."""
        return "axes that the server chooses"
