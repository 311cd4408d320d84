"""What has become of a data set's budget, and how its guarantee is related to it: for people."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ringfence.protocol import Guarantee
from ringfence.silo.ledger.history import Account


@dataclass(frozen=True)
class BudgetUse:
    """What has become of a budget's epsilon against one observer: used, reserved, kept and left add up to it.

    `used` is the exact composition of everything charged, `reserved` what running plans may add to it, `left` what the
    filter leaves to one more Gaussian plan. If the budget was lowered, more may be used than it allows.
    """

    limit: Guarantee
    used: float
    reserved: float
    left: float

    @property
    def kept(self) -> float:
        """What the filter counts of the budget beyond exact composition, since plans may be chosen by answers."""
        return max(0.0, self.limit.epsilon - self.used - self.reserved - self.left)

    def as_data(self) -> dict[str, float]:
        """Return the budget and its parts for machines."""
        parts = {name: getattr(self, name) for name in ("used", "reserved", "kept", "left")}
        return {"budget": self.limit.epsilon, **parts}

    def words(self) -> str:
        """Return the parts of the budget as a sentence; the numbers add up as they are printed."""
        budget, delta = self.limit.epsilon, self.limit.delta
        if self.used + self.reserved > budget * (1 + 1e-9):
            return (
                f"Used and reserved are epsilon {self.used + self.reserved:.4g} at delta {delta:.2g}, more than the "
                f"budget of {budget:.4g}: nothing is left."
            )
        digits = max(0, 3 - math.floor(math.log10(budget)))
        used, reserved, left = (round(part * 10**digits) for part in (self.used, self.reserved, self.left))
        kept = round(budget * 10**digits) - used - reserved - left
        if kept < 0:  # by rounding
            reserved, left, kept = (reserved, left + kept, 0) if left else (reserved + kept, 0, 0)
        parts = [f"{part / 10**digits:.{digits}f}" for part in (used, reserved, kept, left)]
        return (
            "Of the budget of epsilon {} at delta {:.2g}, {} is used, {} is reserved for running plans, {} is kept for "
            "plans that earlier answers may lead to, and {} is left."
        ).format(f"{budget:.{digits}f}", delta, *parts)


Basis: TypeAlias = Literal["budget", "first-budget", "odometer"]
"""What guarantees all releases: the budget in force, the one at the first answer, or, beyond that, an odometer."""


def basis_of(guarantee: Guarantee, pledged: Guarantee, limit: Guarantee) -> Basis:
    """Return what a ledger's guarantee rests on; `pledged` is the limit at the first answer, `limit` that of now."""
    if guarantee != pledged:
        return "odometer"
    return "budget" if pledged == limit else "first-budget"


BASIS_WORDS: Mapping[Basis, str] = {
    "budget": "This is the budget.",
    "first-budget": "This was the budget at the first answer. The present one limits plans; it is not the guarantee.",
    "odometer": "It is not the budget: that was raised after the first answer (a run without a cap raises it by what "
    "it needs) and only limits further plans. The guarantee also covers that answers may have led to the raise.",
}
"""How a guarantee of all releases is related to the budget, for people."""


def bases(account: Account) -> tuple[Basis, ...]:
    """Return what each of the ledger's guarantees rests on."""
    pledged = account.pledged or account.budget
    return tuple(
        basis_of(own, pledged.limit(own.against), account.budget.limit(own.against)) for own in account.guarantees()
    )


def uses(account: Account) -> tuple[BudgetUse, ...]:
    """Return what has become of the ledger's budget, against each observer."""
    return tuple(
        BudgetUse(
            account.budget.limit(spent.against),
            spent.epsilon,
            max(0.0, committed.epsilon - spent.epsilon),
            account.left(spent.against),
        )
        for spent, committed in zip(account.spent(), account.committed(), strict=True)
    )
