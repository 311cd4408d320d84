"""Plans that trust a shuffler, for the audit: a few silos, the private keys of all, and what counts tell a server.

*Three observers.* Behind an honest shuffler a server can read the total over the silos of a batch, and nothing else:
the others' coins hide the canaries too. If another silo colludes with it, it takes that one's shares, and so its
coins, off the pile. A server that colludes with the shuffler reads each silo's own counts. The audit opens every
seal with the keys of all parties, and then uses what the observer could. Should the first messages of a pile add up to
what the audited silo may have sent, they were not mixed, and it takes these; that mixed ones hide whose counts are
whose is proved (docs/proofs.md), and not the audit's to show.

*Exactly coins.* A canary's clipped gradient is ±L in a coordinate of its own and all else is 0, so a silo of K records
rounds the height g(K ± 1)/2 where a canary plays and gK/2 elsewhere (`sealed_sums.vector_sum`). Such a height is whole,
or half-way between two whole numbers: then rounding is one more fair coin. What the server sees in a coordinate is thus
∓g/2 plus the heads among a known number of fair coins, less their mean: exactly, up to the 2⁻⁵³ of a rounding's draw.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np

from ringfence.audit.adversary import Observation, seen_together
from ringfence.errors import MessageError, PlanError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.channels import ShufflerChannel
from ringfence.protocol.guarantee import Observer
from ringfence.protocol.keys import PublicKeys
from ringfence.protocol.messages import SealedUpdate
from ringfence.protocol.plan import Plan
from ringfence.sealed_sums import sealing, shares
from ringfence.server.channels import Collect, Totals

OTHER, PEER = "other silo", "peer"
"""The silo whose coins hide the audited one's records too, and one that tells the server all; their records are 0."""


@dataclass(frozen=True, repr=False)
class PrivateKeys:
    """The private keys of all parties of the audited plans."""

    server: bytes
    shuffler: bytes
    silos: Mapping[str, bytes]

    def public(self) -> PublicKeys:
        """Return what a plan pins."""
        return PublicKeys(
            server=sealing.public_key(self.server),
            shuffler=sealing.public_key(self.shuffler),
            silos={name: sealing.verifying_key(key) for name, key in self.silos.items()},
        )


@cache
def private_keys(silo: str) -> PrivateKeys:
    """Make keys for the audited silo and everybody around it, the same for all audits of this process."""
    return PrivateKeys(sealing.new_key(), sealing.new_key(), {name: sealing.new_key() for name in (silo, OTHER, PEER)})


def collect_openly(plan: Plan) -> Collect:
    """Return what a server makes of a batch of any number of silos, with its accomplices among them, in the open."""
    accomplices = {terms.name for terms in plan.silos} - {terms.name for terms in seen_together(plan, "server")}

    def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals:
        stage, channel = plan.place(round).stage, _through_shuffler(plan, round)
        keys, digest = private_keys(plan.silos[0].name), plan.digest()
        numbers = channel.numbers(plan, stage)
        pile: list[bytes] = []
        known: Counter[bytes] = Counter()
        for update in updates:
            envelope = base64.b64decode(update.envelope)
            joined = sealing.open_envelope(keys.shuffler, digest, round, update.silo, envelope)
            sealed = sealing.cut(joined, channel.message_bytes + sealing.SEALED_EXTRA)
            messages = sealing.open_messages(keys.server, digest, round, sealed)
            pile += messages
            known.update(messages if update.silo in accomplices else ())
        shares.mix(pile)
        unknown = list((Counter(pile) - known).elements())  # in the pile's order: equal shares of two silos never occur
        silos = len(unknown) // channel.messages(numbers)
        with suppress(MessageError):
            first = shares.add_up(channel, unknown[: channel.messages(numbers)], silos=1, numbers=numbers)
            batch = plan.silos[0].stages[plan.place(round).number].batch
            if first[-1] == batch and np.all(first <= batch * (channel.levels + channel.coins)):
                return Totals(1, first)
        return Totals(silos, shares.add_up(channel, unknown, silos=silos, numbers=numbers))

    return collect


def read_counts(plan: Plan, answers: FloatArray, *, canaries: int, clip: float, against: Observer) -> Observation:
    """Turn mean gradients over the silos that the observer sees together into numbers about the canaries."""
    channel = _through_shuffler(plan, 0)
    batches = [terms.stages[0].batch for terms in seen_together(plan, against)]
    coins, vectors = coins_of(channel, batches), sum(batches)
    sigma = 2 * clip / channel.levels * np.sqrt(coins) / 2 / vectors
    strength = np.full((len(answers), canaries), clip / vectors / sigma)
    return Observation(-answers[:, :canaries] / sigma, strength, coins=coins)


def coins_of(channel: ShufflerChannel, batches: Sequence[int]) -> int:
    """Return how many coins there are in a canary's coordinate, by the silos' batches: roundings are coins too."""
    heights = [batch + (number == 0) for number, batch in enumerate(batches)]  # twice, in units of the levels
    return sum(batches) * channel.coins + sum(channel.levels * height % 2 for height in heights)


def _through_shuffler(plan: Plan, round: int) -> ShufflerChannel:
    channel = plan.place(round).stage.channel
    if not isinstance(channel, ShufflerChannel):
        raise PlanError(f"Round {round} of the audited plan does not go through a shuffler.")
    return channel
