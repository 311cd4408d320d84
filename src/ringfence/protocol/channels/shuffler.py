"""Through a shuffler: the noise that all silos make together, and how messages travel.

A silo's answer is not a noisy vector but a count per number, cut into shares, each sealed to the server's key, all of
them sealed to the shuffler's. The shuffler opens the outer seal only, mixes all silos' shares and passes them on. What
the server can read is then the total of the counts, and nothing else: neither whose share is whose, nor in which order
they came (`ringfence.sealed_sums`).
"""

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ringfence.protocol.channels.base import BaseChannel, require_computable
from ringfence.protocol.documents.keys import Key, PublicKeys
from ringfence.protocol.documents.messages import SIZE_LIMIT, written_length
from ringfence.protocol.plan.effort import NOISE, NUMBER, PASS, RANDOM, SEAL, THRESHOLD, Effort
from ringfence.protocol.plan.guarantee import Observer, other_silos

if TYPE_CHECKING:
    from ringfence.protocol.plan.plan import Plan, SiloTerms, Stage

LABEL_BYTES = 2
"""Every message begins with the number of its block of coordinates."""

SEALED_EXTRA = 48
"""Bytes that a seal adds: 32 of its own public key, 16 of authentication (HPKE with X25519)."""

BATCH_LIMIT = 2**29
"""The most bytes of a round's batch: it is mixed in memory, and SQLite keeps only about 10⁹ bytes in one place."""


class ShufflerChannel(BaseChannel):
    """Vector summation through a shuffler (`shuffler.vector_sum`, `shuffler.shares`).

    `levels` g is how finely an answer is rounded and `coins` b how many fair coins are added to every coordinate for
    each record that takes part, so that a batch of m records carries Bin(m·b, 1/2). A batch leaves the shuffler with at
    least `quorum` silos in it: fewer would mean less noise. Of the others in it, up to `colluders` may tell the server
    their coins and shares; older plans, which state no number, assume none. `slack` is the part of delta that the
    accounting sets aside per round. Each silo's numbers, `block` to a message and `width` bytes each, are cut into
    `shares`.

    A silo's `sigma` is the standard deviation of its own coins, and its `key` checks its signatures.
    """

    observers: ClassVar[tuple[Observer, ...]] = ("server", "anyone")
    trust: ClassVar[str] = "shuffler"
    is_collected: ClassVar[bool] = True
    name: Literal["shuffler"] = "shuffler"
    levels: int = Field(ge=1, le=2**20)
    coins: int = Field(ge=1, le=2**30)
    quorum: int = Field(ge=2)
    colluders: int = Field(default=0, ge=0)
    slack: float = Field(gt=0, lt=1)
    shares: int = Field(ge=2, le=2**16)
    block: int = Field(ge=1, le=2**20)
    width: int = Field(ge=1, le=7)
    server_key: Key
    shuffler_key: Key

    @property
    def message_bytes(self) -> int:
        """Length of every message to the shuffler before it is sealed."""
        return LABEL_BYTES + self.block * self.width

    def blocks(self, numbers: int) -> int:
        """Return how many shuffled messages carry one share of that many numbers."""
        return -(-numbers // self.block)

    def messages(self, numbers: int) -> int:
        """Return how many messages a silo sends to the shuffler in a round."""
        return self.blocks(numbers) * self.shares

    def envelope_bytes(self, numbers: int) -> int:
        """Return the length of a silo's sealed envelope for the shuffler: sealed messages, sealed once more."""
        return self.messages(numbers) * (self.message_bytes + SEALED_EXTRA) + SEALED_EXTRA

    @staticmethod
    def numbers(plan: "Plan", stage: "Stage") -> int:
        """Return how many numbers a silo's shuffled shares carry: a count per number, and how many records."""
        return stage.query.length(plan) + 1

    def sigma(self, record_norm: float, batch: int) -> float:
        """Return the standard deviation, per coordinate, of one silo's coins in its average over `batch` records."""
        return 2 * record_norm / self.levels * math.sqrt(batch * self.coins) / 2 / batch

    def check(self, plan: "Plan", stage: "Stage", number: int) -> None:
        """Require what shuffled totals need: public batches, weights by records, keys, a quorum, counts that fit."""
        record_norm = stage.query.record_norm(plan)
        if stage.sampling.is_secret or stage.sampling.is_phased or record_norm is None:
            raise ValueError("a shuffler takes full and one-pass sampling only, without correlated noise or a survey")
        most = stage.participation.silos or len(plan.silos)
        if stage.participation.probability is not None or not self.colluders + 2 <= self.quorum <= most:
            raise ValueError(
                "the shuffler's quorum must be at least 2 more than the silos that may collude with the server, "
                "and at most the number of silos that a round asks"
            )
        if self.colluders != plan.most_colluders:
            raise ValueError(
                "all stages through a shuffler must allow the same number of silos to collude with the server"
            )
        total = sum(terms.stages[number].batch for terms in plan.silos)
        for terms in plan.silos:
            own = terms.stages[number]
            if terms.key is None:
                raise ValueError(f"silo '{terms.name}' needs a public key that checks its signatures")
            if not math.isclose(terms.weight, own.batch / total, rel_tol=1e-9):
                raise ValueError("only totals leave the shuffler, so each silo's weight must be its share of the batch")
            if not math.isclose(own.sigma, self.sigma(record_norm, own.batch), rel_tol=1e-9):
                raise ValueError(f"the sigma of silo '{terms.name}' is not the noise of its coins")
            require_computable(terms.name, own.sigma)
        if total * (self.levels + self.coins) >= 256**self.width:
            raise ValueError("the counts of all silos together do not fit the width of their shares")
        if self.blocks(self.numbers(plan, stage)) > 256**LABEL_BYTES:
            raise ValueError("the plan has more blocks of weights than a message can number: make the blocks longer")
        if self.server_key == self.shuffler_key:
            raise ValueError(
                "server and shuffler need different keys: a party that holds both could read each silo's own counts"
            )

    def longest_answer(self, plan: "Plan", stage: "Stage") -> int:
        """Return the length of the sealed envelope for the shuffler."""
        return self.envelope_bytes(self.numbers(plan, stage))

    def effort(self, plan: "Plan", stage: "Stage", batch: int) -> Effort:
        """Return the effort of the coins of every number, their random shares, and a seal on each shuffled message."""
        numbers = self.numbers(plan, stage)
        # Heads are drawn within 11.5 standard deviations of their mean, before a draw needs a finer table.
        thresholds = 6 * math.sqrt(batch * self.coins)
        shared = NUMBER * self.messages(numbers) * self.block
        sent = self.envelope_bytes(numbers)
        drawing = NOISE * numbers + THRESHOLD * thresholds
        seconds = drawing + RANDOM * (shared + sent) + SEAL * self.messages(numbers) + PASS * numbers
        return Effort(seconds, 4 * shared + 8 * sent + 8 * NUMBER * numbers + 25 * NUMBER * thresholds)

    def oversize(self, plan: "Plan", stage: "Stage") -> str:
        """Say that an envelope, or the batch of all silos' messages that the shuffler holds, would be too long."""
        longest = written_length(self.longest_answer(plan, stage))
        together = longest * len(plan.silos)
        if longest <= SIZE_LIMIT and together <= BATCH_LIMIT:
            return ""
        return (
            f"a silo's messages would take {longest} bytes, where {SIZE_LIMIT} are allowed, and a batch of them "
            f"{together}, where {BATCH_LIMIT} are allowed"
        )

    def least_answers(self) -> int:
        """Return the quorum of the shuffler."""
        return self.quorum

    def uncovered(self, plan: "Plan", stage: "Stage", number: int) -> str:
        """Name silos of different sizes that take turns at the shuffler: no loss bound covers them."""
        turns = stage.participation.silos not in (None, len(plan.silos))
        differ = len({terms.stages[number].batch for terms in plan.silos}) > 1
        return "silos of different sizes that take turns at the shuffler" if turns and differ else ""

    def keys(self, silos: dict[str, Key]) -> PublicKeys:
        """Return the keys of server and shuffler beside those of the silos."""
        return PublicKeys(server=self.server_key, shuffler=self.shuffler_key, silos=silos)

    def most_colluders(self) -> int:
        """Return how many silos may collude with the server by the plan's shuffler channel."""
        return self.colluders

    def observer_words(self) -> str:
        """Name the server, which sees shuffled totals, and how many silos collude with it."""
        return (
            f"a server that sees everything that the shuffler releases, has {other_silos(self.colluders)} on its side"
        )

    def claim_words(self) -> str:
        """Say that the shuffler and the coins of other silos provide the guarantee."""
        most = f"no more than {other_silos(self.colluders)}" if self.colluders else "no other silo"
        return (
            "The joint noise of the silos that follow it provides them, as long as the shuffler does not collude with "
            f"the server, and {most} does; those against anyone hold by each silo's own noise alone."
        )

    def reliance_words(self) -> list[str]:
        """Say that the guarantee relies on the shuffler, and on the noise of the other silos."""
        return [
            "",
            "Apart from the silo itself, this relies on two things:",
            "- The shuffler does not collude with the server. It cannot read a message, but it knows who sent it.",
            f"- At least {self.quorum - self.colluders} silos of every round, this one included, add the noise they "
            "promised,",
            "  and reveal it to nobody.",
            *([] if self.colluders else ["It does not hold against another silo, which knows its own noise."]),
            "",
            "If the server colludes with the shuffler, or with more silos, only the silo's own noise protects it.",
        ]

    def noise_words(self, sigma: float, unit: str) -> str:
        """Describe the noise of shuffled sums: coins."""
        return (
            f"the sum is turned into whole numbers by {self.coins} coins tossed for each {unit} and number: noise of "
            f"standard deviation {sigma:.4g} on the silo's own average, and less on the average of all silos"
        )

    def audience(self, plan: "Plan", terms: "SiloTerms") -> list[str]:
        """Say what the server, the shuffler and the other silos see, and what is assumed of them."""
        return [
            "The server, and anyone it passes messages to (assume everyone): the total over all silos that answer.",
            "The shuffler: sealed messages, which it cannot read. It passes them on in random order once "
            f"{self.quorum} or more silos have sent theirs.",
            f"Other silos in the plan: {plan.others(terms.name)}. {self._others_words()}",
            "The stated epsilon needs a shuffler that does not collude with the server, and "
            f"{self.quorum - self.colluders} silos in every round, this one included, that add their noise and reveal "
            "it to nobody.",
        ]

    def _others_words(self) -> str:
        """Tell an operator whether the shuffler's epsilon holds if other silos collude with the server."""
        if self.colluders:
            return f"The stated epsilon holds even if {self.colluders} of them tell the server everything they know."
        return "The stated epsilon does not hold against them: a silo knows its own noise, and sees the weights."
