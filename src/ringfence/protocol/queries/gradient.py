"""The gradient: the mean of the records' gradients of the plan's loss, each clipped to norm `clip`."""

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes
from ringfence.protocol.plan.effort import MOST_THREADS, NUMBER, PART, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.queries.base import Facts, MeanQuery


class GradientQuery(MeanQuery):
    """What gradients share, with and without axes: the mean of vectors that are clipped to `record_norm`."""

    trains: ClassVar[bool] = True
    rounds_for: ClassVar[str] = "training"
    along: ClassVar[str] = ""
    """Along what a gradient is clipped, as an insertion."""
    chosen: ClassVar[str] = "weights"
    """What the server chooses."""

    @abstractmethod
    def record_norm(self, facts: Facts) -> float:
        """Return the clipping norm of gradients, which a shuffler may add up."""

    def read(self, facts: Facts, argument: FloatArray) -> tuple[FloatArray, Axes | None]:
        """Return the weights of a request for a gradient, and its axes, if gradients are clipped along some."""
        return argument, None

    def length(self, facts: Facts) -> int:
        """Return a number for each weight: the average gradient."""
        return facts.dimension

    def diameter(self, facts: Facts) -> float:
        """Return twice the clipping norm of gradients."""
        return 2 * self.record_norm(facts)

    def rounded(self, facts: Facts) -> float:
        """Return 0: rounding keeps a gradient within its clip."""
        return 0.0

    def largest(self, facts: Facts) -> float:
        """Return the clipping norm of gradients."""
        return self.record_norm(facts)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count, for gradients, two products of features with the argument, and passes over what each record takes.

        The rule `sum` takes passes over every row's gradient besides, in parts that fit a processor's cache; this
        assumes that nobody has more rows than such a part.
        """
        breadth, dimension = self.breadth(facts), facts.dimension
        part = max(PART, 32 * dimension)
        added_up = 4 * min(part * MOST_THREADS, records * dimension) + 40 * dimension
        seconds = 2 * PRODUCT * records * self.argument_length(facts) + 4 * PASS * records * breadth
        sums = PASS / 2 * records * dimension if facts.person_rule == "sum" else 0.0
        return Effort(seconds + sums, NUMBER * (6 * breadth * at_once(records, breadth) + added_up))

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that the query reveals the average gradient of the loss at the server's weights."""
        return (
            f"In each of {rounds} rounds, {facts.dimension} numbers: the average gradient of the {facts.loss.called} "
            f"loss, for predicting '{facts.data.target_words}' from {facts.data.inputs}, at {self.chosen} that the "
            "server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Say how the gradient of a record, or a person, is clipped."""
        most, along, clipped = facts.rows_per_person, self.along, f"clipped to norm {self.record_norm(facts):.4g}"
        return {
            None: f"Each record's gradient{along} is {clipped}",
            "mean": f"A person counts as the mean over all rows, each row's gradient{along} {clipped}",
            "rows": f"A person counts as the first {most} rows, 1/{most} each, with gradients{along} {clipped}",
            "sum": f"The sum of the gradients of a person's rows{along} is {clipped}",
        }[facts.person_rule]


class Gradient(GradientQuery):
    """The mean, over the batch, of the records' gradients at the request's weights, each clipped to norm `clip`.

    The diameter is 2·clip, whatever the weights are (`docs/proofs.md`, Lemma Q1), also for persons, by each rule for
    their rows (Lemma P1).
    """

    name: Literal["gradient"] = "gradient"
    clip: float = Field(gt=0)

    def record_norm(self, facts: Facts) -> float:
        """Return the plan's clipping norm of gradients."""
        return self.clip

    def breadth(self, facts: Facts) -> int:
        """Return a record's outputs: for gradients, features are processed in parts that fit a processor's cache."""
        return facts.loss.outputs

    def uncovered(self, facts: Facts) -> str:
        """Name clipped gradients of several outputs, and clipped sums: they need not be gradients of a convex loss."""
        if not facts.loss.is_proved:
            return "a custom loss, whose constants were found on a grid"
        if facts.person_rule == "sum":
            return "sums of a person's gradients that are clipped as one"
        bound = facts.loss.constants_on(facts.data, facts.domain.reach(facts.dimension)).lipschitz
        several = facts.loss.outputs > 1 and self.clip < bound and not facts.loss.is_convex_clipped
        return "clipped gradients of several outputs" if several else ""
