"""What an answer with the silo's own noise costs."""

from ringfence.accounting import correlation, sampling
from ringfence.accounting.events import Release
from ringfence.accounting.shifts import exact_rounding, rounding_of, shift_of
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task


def event(channel: OwnNoise, plan: Plan, terms: SiloTerms, work: Task) -> Release:
    """Return what one answer costs: its question's sensitivity against its noise, by its sampling rule.

    Correlated noise costs all rounds of its stage at once: a record's one answer moves the rows after it too
    (`accounting.correlation`). In floating point, where records are divided into parts, the row itself is one more term
    of the sum.
    """
    question, dimension = work.stage.question, work.stage.question.terms_summed(plan)
    rows = work.stage.most_answers if channel.correlation else 1
    spread = correlation.column_norm(channel.correlation, rows) if channel.correlation else 1.0
    if plan.sums == "exact":
        rounding = exact_rounding(terms.records, rows, question.roundings(plan))
    else:
        rounding = rounding_of(terms.records + (0 if work.part is None else rows), dimension)

    def shift(share: float) -> float:
        return shift_of(
            sensitivity=question.sensitivity(plan, work.batch) * share * spread,
            sigma=work.sigma,
            summed=terms.records,
            dimension=dimension,
            rows=rows,
            rounding=rounding,
        )

    return sampling.event(
        work.stage.sampling,
        records=work.records,
        batch=work.batch,
        partition="" if work.part is None else plan.digest(),
        part=work.part,
        shift=shift,
    )
