"""The survival curve: in which part of the time records end, and whether by an event."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ringfence.protocol.columns import Scaled
from ringfence.protocol.questions.base import BaseQuestion, Facts, often


class SurvivalCurve(BaseQuestion):
    """The share of records whose time ends in each part between public cuts: without an event, and by one.

    `time` and `event` are columns: a number from 0 up, and two categories of which the second says that an event ended
    the time. `cuts` are where parts end, in the time's own units; what ends later counts to a last part. Records are
    observed up to the time's upper bound: those that reach it count as later, and without an event.

    A record is in one of these cells. So replacing one moves the shares by at most √2/n (`docs/proofs.md`, Lemma Q12);
    replacing a person moves them no further, whose rows count for one record together.
    """

    about_model: ClassVar[bool] = False
    name: Literal["survival-curve"] = "survival-curve"
    time: str = Field(min_length=1)
    event: str = Field(min_length=1)
    cuts: tuple[float, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _rise(self) -> Self:
        if any(later <= earlier for earlier, later in zip((0.0, *self.cuts), self.cuts, strict=False)):
            raise ValueError("cuts must be above 0 and increase")
        return self

    def check(self, facts: Facts) -> None:
        """Refuse columns that are missing, or that are not a time and an event."""
        time, event = (facts.data.used.get(name) for name in (self.time, self.event))
        if not isinstance(time, Scaled) or time.low < 0 or self.cuts[-1] > time.high:
            raise ValueError(
                f"a survival curve needs a numeric column '{self.time}' with a `lower` of 0 or more, and an `upper` "
                "at or above the last cut"
            )
        if event is None or len(event.classes) != 2:
            raise ValueError(f"a survival curve needs a column '{self.event}' of two categories: no event, or one")
        for name in (self.time, self.event):
            if facts.data.used[name].indicator:
                raise ValueError(
                    f"a survival curve needs known times and events, but the column '{name}' has an indicator for "
                    "empty cells: give it a public `missing` value instead"
                )

    def length(self, facts: Facts) -> int:
        """Return two numbers for each part, and for what is later."""
        del facts
        return 2 * (len(self.cuts) + 1)

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return √2/n, with what rounding a person's mean towards zero adds."""
        return (math.sqrt(2.0) + math.sqrt(self.length(facts)) * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        del facts
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the columns and the parts."""
        return (
            f"{often(rounds)}, {self.length(facts)} numbers: for how many records '{self.time}' ends in each of "
            f"{len(self.cuts) + 1} parts, with and without '{self.event}'"
        )

    def purpose(self) -> str:
        """Say what it is for."""
        return "a budgeted query asks every silo how long records last until an event, which gives a survival curve"

    def limits(self, facts: Facts) -> str:
        """Say that a record counts once."""
        return f"Each {facts.unit} counts once"
