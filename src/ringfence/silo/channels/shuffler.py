"""A silo's answer on its way through a shuffler: counts with coins, cut into shares, sealed twice and signed."""

import base64
from dataclasses import dataclass

import numpy as np

from ringfence.errors import ApprovalError, PlanError
from ringfence.protocol import FloatArray, Plan, SealedUpdate, ShufflerChannel, SiloTerms, Task
from ringfence.shuffler import sealing, shares, vector_sum
from ringfence.silo.noise import randomness
from ringfence.silo.noise.exact_draws import uniform
from ringfence.silo.records.storage import Unpicklable


@dataclass(frozen=True, repr=False)
class Coins(Unpicklable):
    """A round's noise: the heads among fair coins, and what decides roundings, uniform on [0, 1)."""

    heads: vector_sum.Counts
    rounding: FloatArray


def require(channel: ShufflerChannel, terms: SiloTerms, key: bytes | None) -> None:
    """Require the key that the plan expects of this silo, and keys that can be sealed to."""
    if key is None or sealing.verifying_key(key) != terms.key:
        raise ApprovalError(
            f"The plan names another key for silo '{terms.name}' than the one it signs with, so the shuffler would "
            "reject its messages. Send the plan's author the key that `ringfence silo status` shows."
        )
    try:
        for public in (channel.server_key, channel.shuffler_key):
            sealing.seal_messages(public, "", 0, [b""])
    except PlanError as problem:
        raise ApprovalError(f"Silo '{terms.name}' cannot answer this plan. {problem}") from None


def draw(channel: ShufflerChannel, work: Task) -> Coins:
    """Toss the coins of every number, and draw what decides its rounding."""
    # 53 bits make a number of [0, 1) exactly; that it is no finer is charged for (`counts_rounding`).
    rounding = np.ldexp((uniform(work.length) >> np.uint64(11)).astype(np.float64), -53)
    return Coins(randomness.heads(work.length, work.batch * channel.coins), rounding)


def memory(channel: ShufflerChannel) -> None:
    """Remember nothing: every round has its own coins."""


def encode(
    channel: ShufflerChannel, plan: Plan, work: Task, exact: FloatArray, noise: Coins, memory: object
) -> vector_sum.Counts:
    """Return what a silo's shares add up to: its summed answers as counts, coins included, and how many they are of.

    The last number is the public size of the batch, so that the server can tell what a total is a total of.
    """
    norm = work.stage.query.record_norm(plan)
    assert norm is not None  # noqa: S101 (the plan was validated)
    ones = vector_sum.encode_sum(
        work.batch * exact,
        vectors=work.batch,
        clip=norm,
        levels=channel.levels,
        rounding=noise.rounding,
        coins=noise.heads,
    )
    return np.append(ones, work.batch)


def message(
    channel: ShufflerChannel, plan: Plan, terms: SiloTerms, round: int, key: bytes | None, numbers: vector_sum.Counts
) -> SealedUpdate:
    """Return the counts in a form that shuffler and server must both hold before anything can be read.

    The server can open what the shuffler lets out, which is mixed; the shuffler cannot open it at all.
    """
    assert key is not None  # noqa: S101 (the plan was approved with it)
    digest = plan.digest()
    messages = sealing.seal_messages(channel.server_key, digest, round, shares.make_shares(channel, numbers))
    envelope = sealing.seal_envelope(channel.shuffler_key, digest, round, terms.name, b"".join(messages))
    text = base64.b64encode(envelope).decode()
    signature = sealing.sign(key, SealedUpdate.signed_bytes(digest, round, terms.name, text))
    return SealedUpdate(plan=digest, round=round, silo=terms.name, envelope=text, signature=signature)
