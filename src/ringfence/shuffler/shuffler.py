"""The shuffler: it takes silos' envelopes, mixes what is in them, and hands every round's mix out once and for all.

It cannot read a message, since each is sealed to the server. The server cannot tell whose message is whose, since the
shuffler hands out all messages of a round together, in an order that is uniform among all orders and independent of
how they came. What it promises, whatever the server, the network and some of the silos do:

- In a batch every silo's messages are there once or not at all, and only what silos of the plan have signed.
- A batch holds `quorum` silos or more: the noise that the plan counts on.
- A round has one batch: one set in one order, however often it is fetched and however often the process dies. A second
  one, with a silo more, would show by comparison what that silo sent. Where there is a `witness`, not even an older
  copy of the folder gives one.
- A plan that was ended gives and takes nothing any more, and its messages and batches are not on the disk.
- Nothing is kept or printed that says which silos are in a batch. How many is public, and who has handed a deposit in
  knows of that one by its receipt.
"""

import base64
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from ringfence.errors import MessageError, PlanError, ShufflerError
from ringfence.protocol import Batch, Plan, SealedUpdate, Stage
from ringfence.protocol.channels.shuffler import SEALED_EXTRA, ShufflerChannel
from ringfence.protocol.documents.messages import ExplainedReason, written_length
from ringfence.protocol.plan import checks
from ringfence.shuffler import shares
from ringfence.shuffler.sealing import open_envelope, public_key, split_messages, verify
from ringfence.shuffler.store import Store, StoredRound
from ringfence.shuffler.witness import Witness
from ringfence.storage.decision_log import Note, unnoted
from ringfence.storage.stored_file import Closing

PLANS_LIMIT = 1000

SECONDS = 10.0
"""How long a round waits, after its first deposit, for silos beyond the quorum."""

_SHORTEST = 8


class Receipt(StrEnum):
    """Confirms that a silo's messages are on the shuffler's disk."""

    STORED = "stored"
    ALREADY_THERE = "already-there"


class ShufflerRefusal(ExplainedReason):
    """Why a deposit is not accepted, or a batch not available. Nothing was stored, and nothing was lost."""

    MALFORMED = "malformed", "This is not a sealed update; send what the silo answered, byte for byte."
    UNKNOWN_PLAN = "unknown-plan", "The shuffler's operator has added no plan with this digest."
    PLAN_ENDED = "plan-ended", "The shuffler's operator has ended this plan; its batches are deleted."
    UNKNOWN_SILO = "unknown-silo", "The plan has no silo of this name."
    ROUND_OUT_OF_RANGE = "round-out-of-range", "The plan has no such round."
    BAD_SIGNATURE = "bad-signature", "The signature was not made with the key that the plan names for this silo."
    WRONG_SIZE = "wrong-size", "The envelope does not have the size of the plan's messages."
    NOT_FOR_US = "not-for-us", "The envelope was sealed to another key, or for another plan, round or silo."
    ROUND_RELEASED = "round-released", "The round's batch is final; nothing more can be added."
    SECOND_DEPOSIT = "second-deposit", "This silo already deposited other messages in this round; the first ones count."


@dataclass(frozen=True)
class Waiting:
    """A batch that is not fixed yet: that many silos have deposited, and at least `quorum` must."""

    silos: int
    quorum: int


class Shuffler(Closing):
    """The shuffler of one folder. All its methods may be called from several threads.

    With a `witness` no batch leaves a folder that is older than it knows, and none before it knows of it. A shuffler
    that serves others needs one; a temporary folder does not. `note` is called for every refusal and every batch that
    leaves, but not for accepted deposits: their times would help to tell which silos are in a batch.
    """

    def __init__(
        self, store: Store, *, seconds: float = SECONDS, witness: Witness | None = None, note: Note = unnoted
    ) -> None:
        """Make the shuffler of a store; after `seconds`, a round that has its quorum waits for no more silos."""
        self._store = store
        self._seconds = seconds
        self._witness = witness
        self._note = note
        self._releasing = threading.Lock()
        self._plans: dict[str, Plan] = {}
        self.public_key = public_key(store.key)
        """What silos seal their envelopes to."""

    @classmethod
    def open(cls, folder: Path, *, seconds: float = SECONDS) -> Self:
        """Open the shuffler of a folder that `Store.create` has made."""
        return cls(Store(folder), seconds=seconds)

    def close(self) -> None:
        """Close the database of the shuffler's folder."""
        self._store.close()

    def add(self, plan: Plan) -> None:
        """Serve the plan from now on; PlanError if it does not use this shuffler. Adding it twice is fine."""
        if {channel.shuffler_key for _, channel in _shuffled(plan)} != {self.public_key}:
            raise PlanError(
                f"The plan is not for this shuffler, whose key is {self.public_key}: make one that trusts a shuffler "
                "and names that key."
            )
        if unmet := checks.unmet(plan):
            raise PlanError(f"The shuffler does not serve this plan: {unmet}.")
        with self._store.transaction():
            if self._store.count_plans() >= PLANS_LIMIT and self._store.plan(plan.digest()) is None:
                raise ShufflerError(f"There are already {PLANS_LIMIT} plans here; set up another folder for more.")
            self._store.add_plan(plan.digest(), plan.content, longest_deposit(plan))

    def deposit(self, content: bytes) -> Receipt | ShufflerRefusal:
        """Take a silo's sealed update into the shuffler; with a receipt, its messages will be in the round's batch.

        The same update again gets a receipt again, and counts once.
        """
        try:
            update = SealedUpdate.from_bytes(content)
        except MessageError:
            return self._refused(ShufflerRefusal.MALFORMED)
        outcome = self._judge(update)
        if isinstance(outcome, ShufflerRefusal):
            return self._refused(outcome, plan=update.plan, round=update.round)
        return outcome

    def _refused(self, reason: ShufflerRefusal, *, plan: str = "", round: int | None = None) -> ShufflerRefusal:
        """Note a refusal in the shuffler's log, and return it."""
        self._note("refused", plan=plan, round=round, reason=reason.value)
        return reason

    def _judge(self, update: SealedUpdate) -> Receipt | ShufflerRefusal:
        """Check and open a silo's update at the shuffler, and keep its messages; return a receipt or a refusal."""
        plan = self._plan(update.plan)
        if plan is None:
            return ShufflerRefusal.UNKNOWN_PLAN
        terms = plan.terms(update.silo)
        if terms is None or terms.key is None:
            return ShufflerRefusal.UNKNOWN_SILO
        place = _place(plan, update.round)
        if place is None:
            return ShufflerRefusal.ROUND_OUT_OF_RANGE
        signed = SealedUpdate.signed_bytes(update.plan, update.round, update.silo, update.envelope)
        if not verify(terms.key, signed, update.signature):
            return ShufflerRefusal.BAD_SIGNATURE
        envelope = base64.b64decode(update.envelope)
        stage, channel = place
        if len(envelope) != channel.envelope_bytes(channel.numbers(plan, stage)):
            return ShufflerRefusal.WRONG_SIZE
        try:
            messages = open_envelope(self._store.key, update.plan, update.round, update.silo, envelope)
        except MessageError:
            return ShufflerRefusal.NOT_FOR_US
        return self._keep(update, signed, split_messages(messages, channel.message_bytes + SEALED_EXTRA))

    def _keep(self, update: SealedUpdate, signed: bytes, messages: list[bytes]) -> Receipt | ShufflerRefusal:
        """Store a silo's opened messages in the shuffler for the round's batch; return a receipt or a refusal."""
        with self._store.transaction():
            if self._store.is_ended(update.plan):
                return ShufflerRefusal.PLAN_ENDED
            found = self._store.round(update.plan, update.round)
            if found is not None and found.batch is not None:
                return ShufflerRefusal.ROUND_RELEASED
            number = self._store.open_round(update.plan, update.round) if found is None else found.number
            before = self._store.deposited(number, update.silo, signed)
            if before is not None:
                return Receipt.ALREADY_THERE if before else ShufflerRefusal.SECOND_DEPOSIT
            self._store.add_deposit(number, update.silo, signed, messages)
        return Receipt.STORED

    def release(self, plan: str, round: int) -> bytes | Waiting | ShufflerRefusal:
        """Return the round's batch from the shuffler, always the same bytes; or say how many silos it waits for.

        It is fixed when all silos that a round asks have deposited, or when at least the plan's quorum have and
        `seconds` have passed since the first. Below the quorum nothing leaves, and later deposits are welcome.
        """
        served = self._plan(plan)
        if served is None:
            return self._refused(ShufflerRefusal.UNKNOWN_PLAN)
        place = _place(served, round)
        if place is None:
            return self._refused(ShufflerRefusal.ROUND_OUT_OF_RANGE)
        # More silos than a round asks are not waited for.
        quorum, asked = place[1].quorum, place[0].participation.silos or len(served.silos)
        with self._releasing:  # nobody fetches a batch before the witness knows of it
            with self._store.transaction():
                if self._witness is not None:
                    self._witness.check()
                if self._store.is_ended(plan):
                    return self._refused(ShufflerRefusal.PLAN_ENDED, plan=plan, round=round)
                found = self._store.round(plan, round)
                if found is None:
                    return Waiting(0, quorum)
                batch = found.batch
                if batch is None:
                    late = time.time() >= found.opened + self._seconds
                    if found.silos < (quorum if late else asked):
                        return Waiting(found.silos, quorum)
                    batch = self._mixed(found)
                    self._store.fix(found.number, batch)
                decisions = self._store.decisions()
            self._let_witness_know(decisions)
        self._note("released" if found.batch is None else "repeated", plan=plan, round=round)
        return batch

    def _mixed(self, found: StoredRound) -> bytes:
        """Return a round's batch: all silos' messages, shuffled."""
        messages = self._store.pooled(found.number)
        shares.shuffle_messages(messages)
        joined = base64.b64encode(b"".join(messages)).decode()
        return Batch(plan=found.plan, round=found.round, silos=found.silos, messages=joined).to_bytes()

    def end(self, which: str) -> str:
        """Stop the shuffler from serving a plan for good, delete its messages and batches, and return its digest.

        It is named by its digest, or by the digest's first characters. Ending it again changes nothing, and neither
        does adding it again.
        """
        with self._store.transaction():
            found = [digest for digest in self._store.plans() if len(which) >= _SHORTEST and digest.startswith(which)]
            if len(found) != 1:
                raise ShufflerError(
                    f"'{which}' is not the digest (or at least its first {_SHORTEST} characters) of a plan that was "
                    f"added here; `ringfence shuffler status {self._store.folder}` lists them."
                )
            if not self._store.is_ended(found[0]):
                self._store.end_plan(found[0])
        return found[0]

    def settle(self) -> None:
        """Raise ShufflerError if the folder is older than its witness knows; else let the witness know this one."""
        if self._witness is None:
            return
        with self._releasing:
            with self._store.transaction():
                self._witness.check()
                decisions = self._store.decisions()
            self._witness.note(decisions)
            with self._store.transaction():
                self._store.set_decisions(self._store.decisions(), witnessed=True)

    def restore(self) -> list[str]:
        """End all plans of a shuffler that is an older copy or has lost its witness; return them. It may serve then.

        Whatever was forgotten was about one of these plans: no new plan has its digest.
        """
        with self._store.transaction():
            ended = [digest for digest in self._store.plans() if not self._store.is_ended(digest)]
            for digest in ended:
                self._store.end_plan(digest)
            seen = None if self._witness is None else self._witness.seen()
            decisions = max(self._store.decisions(), seen or 0) + 1  # more than any copy has
            self._store.set_decisions(decisions)
        self._let_witness_know(decisions)
        return ended

    def _let_witness_know(self, decisions: int) -> None:
        """Tell the shuffler's witness, if it has one, how many decisions were made."""
        if self._witness is not None:
            self._witness.note(decisions)

    def longest_deposit(self) -> int:
        """Return the most bytes that a deposit of any plan that the shuffler serves can have."""
        with self._store.transaction():
            return self._store.longest_deposit()

    def status(self) -> dict[str, Any]:
        """Return the shuffler's key, and for every plan its rounds: how many silos have deposited, and its state."""
        with self._store.transaction():
            plans = [self._plan_status(*stored) for stored in self._store.plans().items()]
        return {"public_key": self.public_key, "plans": plans}

    def _plan_status(self, digest: str, content: bytes) -> dict[str, Any]:
        """Describe a plan and its rounds for the shuffler's status."""
        plan, ended = Plan.parse(content, error=PlanError), self._store.is_ended(digest)
        rounds = [
            {
                "round": found.round,
                "silos": found.silos,
                "state": "deleted" if ended else "waiting" if found.batch is None else "released",
            }
            for found in self._store.rounds(digest)
        ]
        return {
            "plan": digest,
            "run": plan.run,
            "silos": len(plan.silos),
            "quorum": max(channel.quorum for _, channel in _shuffled(plan)),
            "rounds": rounds,
            **({"ended": True} if ended else {}),
        }

    def _plan(self, digest: str) -> Plan | None:
        """Return the plan with that digest, if the shuffler serves it."""
        if digest not in self._plans:
            with self._store.transaction():
                content = self._store.plan(digest)
            if content is None:
                return None
            self._plans[digest] = Plan.parse(content, error=PlanError)
        return self._plans[digest]


def _shuffled(plan: Plan) -> list[tuple[Stage, ShufflerChannel]]:
    """Return the plan's stages whose answers travel through a shuffler."""
    return [(stage, stage.channel) for stage in plan.stages if isinstance(stage.channel, ShufflerChannel)]


def _place(plan: Plan, round: int) -> tuple[Stage, ShufflerChannel] | None:
    """Return the stage of a round whose answers travel through a shuffler; None if the plan has no such round."""
    if not 0 <= round < plan.rounds:
        return None
    stage = plan.place(round).stage
    return (stage, stage.channel) if isinstance(stage.channel, ShufflerChannel) else None


def longest_deposit(plan: Plan) -> int:
    """Return the most bytes that a silo's sealed update can have; 0 if the plan has none."""
    envelopes = (channel.envelope_bytes(channel.numbers(plan, stage)) for stage, channel in _shuffled(plan))
    return max(map(written_length, envelopes), default=0)
