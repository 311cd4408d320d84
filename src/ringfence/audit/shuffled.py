"""Plans that trust a shuffler, for the audit: two silos, the private keys of all, and what counts tell a server.

*Two observers.* Behind an honest shuffler a server can read the total over the silos of a batch, and nothing else: the
others' coins hide the canaries too. A server that works together with the shuffler reads each silo's own counts. The
audit opens every seal with the keys of all parties, and then uses what the observer could: a total, or the audited
silo's counts. That shares hide whose counts are whose is `planning.shuffling.mixing_distance`'s proof, not the audit's.

*Exactly coins.* A canary's clipped gradient is ±L in a coordinate of its own and all else is 0, so a silo of K records
rounds the height g(K ± 1)/2 where a canary plays and gK/2 elsewhere (`shuffle.vector_sum`). Such a height is whole, or
half-way between two whole numbers: then rounding is one more fair coin. What the server sees in a coordinate is thus
∓g/2 plus the heads among a known number of fair coins, less their mean: exactly, up to the 2⁻⁵³ of a rounding's draw.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ringfence.audit.adversary import Observation, read_refusal
from ringfence.planning.mixing import Mixing, with_shuffler
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import RoundRequest, SealedUpdate
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.shuffle import Keys, Shuffle
from ringfence.server.shuffled import Totals, mean_gradient
from ringfence.shuffle import sealing, shares
from ringfence.silo.gate import Gate
from ringfence.silo.sealed import public_key

OTHER = "other silo"
"""The silo whose coins hide the audited one's records too; its own are zeros."""


@dataclass(frozen=True, repr=False)
class PrivateKeys:
    """The private keys of all parties of the audited plans."""

    server: bytes
    shuffler: bytes
    silos: Mapping[str, bytes]

    def public(self) -> Keys:
        """Return what a plan pins."""
        return Keys(
            server=sealing.public_key(self.server),
            shuffler=sealing.public_key(self.shuffler),
            silos={name: public_key(key) for name, key in self.silos.items()},
        )


@cache
def private_keys(silo: str) -> PrivateKeys:
    """Make keys for the audited silo and everybody around it, the same for all audits of this process."""
    return PrivateKeys(sealing.new_key(), sealing.new_key(), {name: sealing.new_key() for name in (silo, OTHER)})


def shuffled_plan(draft: dict[str, Any], terms: SiloTerms) -> Plan:
    """Make the plan with the least coins that keep the guarantee which `terms` claims, with another silo as large."""
    members = [terms.model_copy(update={"name": name, "weight": 0.5}) for name in (terms.name, OTHER)]
    return with_shuffler(draft, members, Mixing(private_keys(terms.name).public()), quorum=len(members))


def look_behind(plan: Plan, shuffle: Shuffle, gates: Sequence[Gate]) -> Callable[[RoundRequest], FloatArray]:
    """Return how a server learns the mean gradient over the silos behind `gates`, and nothing else of them."""
    opened: dict[tuple[str, ...], FloatArray] = {}

    def look(request: RoundRequest) -> FloatArray:
        updates = [_sealed(gate, request) for gate in gates]
        envelopes = tuple(update.envelope for update in updates)
        if envelopes not in opened:  # a repeated answer tells nothing new, and opening it takes as long again
            opened[envelopes] = mean_gradient(plan, shuffle, _totals(plan, shuffle, request.round, updates))
        return opened[envelopes]

    return look


def _sealed(gate: Gate, request: RoundRequest) -> SealedUpdate:
    answer = gate.answer(request)
    return answer if isinstance(answer, SealedUpdate) else read_refusal(answer)


def _totals(plan: Plan, shuffle: Shuffle, round: int, updates: Sequence[SealedUpdate]) -> Totals:
    """Open all seals and add up: what `server.shuffled.read_batch` makes of a batch of these silos."""
    keys, digest, sealed = private_keys(plan.silos[0].name), plan.digest(), []
    for update in updates:
        envelope = base64.b64decode(update.envelope)
        joined = sealing.open_envelope(keys.shuffler, digest, round, update.silo, envelope)
        sealed += sealing.cut(joined, shuffle.message_bytes + sealing.SEALED_EXTRA)
    messages = sealing.open_messages(keys.server, digest, round, sealed)
    return Totals(len(updates), shares.add_up(shuffle, messages, silos=len(updates), numbers=plan.numbers))


def read_counts(plan: Plan, answers: FloatArray, *, canaries: int, alone: bool) -> Observation:
    """Turn mean gradients over the audited silo alone, or over all silos, into numbers about the canaries."""
    assert plan.shuffle is not None  # noqa: S101 (made by `shuffled_plan`)
    seen, levels = plan.silos[:1] if alone else plan.silos, plan.shuffle.levels
    vectors = sum(terms.batch for terms in seen)
    heights = [terms.batch + (number == 0) for number, terms in enumerate(seen)]  # twice, in units of the levels
    coins = vectors * plan.shuffle.coins + sum(levels * height % 2 for height in heights)
    sigma = 2 * plan.clip / levels * np.sqrt(coins) / 2 / vectors
    strength = np.full((len(answers), canaries), plan.clip / vectors / sigma)
    return Observation(-answers[:, :canaries] / sigma, strength, coins=coins)
