"""Silo weights in the objective: by records, equal, or by the inverse variance of the silos' noise.

Inverse-variance weights, (n_i·μ_i)² for n_i records and a Gaussian shift μ_i, give averaged answers the least noise.
The model is then the best one for records weighted that way, which differs from the best for all records if silos
differ: that is the bias. By default, weights between the two minimise the expected sum of noise and bias, from public
numbers.
"""

import math
from collections.abc import Sequence

from ringfence.errors import PlanError
from ringfence.planning.request import Member, Weights

BETWEEN = 0.01
"""Assumed share of the variance of gradients between silos. Outcomes of multi-site trials mostly have intraclass
correlations of .01 to .05, and less once features are accounted for. It was .05 before runs on two public tables
(adult, bank) showed that weights by records were kept where noise cost more."""

GATHERED = 2.0
"""Variance of the noise in the last iterate relative to the average over all rounds: 1.8 to 3 for converged heavy-ball
descent, computed from its recursion."""

MUST_SAVE = 0.9
"""By default silos are weighted by records unless the expected error falls below this fraction."""


def silo_weights(
    members: Sequence[Member], shifts: Sequence[float], dimension: int, asked: Weights | None
) -> tuple[float, ...]:
    """Return the members' shares: their own, as requested, or those with the least expected error."""
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
    # Of each silo's answers, in squares of the clip, which is about a record's gradient: the accumulated noise,
    # d·(2/(n·μ))², plus the sampling variance of n records, 1/n.
    variances = [
        GATHERED * dimension * (2 / (own.records * shift)) ** 2 + 1 / own.records
        for own, shift in zip(members, shifts, strict=True)
    ]
    best = _best(variances, records)
    saves = expected_error(variances, best, records) < MUST_SAVE * expected_error(variances, records, records)
    return best if saves else records


def expected_error(variances: Sequence[float], weights: Sequence[float], records: Sequence[float]) -> float:
    """Return the expected squared error of the mean gradient at the best model for all records.

    It is the variance of the answers under weights q, Σ q_i²·v_i, plus the squared bias of q relative to the records'
    shares p, if silos' gradients differ independently: Σ (q_i − p_i)² times `BETWEEN`.
    """
    return math.fsum(q**2 * own + BETWEEN * (q - p) ** 2 for own, q, p in zip(variances, weights, records, strict=True))


def _best(variances: Sequence[float], records: Sequence[float]) -> tuple[float, ...]:
    """Return silo weights with the least expected error: q_i = (B·p_i + λ)/(v_i + B), with λ so that they sum to 1."""
    kept = [BETWEEN * p / (own + BETWEEN) for own, p in zip(variances, records, strict=True)]
    free = [1 / (own + BETWEEN) for own in variances]
    lift = (1 - math.fsum(kept)) / math.fsum(free)
    return _shares([one + lift * more for one, more in zip(kept, free, strict=True)])


def _shares(counts: Sequence[float]) -> tuple[float, ...]:
    """Return each silo's share of a total, as its weight."""
    total = math.fsum(counts)
    return tuple(count / total for count in counts)
