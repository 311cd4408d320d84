"""What a fit's numbers do not count, in words, and what all fits of this process have used, in its statement."""

from collections.abc import Mapping
from dataclasses import replace

from ringfence.errors import EstimatorError
from ringfence.estimators.fit_data import FitData
from ringfence.silo.budget import Budget
from ringfence.statement import SiloGuarantee, Statement


def remarks_on(problem: FitData, equal_rows: str, *, ledgers: bool) -> dict[str, str]:
    """Return, by silo, what one record or person has more of than this run's numbers count.

    A ledger, which counts what its own silo releases, by the row or by the person, can count neither.
    """
    if equal_rows not in ("copies", "records"):
        raise EstimatorError('`equal_rows` must be "copies" or "records".')
    if problem.persons is not None:
        most, remark, refusal = problem.spread(), _SPREAD, _SPREAD_REFUSED
    elif equal_rows == "copies":
        most, remark, refusal = problem.copies(), _COPIES, _COPIES_REFUSED
    else:
        return {}
    several = {name: number for name, number in most.items() if number > 1}
    if several and ledgers:
        raise EstimatorError(refusal.format(silo=next(iter(several))))
    return {name: remark.format(number=number) for name, number in several.items()}


def of_this_fit(guarantees: Mapping[str, SiloGuarantee]) -> dict[str, SiloGuarantee]:
    """Leave out what a ledger that was this fit's only says of all its runs."""
    return {name: guarantee.model_copy(update={"used": ()}) for name, guarantee in guarantees.items()}


def with_totals(statement: Statement, totals: Mapping[str, Budget], remarks: Mapping[str, str]) -> Statement:
    """Say what all fits of this process have used, and remark what this one's numbers do not count."""
    silos = {  # the memory composes what was used, which is no guarantee of all fits
        name: guarantee.model_copy(
            update={
                "all_runs": totals[name].limits,
                "remarks": (*guarantee.remarks, *([remarks[name]] if name in remarks else [])),
            }
        )
        for name, guarantee in of_this_fit(statement.silos).items()
    }
    return replace(statement, silos=silos)


_COPIES = (
    "A row occurs {number} times in this fit. The numbers of this run are for one row; the total of all runs counts "
    "{number} copies of one record. If rows with equal features are different records, say equal_rows='records'."
)
_COPIES_REFUSED = (
    "Some rows of silo '{silo}' have equal features, and a ledger charges every row as a separate record. Nothing was "
    "released. If they are copies of one record, as in a bootstrap sample, keep only one, or fit without `ledgers`; if "
    "they are different records, set equal_rows='records'."
)
_SPREAD = (
    "A person has rows in {number} silos of this fit. The numbers of this run are for a person's rows in one silo; the "
    "total of all runs counts what all these silos released. If one label means different persons in different silos, "
    "make their labels differ."
)
_SPREAD_REFUSED = (
    "A person of silo '{silo}' also has rows in other silos, but a ledger counts only what its own silo releases. "
    "Nothing was released. Give all rows of a person to one silo, or fit without `ledgers`. If you only need to "
    "protect a person's rows within each silo, or if one label means different persons, use different labels in each "
    "silo."
)
