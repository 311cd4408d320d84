"""The preconditioned gradient: the mean of the records' gradients along axes of the request, each cut to norm 1."""

from typing import ClassVar, Literal

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes, AxesForm, axes_length, unpacked
from ringfence.protocol.effort import NUMBER, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.questions.base import BaseQuestion, Facts
from ringfence.protocol.questions.feature_moments import LARGEST_ARGUMENT
from ringfence.protocol.questions.gradient import sums_held


class PreconditionedGradient(BaseQuestion):
    """The mean, over the batch, of the records' gradients at the request's weights along the request's axes.

    A record's gradient is outer(Ax, residual), x its features and A the axes, a row each, cut to norm 1. The axes'
    scale decides how much is cut, and their shape where the noise goes: along them it is alike in all directions.
    `axes` says how a request describes them: as a matrix, unless the plan names another form.

    Replacing a record moves it by at most 2/batch, whatever weights and axes are (`docs/proofs.md`, Lemma Q11); so does
    replacing a person, by each rule for their rows.
    """

    trains: ClassVar[bool] = True
    later_fields: ClassVar[frozenset[str]] = frozenset({"axes"})
    name: Literal["preconditioned-gradient"] = "preconditioned-gradient"
    axes: AxesForm | None = None

    def check(self, facts: Facts) -> None:
        """Refuse outputs that share slopes: axes are of features, and their constants are no features."""
        if facts.loss.shares_slopes:
            raise ValueError(
                f"gradients along axes are not defined for the {facts.loss.called} loss: ask for gradients"
            )

    def argument_length(self, facts: Facts) -> int:
        """Return the weights, then the axes."""
        return facts.dimension + axes_length(self.axes, facts.data.width)

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether the weights are in the domain, and the axes numbers to compute with."""
        weights, axes = np.split(argument, [facts.dimension])
        return facts.domain.contains(weights) and bool(np.all(np.abs(axes) <= LARGEST_ARGUMENT))

    def asked(self, facts: Facts, argument: FloatArray) -> tuple[FloatArray, Axes]:
        """Read the weights and the axes that a request carries."""
        weights, axes = np.split(argument, [facts.dimension])
        return weights, unpacked(self.axes, axes)

    def length(self, facts: Facts) -> int:
        """Return one number per axis and output."""
        return facts.dimension

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return 2/batch."""
        del facts
        return 2.0 / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        del facts
        return 1.0

    def record_norm(self, facts: Facts) -> float:
        """Return 1."""
        del facts
        return 1.0

    def terms_summed(self, facts: Facts) -> int:
        """Return the answer's length."""
        return facts.dimension

    def breadth(self, facts: Facts) -> int:
        """Return a record's features along the axes, and its outputs."""
        return facts.data.width + facts.loss.outputs

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return the product of features and axes, and what a gradient takes."""
        breadth = self.breadth(facts)
        product = 2 * PRODUCT * records * (axes_length(self.axes, facts.data.width) + facts.dimension)
        sums = PASS / 2 * records * facts.dimension if facts.person_rule == "sum" else 0.0
        held = 6 * breadth * at_once(records, breadth) + sums_held(facts, records)
        return Effort(product + 4 * PASS * records * breadth + sums, NUMBER * held)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the loss, the target and the features."""
        columns = facts.data.inputs
        return (
            f"In each of {rounds} rounds, {facts.dimension} numbers: the average gradient of the {facts.loss.called} "
            f"loss, for predicting '{facts.data.target_words}' from {columns}, at weights and along axes that the "
            "server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Name the cut, and what a person's rows come to."""
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
        """Say that no loss bound speaks of axes that the server chooses."""
        del facts
        return "axes that the server chooses"
