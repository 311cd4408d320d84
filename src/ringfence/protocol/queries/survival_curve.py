"""The survival curve: in which interval each record's time ends, and whether with an event."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ringfence.protocol.queries.base import Facts, MeanQuery, rounds_phrase
from ringfence.protocol.schema.columns.numeric import Scaled


class SurvivalCurve(MeanQuery):
    """The share of records whose time ends in each interval between public cuts: censored, or with an event.

    `time` and `event` are columns: a number from 0 up, and two categories of which the second is the event. `cuts` are
    the ends of the intervals, in the time's own units; later times have an interval of their own. Records are observed
    up to the time's upper bound: those that reach it count as later, and as censored.

    A record is in one of these cells, so the diameter is √2 (`docs/proofs.md`, Lemma Q12), also for a person, whose
    rows count as one record.
    """

    about_model: ClassVar[bool] = False
    about_features: ClassVar[bool] = False
    purpose: ClassVar[str] = (
        "a budgeted query asks every silo how long records last until an event, which gives a survival curve"
    )
    name: Literal["survival-curve"] = "survival-curve"
    time: str = Field(min_length=1)
    event: str = Field(min_length=1)
    cuts: tuple[float, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _rise(self) -> Self:
        """Refuse cuts of a survival curve that are not above 0 and increasing."""
        if any(later <= earlier for earlier, later in zip((0.0, *self.cuts), self.cuts, strict=False)):
            raise ValueError("cuts must be above 0 and increase")
        return self

    def check(self, facts: Facts) -> None:
        """Refuse a survival curve without a numeric time, as far as the cuts, and an event column."""
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
        """Return two numbers for each part of a survival curve: with and without the event."""
        return 2 * (len(self.cuts) + 1)

    def diameter(self, facts: Facts) -> float:
        """Return √2: a record is in one cell of the survival curve's table."""
        return math.sqrt(2.0)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that a survival curve reveals how many times end in each part, with and without the event."""
        return (
            f"{rounds_phrase(rounds)}, {self.length(facts)} numbers: for how many records '{self.time}' ends in each "
            f"of {len(self.cuts) + 1} parts, with and without '{self.event}'"
        )

    def limits(self, facts: Facts) -> str:
        """Say that each record counts once in a survival curve."""
        return f"Each {facts.unit} counts once"
