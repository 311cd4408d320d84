"""The gradient: the mean of the records' gradients of the plan's loss, each clipped to norm `clip`."""

from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.plan.effort import MOST_THREADS, NUMBER, PART, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.queries.base import Facts, MeanQuery


class Gradient(MeanQuery):
    """The mean, over the batch, of the records' gradients at the request's weights, each clipped to norm `clip`.

    The diameter is 2·clip, whatever the weights are (`docs/proofs.md`, Lemma Q1), also for persons, by each rule for
    their rows (Lemma P1).
    """

    trains: ClassVar[bool] = True
    name: Literal["gradient"] = "gradient"
    clip: float = Field(gt=0)

    def length(self, facts: Facts) -> int:
        """Return a number for each weight: the average gradient."""
        return facts.dimension

    def diameter(self, facts: Facts) -> float:
        """Return twice the clipping norm of gradients."""
        return 2 * self.clip

    def rounded(self, facts: Facts) -> float:
        """Return 0: rounding keeps a gradient within its clip."""
        return 0.0

    def largest(self, facts: Facts) -> float:
        """Return the clipping norm of gradients."""
        return self.clip

    def record_norm(self, facts: Facts) -> float:
        """Return the clipping norm of gradients, which a shuffler may add up."""
        return self.clip

    def terms_summed(self, facts: Facts) -> int:
        """Return a number for each weight: each coordinate of a gradient is summed."""
        return facts.dimension

    def breadth(self, facts: Facts) -> int:
        """Return a record's outputs: for gradients, features are processed in parts that fit a processor's cache."""
        return facts.loss.outputs

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count, for gradients, two products of features with a matrix, and passes over every record's outputs.

        The rule `sum` takes passes over every row's gradient besides, in parts that fit a processor's cache; this
        assumes that nobody has more rows than such a part.
        """
        outputs = facts.loss.outputs
        held = 6 * outputs * at_once(records, outputs) + sums_held(facts, records)
        product = Effort(2 * PRODUCT * records * facts.dimension + 4 * PASS * records * outputs, NUMBER * held)
        if facts.person_rule != "sum":
            return product
        return product + Effort(PASS / 2 * records * facts.dimension)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that the query reveals the average gradient of the loss at the server's weights."""
        columns = facts.data.inputs
        return (
            f"In each of {rounds} rounds, {facts.dimension} numbers: the average gradient of the {facts.loss.called} "
            f"loss, for predicting '{facts.data.target_words}' from {columns}, at weights that the server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Say how the gradient of a record, or a person, is clipped to `clip`."""
        most = facts.rows_per_person
        return {
            None: f"Each record's gradient is clipped to norm {self.clip:.4g}",
            "mean": f"A person counts as the mean over all rows, each row's gradient clipped to norm {self.clip:.4g}",
            "rows": f"A person counts as the first {most} rows, 1/{most} each, with gradients clipped to "
            f"norm {self.clip:.4g}",
            "sum": f"The sum of the gradients of a person's rows is clipped to norm {self.clip:.4g}",
        }[facts.person_rule]

    def uncovered(self, facts: Facts) -> str:
        """Name clipped gradients of several outputs, and clipped sums: they need not be gradients of a convex loss."""
        if not facts.loss.is_proved:
            return "a custom loss, whose constants were found on a grid"
        if facts.person_rule == "sum":
            return "sums of a person's gradients that are clipped as one"
        bound = facts.loss.constants_on(facts.data, facts.domain.reach(facts.dimension)).lipschitz
        several = facts.loss.outputs > 1 and self.clip < bound and not facts.loss.is_convex_clipped
        return "clipped gradients of several outputs" if several else ""


def sums_held(facts: Facts, records: int) -> int:
    """Return how many numbers are held while gradients are added up."""
    part = max(PART, 32 * facts.dimension)
    return 4 * min(part * MOST_THREADS, records * facts.dimension) + 40 * facts.dimension
