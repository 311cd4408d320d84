"""A guarantee: (epsilon, delta) for each record, against replacing it, and against whom it holds."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from pydantic import Field

from ringfence.protocol.public import Public

Observer: TypeAlias = Literal["server", "anyone"]
"""Who is trying to learn something of a record.

server: whoever sees what the shuffler lets out, as long as the shuffler does not work together with the server.
anyone: the server, all other silos, the shuffler and whoever listens, all of them together.
"""

AGAINST: dict[Observer, str] = {
    "server": "against a server that does not work together with the shuffler",
    "anyone": "against the server, the shuffler and all other silos together",
}
"""Each observer as a phrase."""


class Guarantee(Public):
    """Whatever a silo sends is (epsilon, delta)-differentially private for each of its records, against an observer."""

    epsilon: float = Field(ge=0, allow_inf_nan=True)  # infinity: nothing is proved
    delta: float = Field(gt=0, lt=1)
    against: Observer = "anyone"


def observers_of(*named: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return all observers that are named, each once, the one that counts first."""
    found = {observer for observers in named for observer in observers}
    return tuple(observer for observer in AGAINST if observer in found)


def against(guarantees: Iterable[Guarantee], observer: Observer) -> Guarantee:
    """Return the guarantee that holds against the observer.

    What holds against anyone holds against each observer, so it stands in where no other names the observer.
    """
    found = {guarantee.against: guarantee for guarantee in guarantees}
    return found.get(observer) or found["anyone"]
