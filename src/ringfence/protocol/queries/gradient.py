"""The gradient: the mean of the records' gradients of the plan's loss, each clipped to norm `clip`."""

from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.effort import MOST_THREADS, NUMBER, PART, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.questions.base import BaseQuestion, Facts


class Gradient(BaseQuestion):
    """The mean, over the batch, of the records' gradients at the request's weights, each clipped to norm `clip`.

    Replacing a record moves it by at most 2·clip/batch, whatever the weights are (`docs/proofs.md`, Lemma Q1); so does
    replacing a person, by each rule for their rows (Lemma P1).
    """

    trains: ClassVar[bool] = True
    name: Literal["gradient"] = "gradient"
    clip: float = Field(gt=0)

    def length(self, facts: Facts) -> int:
        """Return one number per weight."""
        return facts.dimension

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return 2·clip/batch."""
        return 2 * self.clip / batch

    def largest(self, facts: Facts) -> float:
        """Return the clip."""
        return self.clip

    def record_norm(self, facts: Facts) -> float:
        """Return the clip."""
        return self.clip

    def terms_summed(self, facts: Facts) -> int:
        """Return the number of weights."""
        return facts.dimension

    def breadth(self, facts: Facts) -> int:
        """Return a record's outputs: of its features no more is held than a processor's cache does."""
        return facts.loss.outputs

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return two products of the features with a matrix, and some passes over every record's outputs.

        Sums of a person's rows take passes over every row's gradient besides, in parts that a processor's cache holds;
        nobody is thought to have more rows than such a part.
        """
        outputs = facts.loss.outputs
        held = 6 * outputs * at_once(records, outputs) + sums_held(facts, records)
        product = Effort(2 * PRODUCT * records * facts.dimension + 4 * PASS * records * outputs, NUMBER * held)
        if facts.person_rule != "sum":
            return product
        return product + Effort(PASS / 2 * records * facts.dimension)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the loss, the target and the features."""
        columns = facts.data.inputs
        return (
            f"In each of {rounds} rounds, {facts.dimension} numbers: the average gradient of the {facts.loss.called} "
            f"loss, for predicting '{facts.data.target_words}' from {columns}, at weights that the server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Name the clip, and how a person's rows count."""
        most = facts.rows_per_person
        return {
            None: f"Each record's gradient is clipped to norm {self.clip:.4g}",
            "mean": f"A person counts as the mean over all rows, each row's gradient clipped to norm {self.clip:.4g}",
            "rows": f"A person counts as the first {most} rows, 1/{most} each, with gradients clipped to "
            f"norm {self.clip:.4g}",
            "sum": f"The sum of the gradients of a person's rows is clipped to norm {self.clip:.4g}",
        }[facts.person_rule]

    def uncovered(self, facts: Facts) -> str:
        """Name clipped gradients of several outputs, and clipped sums: no convex loss need have these gradients."""
        if not facts.loss.is_proved:
            return "a custom loss, whose constants were found on a grid"
        if facts.person_rule == "sum":
            return "sums of a person's gradients that are clipped as one"
        bound = facts.loss.constants_on(facts.data, facts.domain.reach(facts.dimension)).lipschitz
        several = facts.loss.outputs > 1 and self.clip < bound and not facts.loss.is_convex_cut
        return "clipped gradients of several outputs" if several else ""


def sums_held(facts: Facts, records: int) -> int:
    """Return how many numbers are held while gradients are added up: every thread's part, and whole numbers."""
    part = max(PART, 32 * facts.dimension)
    return 4 * min(part * MOST_THREADS, records * facts.dimension) + 40 * facts.dimension
