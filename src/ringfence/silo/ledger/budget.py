"""A data set's budget: the most that all releases from it may cost together, and what has become of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from ringfence.accounting.events import require_positive, require_probability
from ringfence.errors import AccountingError
from ringfence.protocol import Guarantee, Observer, against_words
from ringfence.protocol.plan.guarantee import against


@dataclass(frozen=True, init=False)
class Budget:
    """The privacy budget of a data set: the most that all releases may cost together, against each observer.

    `Budget(1.0, 1e-6)` allows epsilon 1 against anyone. Plans that trust a shuffler cost more against a server that
    colludes with it: `Budget(1.0, 1e-6, anyone=3.0)` allows epsilon 1 against the server and 3 against anyone.
    Each plan is counted against the server together with as many other silos as the plan names.
    """

    limits: tuple[Guarantee, ...]

    def __init__(self, epsilon: float, delta: float, *, anyone: float | None = None) -> None:
        """Set a data set's budget, with a higher limit against anyone than against the server if `anyone` is given."""
        require_positive("epsilon", epsilon)
        require_probability("delta", delta)
        limits = [Guarantee(epsilon=float(epsilon), delta=delta, against="anyone" if anyone is None else "server")]
        if anyone is not None:
            if require_positive("the epsilon against anyone", anyone) < epsilon:
                raise AccountingError("The limit against anyone cannot be lower than the limit against the server.")
            limits.append(Guarantee(epsilon=float(anyone), delta=delta))
        object.__setattr__(self, "limits", tuple(limits))

    @classmethod
    def of(cls, limits: Sequence[Guarantee]) -> Self:
        """Return the budget with these limits; one of them must be against anyone."""
        epsilons = {limit.against: limit.epsilon for limit in limits}
        if "anyone" not in epsilons or len(epsilons) != len(limits) or len({limit.delta for limit in limits}) != 1:
            raise AccountingError(
                "A budget needs a limit against anyone, no more than one limit per observer, and one delta."
            )
        if "server" not in epsilons:
            return cls(epsilons["anyone"], limits[0].delta)
        return cls(epsilons["server"], limits[0].delta, anyone=epsilons["anyone"])

    @property
    def epsilon(self) -> float:
        """The budget's decisive limit: against the server if there is one, else against anyone."""
        return self.limits[0].epsilon

    @property
    def delta(self) -> float:
        """The delta of all limits of the budget."""
        return self.limits[0].delta

    def limit(self, observer: Observer) -> Guarantee:
        """Return the budget's limit against the observer, or the one against anyone if there is no such limit."""
        return against(self.limits, observer).model_copy(update={"against": observer})

    def __str__(self) -> str:
        """Return the budget's limits in words."""
        first, *others = self.limits
        more = "".join(f", {limit.epsilon:g} {against_words(limit.against)}" for limit in others)
        return f"epsilon {first.epsilon:g} at delta {self.delta:g}{more}"

    def as_data(self) -> list[dict[str, Any]]:
        """Return the budget's limits for the ledger and for machines."""
        return [limit.model_dump() for limit in self.limits]

    def raised(self, spent: Sequence[Guarantee]) -> "Budget":
        """Return the smallest budget that allows what this one allows and covers all that is spent."""
        server, anyone = (
            max(against(self.limits, observer).epsilon, against(spent, observer).epsilon)
            for observer in ("server", "anyone")
        )
        return Budget(server, max(self.delta, spent[0].delta), anyone=anyone if anyone > server else None)

    def covers(self, other: "Budget") -> bool:
        """Tell whether this budget allows everything that the other one allows."""
        observers = {limit.against for limit in (*self.limits, *other.limits)}
        return self.delta >= other.delta and all(
            against(self.limits, observer).epsilon >= against(other.limits, observer).epsilon for observer in observers
        )


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


def read_budget(body: Mapping[str, Any]) -> Budget:
    """Read the budget from the body of a ledger's entry."""
    return Budget.of([Guarantee.model_validate(limit) for limit in body["limits"]])
