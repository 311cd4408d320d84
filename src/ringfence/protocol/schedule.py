"""What a plan has one silo do in one round: the silo's mechanism, its accountant and the simulator all read it here."""

from dataclasses import dataclass

from ringfence.protocol.plan import Plan, SiloTerms, Stage
from ringfence.protocol.sampling import Part


@dataclass(frozen=True)
class Task:
    """One round's work of one silo.

    Its answer is a vector of `length` numbers: the stage's question over `batch` records, with noise of standard
    deviation `sigma` per number. `records` is how many records the stage is asked of. `part` is the part of the plan's
    partition that they come from; None means that the stage's sampling draws from all of them.
    """

    stage: Stage
    number: int
    """The stage's number."""
    length: int
    batch: int
    sigma: float
    records: int
    part: Part | None = None


def task(plan: Plan, terms: SiloTerms, round: int, answered: int) -> Task:
    """Return what the silo does in that round of messages, after `answered` earlier answers in the same stage."""
    stage, number, _ = plan.place(round)
    own, records = terms.stages[number], plan.records_in(stage, terms)
    part = stage.sampling.part(records=records, batch=own.batch, answered=answered)
    return Task(stage, number, stage.question.length(plan), own.batch, own.sigma, records, part)
