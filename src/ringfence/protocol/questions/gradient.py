"""The gradient: the mean of the records' gradients of the plan's loss, each cut to length `clip`."""

from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.effort import NUMBER, PASS, PRODUCT, Effort
from ringfence.protocol.questions.base import BaseQuestion, Facts


class Gradient(BaseQuestion):
    """The mean, over the batch, of the records' gradients at the request's weights, each cut to norm `clip`.

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

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return two products of the features with a matrix, and some passes over every record's outputs.

        Sums of a person's rows take passes over every row's gradient besides, in parts that a processor's cache holds;
        nobody is thought to have more rows than such a part.
        """
        scores = records * facts.loss.outputs
        product = Effort(
            2 * PRODUCT * records * facts.dimension + 4 * PASS * scores, NUMBER * (6 * scores + 4 * facts.dimension)
        )
        if facts.person_rule != "sum":
            return product
        part = max(2**18, 32 * facts.dimension)
        return product + Effort(PASS / 2 * records * facts.dimension, 5 * NUMBER * part)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the loss, the target and the features."""
        columns = ", ".join(facts.data.features)
        return (
            f"In each of {rounds} rounds, {facts.dimension} numbers: the average gradient of the {facts.loss.name} "
            f"loss, for predicting '{facts.data.target}' from {columns}, at weights that the server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Name the clip, and what a person's rows come to."""
        most = facts.rows_per_person
        return {
            None: f"Each record's gradient is cut to length {self.clip:.4g}",
            "mean": f"Of a person the mean over all rows counts, each row's gradient cut to length {self.clip:.4g}",
            "rows": f"Of a person the first {most} rows count, 1/{most} each, with gradients cut to length "
            f"{self.clip:.4g}",
            "sum": f"The sum of the gradients of a person's rows is cut to length {self.clip:.4g}",
        }[facts.person_rule]

    def uncovered(self, facts: Facts) -> str:
        """Name cut gradients of several outputs, and cut sums: they need not be the gradient of any convex loss."""
        if facts.person_rule == "sum":
            return "sums of a person's gradients that are cut as one"
        bound = facts.loss.constants(
            facts.data.feature_norm, facts.data.target_bound, facts.domain.reach(facts.dimension)
        ).lipschitz
        several = facts.loss.outputs > 1 and self.clip < bound
        return "clipped gradients of several outputs" if several else ""
