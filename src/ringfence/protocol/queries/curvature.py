"""The curvature: the largest eigenvalue of the features' second-moment matrix."""

from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.plan.effort import MOST_THREADS, NUMBER, PART, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.queries.base import BaseQuery, Facts, rounds_phrase


class Curvature(BaseQuery):
    """The largest eigenvalue of (1/n)·Σ xxᵀ over all records.

    `margin` standard deviations of its noise are added before the server's steps rely on it.

    It is no mean over records. With X the largest feature norm its sensitivity is X²/n (`docs/proofs.md`, Lemma Q2).
    """

    purpose: ClassVar[str] = (
        "a first, budgeted query asks every silo for the largest eigenvalue of its features' second-moment "
        "matrix, so that the steps need not assume the worst case; it takes its own round and counts towards the "
        "silos' epsilon"
    )
    name: Literal["curvature"] = "curvature"
    margin: float = Field(default=2.0, ge=0)

    def length(self, facts: Facts) -> int:
        """Return 1: the curvature is one number."""
        return 1

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return X²/batch, which bounds the change of the largest eigenvalue (the curvature)."""
        return facts.data.feature_norm**2 / batch

    def roundings(self, facts: Facts) -> int:
        """Return 2·(d + 4)²: the squarings of a d × d matrix (`silo.queries.curvature`)."""
        return 2 * (facts.data.width + 4) ** 2

    def largest(self, facts: Facts) -> float:
        """Return X², the largest curvature."""
        return facts.data.feature_norm**2

    def breadth(self, facts: Facts) -> int:
        """Return the number of features, which the curvature query processes for each record."""
        return facts.data.width

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count, for the curvature, the exact second-moment matrix, its squarings, and copies of some features."""
        width = facts.data.width
        seconds = PASS * records * width + PRODUCT * (4 * records + 48 * width) * width**2
        some = width * at_once(records, width)
        cached = min(2 * some, MOST_THREADS * PART)  # features in two limbs, on each thread
        return Effort(seconds, NUMBER * (4 * (some + cached) + 100 * width**2))

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that the curvature query reveals the largest eigenvalue of the second-moment matrix."""
        return f"{rounds_phrase(rounds)}, one number: the largest eigenvalue of the features' second-moment matrix"
