"""The curvature: the largest eigenvalue of the features' second-moment matrix."""

from typing import Literal

from pydantic import Field

from ringfence.protocol.effort import MOST_THREADS, NUMBER, PART, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.questions.base import BaseQuestion, Facts, often


class Curvature(BaseQuestion):
    """The largest eigenvalue of (1/n)·Σ xxᵀ over all records.

    `margin` standard deviations of its noise are added before the server's steps rely on it.

    With X the largest feature norm, replacing a record moves it by at most X²/n (`docs/proofs.md`, Lemma Q2).
    """

    name: Literal["curvature"] = "curvature"
    margin: float = Field(default=2.0, ge=0)

    def length(self, facts: Facts) -> int:
        """Return 1."""
        return 1

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return X²/n."""
        return facts.data.feature_norm**2 / batch

    def roundings(self, facts: Facts) -> int:
        """Return 2·(d + 4)², which the squarings of a d × d matrix take (`silo.questions.curvature`)."""
        return 2 * (facts.data.width + 4) ** 2

    def largest(self, facts: Facts) -> float:
        """Return X²."""
        return facts.data.feature_norm**2

    def breadth(self, facts: Facts) -> int:
        """Return a record's features."""
        return facts.data.width

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return the second-moment matrix, in whole numbers of any size, its squarings, and copies of some features."""
        width = facts.data.width
        seconds = PASS * records * width + PRODUCT * (4 * records + 48 * width) * width**2
        some = width * at_once(records, width)
        cached = min(2 * some, MOST_THREADS * PART)  # features in two limbs, on each thread
        return Effort(seconds, NUMBER * (4 * (some + cached) + 100 * width**2))

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say which number it is."""
        return f"{often(rounds)}, one number: the largest eigenvalue of the features' second-moment matrix"

    def purpose(self) -> str:
        """Say that steps rely on it."""
        return (
            "a first, budgeted query asks every silo for the largest eigenvalue of its features' second-moment "
            "matrix, so that the steps need not assume the worst case; it takes its own round and counts towards the "
            "silos' epsilon"
        )
