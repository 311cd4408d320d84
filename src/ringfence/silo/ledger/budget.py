"""A data set's budget: the most that all releases from it may cost together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

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


def read_budget(body: Mapping[str, Any]) -> Budget:
    """Read the budget from the body of a ledger's entry."""
    return Budget.of([Guarantee.model_validate(limit) for limit in body["limits"]])
