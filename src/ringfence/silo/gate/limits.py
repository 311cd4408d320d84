"""How much of a silo's machine one round may take, by what its operator allows."""

from dataclasses import dataclass

from ringfence.protocol.effort import COLUMN, Effort
from ringfence.protocol.plan import Plan, SiloTerms

MEGABYTE = 1e6


@dataclass(frozen=True)
class Limits:
    """The most that a round may take: seconds, and megabytes on top of the records themselves.

    By default twice as long as a server usually waits for an answer, and what a small machine has.
    """

    seconds: float = 120.0
    megabytes: float = 2000.0

    def objection(self, effort: Effort) -> str:
        """Say, in sentences, why a round of that effort must not be approved; nothing if it may be."""
        if effort.seconds <= self.seconds and effort.memory <= self.megabytes * MEGABYTE:
            return ""
        return (
            f"A round of this plan would take {words(effort)} on this machine, by a cautious estimate, more than the "
            f"{self.seconds:g} seconds or {self.megabytes:g} MB that its operator allows. Ask for a smaller plan, or "
            "allow more with `round_seconds` and `round_memory` (in MB) in silo.toml."
        )


def largest_round(plan: Plan, terms: SiloTerms, rows: int | None = None) -> Effort:
    """Estimate the effort of the plan's largest round at the silo, from public numbers alone unless `rows` is given."""
    largest = Effort()
    for stage, own in zip(plan.stages, terms.stages, strict=True):
        round = (
            stage.question.effort(plan, rows or terms.records)
            + stage.sampling.effort(terms.records)
            + stage.channel.effort(plan, stage, own.batch)
        )
        largest = largest.most(round)
    return largest + Effort(COLUMN * plan.data.width)


def words(effort: Effort) -> str:
    """Write an effort for people."""
    seconds = "less than a second" if effort.seconds < 1 else f"{effort.seconds:.0f} seconds"
    return f"{seconds} and {max(1, round(effort.memory / MEGABYTE)):,} MB"
