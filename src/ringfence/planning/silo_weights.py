"""How much each silo counts: by its records, all silos alike, or by the noise that its budget has it add.

The average of all silos' answers has the least noise if each counts by the inverse of its variance, as (n_i·μ_i)² for
n_i records and a Gaussian shift μ_i. The model is then the best one for records that are weighed so, which is another
one than the best for all records wherever silos differ: that is the bias. Where nobody says how silos count, weights
between the two are taken that make noise and bias together as small as can be expected, from public numbers.
"""

import math
from collections.abc import Sequence

from ringfence.errors import PlanError
from ringfence.planning.request import Member, Weights

BETWEEN = 0.01
"""How much of the variance of records' gradients is thought to lie between silos. Outcomes in trials over many sites
mostly have intraclass correlations of .01 to .05, and less once features are accounted for, as a model does. It was .05
before runs on two public tables (adult, bank) showed that records were kept where noise cost more."""

GATHERED = 2.0
"""How much more of the noise's variance the model gathers than the average over all rounds would: 1.8 to 3 for
heavy-ball descent whose steps arrive, computed from its recursion."""

MUST_SAVE = 0.9
"""Silos count by records, where nobody says, unless the expected error falls below this fraction of what it is so."""


def weights_of(
    members: Sequence[Member], shifts: Sequence[float], dimension: int, asked: Weights | None
) -> tuple[float, ...]:
    """Return the members' shares: as they say, as asked for, or those with the least expected error."""
    named = [member.weight for member in members if member.weight is not None]
    if named and len(named) != len(members):
        raise PlanError("Either every silo names its weight, or none does.")
    if not all(0 < weight < math.inf for weight in named):
        raise PlanError("Every silo's weight must be a positive number.")
    if named:
        return _shares(named)
    records = _shares([float(member.records) for member in members])
    match asked:
        case "records":
            return records
        case "equal":
            return _shares([1.0] * len(members))
        case "noise":
            return _shares([(member.records * shift) ** 2 for member, shift in zip(members, shifts, strict=True)])
    variances = _variances(members, shifts, dimension)
    best = _best(variances, records)
    saves = expected_error(variances, best, records) < MUST_SAVE * expected_error(variances, records, records)
    return best if saves else records


def expected_error(variances: Sequence[float], weights: Sequence[float], records: Sequence[float]) -> float:
    """Return the expected square of what is wrong with the mean gradient at the best model for all records.

    That is the variance of the silos' answers by weights q, Σ q_i²·v_i, and the bias of q in place of the records'
    shares p if silos' gradients differ independently of each other: Σ (q_i − p_i)² times `BETWEEN`.
    """
    return math.fsum(q**2 * own + BETWEEN * (q - p) ** 2 for own, q, p in zip(variances, weights, records, strict=True))


def _variances(members: Sequence[Member], shifts: Sequence[float], dimension: int) -> list[float]:
    """Return how far each silo's answers are off, in squares of the clip, about the size of a record's gradient.

    The noise that training gathers, d·(2/(n·μ))² in all, and what n records tell of the population, 1/n.
    """
    return [
        GATHERED * dimension * (2 / (own.records * shift)) ** 2 + 1 / own.records
        for own, shift in zip(members, shifts, strict=True)
    ]


def _best(variances: Sequence[float], records: Sequence[float]) -> tuple[float, ...]:
    """Return the weights with the least expected error: q_i = (B·p_i + λ)/(v_i + B), λ such that they add up to 1."""
    kept = [BETWEEN * p / (own + BETWEEN) for own, p in zip(variances, records, strict=True)]
    free = [1 / (own + BETWEEN) for own in variances]
    lift = (1 - math.fsum(kept)) / math.fsum(free)
    return _shares([one + lift * more for one, more in zip(kept, free, strict=True)])


def _shares(counts: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(counts)
    return tuple(count / total for count in counts)
