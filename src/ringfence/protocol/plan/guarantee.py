"""A guarantee: (epsilon, delta) for each record, against replacing it, and against whom it holds."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, get_args

from pydantic import Field

from ringfence.protocol.public import Public

Observer: TypeAlias = Literal["server", "anyone"]
"""Who is trying to learn something about a record.

server: the server, anyone who sees what the shuffler releases, and as many other silos as the plan names (`colluders`),
all of them together, as long as the shuffler does not collude with them. anyone: the server, all other silos, the
shuffler and any eavesdropper, all of them together.
"""

OBSERVERS: tuple[Observer, ...] = get_args(Observer)
"""All of them, the weakest first."""


LARGE_EPSILON = 20.0
"""Above this, hardly anybody is protected: a guess about a record may be wrong with probability 2·10⁻⁹ only."""


def against_words(observer: Observer, colluders: int | None = None) -> str:
    """Return the observer as a phrase; `colluders` is the number of other silos that may collude, if known."""
    if observer == "anyone":
        return "against the server, the shuffler and all other silos together"
    if colluders == 0:
        return "against the server as long as neither the shuffler nor any other silo colludes with it"
    silos = "as many other silos as each plan names" if colluders is None else f"up to {other_silos(colluders)}"
    return f"against the server and {silos} together, as long as the shuffler does not collude with them"


def claimed_against(observers: Sequence[Observer], colluders: int | None = None) -> str:
    """Return the observer of the first of several claims as a phrase; a single claim holds against anyone."""
    first, *others = observers
    return against_words(first, colluders) if others else "against anyone who sees what the silo sends"


def other_silos(count: int) -> str:
    """Return that many other silos as a phrase."""
    return f"{count or 'no'} other silo{'s' * (count > 1)}"


class Guarantee(Public):
    """What a silo sends is (epsilon, delta)-differentially private for each of its records, against an observer."""

    epsilon: float = Field(ge=0, allow_inf_nan=True)  # infinity: nothing is proved
    delta: float = Field(gt=0, lt=1)
    against: Observer = "anyone"


def observers_of(*named: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return all observers that are named, each once, the decisive one first."""
    found = {observer for observers in named for observer in observers}
    return tuple(observer for observer in OBSERVERS if observer in found)


def against(guarantees: Iterable[Guarantee], observer: Observer) -> Guarantee:
    """Return the guarantee that holds against the observer.

    What holds against anyone holds against each observer, so it is the answer where no guarantee names the observer.
    """
    found = {guarantee.against: guarantee for guarantee in guarantees}
    return found.get(observer) or found["anyone"]
