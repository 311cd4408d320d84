"""The time and memory that one round may take on a silo's machine, and an estimate of what it takes."""

from dataclasses import dataclass

from ringfence.protocol import Effort, Plan, SiloTerms
from ringfence.protocol.plan.effort import COLUMN

MEGABYTE = 1e6


@dataclass(frozen=True)
class Limits:
    """The most that a round may take: seconds, and megabytes on top of the records themselves.

    By default twice as long as a server usually waits for an answer, and what a small machine has.
    """

    seconds: float = 120.0
    megabytes: float = 2000.0

    def objection(self, effort: Effort) -> str:
        """Return why a round of that effort exceeds the silo's limits; empty if it does not."""
        if effort.seconds <= self.seconds and effort.memory <= self.megabytes * MEGABYTE:
            return ""
        return (
            f"A round of this plan would take {effort_words(effort)} on this machine (a cautious estimate), more than "
            f"the {self.seconds:g} seconds or {self.megabytes:g} MB that its operator allows. Ask for a smaller plan, "
            "or allow more with `round_seconds` and `round_memory` (in MB) in silo.toml."
        )


def largest_round(plan: Plan, terms: SiloTerms) -> Effort:
    """Estimate the plan's largest round, to compare with limits, from public numbers only: one row per person.

    Whether a plan is approved must not depend on how many rows a person has.
    """
    largest = Effort()
    for stage, own in zip(plan.stages, terms.stages, strict=True):
        round = (
            stage.query.effort(plan, terms.records)
            + stage.query.encoding_effort(plan, terms.records)
            + stage.sampling.effort(terms.records)
            + stage.channel.effort(plan, stage, own.batch)
        )
        largest = largest.most(round)
    return largest + Effort(COLUMN * plan.data.width)


def effort_words(effort: Effort) -> str:
    """Return the time and memory of a round in words."""
    seconds = "less than a second" if effort.seconds < 1 else f"{effort.seconds:.0f} seconds"
    return f"{seconds} and {max(1, round(effort.memory / MEGABYTE)):,} MB"
