"""What an answer with the silo's own noise costs."""

from functools import partial

from ringfence.accounting import correlation, sampling
from ringfence.accounting.events import Release
from ringfence.accounting.sampling import exact_rounding, shift_of
from ringfence.protocol import OwnNoise, Plan, SiloTerms, Task


def event(channel: OwnNoise, plan: Plan, terms: SiloTerms, work: Task) -> Release:
    """Return what one answer with own noise costs: its query's sensitivity against the noise, by its sampling rule.

    Correlated noise costs all rounds of its stage at once: a record's one answer moves the rows after it too
    (`accounting.correlation`).
    """
    query, dimension = work.stage.query, work.stage.query.terms_summed(plan)
    rows = work.stage.most_answers if channel.correlation else 1
    spread = correlation.column_norm(channel.correlation, rows) if channel.correlation else 1.0
    rounding = exact_rounding(terms.records, rows, query.roundings(plan))
    noise = partial(shift_of, sigma=work.sigma, summed=terms.records, dimension=dimension, rows=rows, rounding=rounding)

    def shift(share: float) -> float:
        """Return the shift of an answer with the silo's own noise, where a record's share of it is `share`."""
        return noise(sensitivity=query.sensitivity(plan, work.batch) * share * spread)

    return sampling.event(
        work.stage.sampling,
        records=work.records,
        batch=work.batch,
        partition="" if work.part is None else plan.digest(),
        part=work.part,
        shift=shift,
    )
