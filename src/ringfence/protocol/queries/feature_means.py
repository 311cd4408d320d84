"""The feature means: means of the features and of their squared norm, and a histogram of the target."""

import math
from typing import ClassVar, Literal

from ringfence.protocol.plan.effort import NUMBER, PASS, Effort, at_once
from ringfence.protocol.queries.base import Facts
from ringfence.protocol.queries.feature_moments import WEIGHT, FeatureSurvey

DIAMETER = math.sqrt(4.0 + 2.0 * WEIGHT**2)


class FeatureMeans(FeatureSurvey):
    """The mean of v, the mean of |v|² and, times ½, the share of records in each bin of the target, or in each class.

    v are a record's features in units of their largest norm. There is one number per feature, where feature moments
    have one per pair: this is the survey for many features.

    The diameter is √4.5, whatever the target's window (`docs/proofs.md`, Lemma Q13).
    """

    purpose: ClassVar[str] = (
        "a budgeted survey asks every silo for the means of its features, which shape clipping, noise and steps"
    )
    name: Literal["feature-means"] = "feature-means"

    def argument_length(self, facts: Facts) -> int:
        """Return 2: the argument of feature means is the lower and the upper end of the target's window."""
        return 2

    def length(self, facts: Facts) -> int:
        """Return a mean for each feature, one for their squared norm, and the target's bins."""
        return facts.data.width + 1 + self.bins(facts)

    def diameter(self, facts: Facts) -> float:
        """Return the diameter of the vectors that feature means average."""
        return DIAMETER

    def rounded(self, facts: Facts) -> float:
        """Return more than the default, for feature means: the squares of all features are rounded before the sum."""
        return facts.data.width + super().rounded(facts)

    def terms_summed(self, facts: Facts) -> int:
        """Return two terms for each feature, for feature means, and the target's bins."""
        return 2 * facts.data.width + self.bins(facts)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count two passes over the terms of feature means."""
        breadth = self.breadth(facts)
        return Effort(2 * PASS * records * breadth, 8 * NUMBER * breadth * at_once(records, breadth))

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that the query reveals feature means, feature norms and the target's distribution."""
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: the means of {facts.data.inputs}, how long "
            f"records' features are, and how '{facts.data.target_words}' is spread"
        )

    def limits(self, facts: Facts) -> str:
        """Say that features are clipped to their largest norm, for feature means."""
        return "A record's features are clipped to their largest norm"
