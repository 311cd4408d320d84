"""The interface of a channel: how a stage's answers leave a silo.

A channel has files of the same name here (parameters, observers, requirements on a plan, words), in
`accounting.channels` (the cost of an answer), `planning.channels` (the noise that a budget allows), `silo.channels`
(noise and message) and `server.channels` (the mean of the answers).
"""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ringfence.protocol.documents.messages import SIZE_LIMIT, written_length
from ringfence.protocol.plan.effort import Effort
from ringfence.protocol.plan.guarantee import Observer
from ringfence.protocol.public import Public

if TYPE_CHECKING:
    from ringfence.protocol.documents.keys import Key, PublicKeys
    from ringfence.protocol.plan.plan import Plan, SiloTerms, Stage


class BaseChannel(Public):
    """What plan, review, statement and server need to know about a channel.

    `observers` names whom a guarantee is stated against, the decisive one first. `trust` is whom the guarantees rely
    on, apart from the silo itself. `is_collected`: a third party must release answers before the server can use them.
    """

    observers: ClassVar[tuple[Observer, ...]]
    trust: ClassVar[str]
    is_collected: ClassVar[bool] = False

    @abstractmethod
    def observer_words(self) -> str:
        """Return a channel's decisive observer, and what it sees, as the subject of a sentence."""

    @abstractmethod
    def claim_words(self) -> str:
        """Return, in a sentence, how silos that follow a plan with this channel provide the claimed guarantees."""

    def most_colluders(self) -> int | None:
        """Return how many other silos may collude with the server by this channel; None, by default, if all may."""
        return None

    @abstractmethod
    def check(self, plan: "Plan", stage: "Stage", number: int) -> None:
        """Raise ValueError if a plan cannot have this stage, of that number, through this channel."""

    @abstractmethod
    def longest_answer(self, plan: "Plan", stage: "Stage") -> int:
        """Return the most bytes that an honest silo's answer through the channel can have, before it is text."""

    @abstractmethod
    def effort(self, plan: "Plan", stage: "Stage", batch: int) -> Effort:
        """Return what a silo's noise and message take in a round through the channel, with that batch."""

    def oversize(self, plan: "Plan", stage: "Stage") -> str:
        """Say, as a clause, that an answer through the channel would be too long for its reader; or nothing."""
        longest = written_length(self.longest_answer(plan, stage))
        return f"an answer would have {longest} bytes, where {SIZE_LIMIT} are allowed" if longest > SIZE_LIMIT else ""

    def least_answers(self) -> int:
        """Return how many silos must answer before a round through the channel can be used."""
        return 1

    def uncovered(self, plan: "Plan", stage: "Stage", number: int) -> str:
        """Name what the channel does, in that stage, that no loss bound covers; or nothing."""
        return ""

    def keys(self, silos: "dict[str, Key]") -> "PublicKeys | None":
        """Return all parties' keys, given the silos', if the channel pins keys."""
        return None

    @abstractmethod
    def reliance_words(self) -> list[str]:
        """Say, in lines of text for everyone, what the decisive guarantee of a channel relies on."""

    def noise_level(self, sigma: float) -> float | None:
        """Return the standard deviation of a channel's noise in a single answer; None if it has no such level."""
        return None

    @abstractmethod
    def noise_words(self, sigma: float, unit: str) -> str:
        """Tell an operator, as a part of a sentence, what noise the channel adds."""

    def further_words(self) -> list[str]:
        """Tell an operator, in sentences, what else there is to know about the channel's noise."""
        return []

    @abstractmethod
    def audience(self, plan: "Plan", terms: "SiloTerms") -> list[str]:
        """Tell an operator, in sentences, who will see the answers through the channel."""


def require_computable(silo: str, sigma: float) -> None:
    """Raise ValueError if a silo's noise is so large or small that sums of that size would overflow or vanish."""
    if not math.ldexp(1.0, -300) < sigma < math.ldexp(1.0, 300):
        raise ValueError(f"the noise of silo '{silo}' is too large or too small to compute with")
