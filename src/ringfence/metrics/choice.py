"""A choice as a document: the candidates, what each asked for, and how far each is from the best."""

from collections.abc import Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from ringfence.metrics.intervals import COVERAGE, Figure
from ringfence.protocol.plan import EmbeddedPlan
from ringfence.protocol.public import Public
from ringfence.protocol.questions import Unit

Setting: TypeAlias = bool | int | float | str | None
"""What a candidate asked for; None stands for what the planner chose."""


def shown_settings(settings: Mapping[str, Setting]) -> str:
    """Write a candidate as the command line would name it."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in settings.items())


def _shown(value: Setting) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class Candidate(Public):
    """One candidate: its settings, the digest of the plan that trained it, and its loss above the best one's."""

    settings: Mapping[str, Setting]
    plan: str
    above: Figure

    def __str__(self) -> str:
        return shown_settings(self.settings)


class Choice(Public):
    """Which of several candidates was chosen, and by what.

    `best` is the number of the one that the model comes from. They were compared on so many held-out `records`
    (persons, where they are the unit). With probability `coverage` all intervals together cover: they allow for the
    same records having chosen. `plans` are all that the choice asked for beside the model's own plan, the comparison
    last: every one of them is a part of what the choice cost.
    """

    kind: Literal["ringfence-choice"] = "ringfence-choice"
    format: Literal[1] = 1
    unit: Unit
    coverage: float = COVERAGE
    records: int
    best: int = Field(ge=0)
    candidates: tuple[Candidate, ...] = Field(min_length=2)
    plans: tuple[EmbeddedPlan, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _has_a_best(self) -> Self:
        if self.best >= len(self.candidates):
            raise ValueError("the best candidate is not among them")
        return self

    @property
    def equals(self) -> list[Candidate]:
        """The candidates, other than the best, that cannot be told from it."""
        return [
            one
            for number, one in enumerate(self.candidates)
            if number != self.best and (one.above.low is None or one.above.low <= 0)
        ]

    def sentences(self) -> list[str]:
        """Say which was chosen, how sure that is, and what the intervals allow for."""
        best, equals, others = self.candidates[self.best], len(self.equals), len(self.candidates) - 1
        told = (
            "all others are worse" if not equals else f"{equals} of the {others} others cannot be distinguished from it"
        )
        if equals == others:
            told = "none of the others can be distinguished from it"
        return [
            f"Of {others + 1} candidates, {best} has the least loss on {self.records} held-out {self.unit}s; {told}.",
            f"All intervals hold together with probability {self.coverage:.0%}, which accounts for the choice.",
        ]
