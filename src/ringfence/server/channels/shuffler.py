"""The server's end of a shuffler: from a batch of mixed, sealed shares to the mean answer.

All that can be read from a batch is the total over its silos. A silo that does not follow the protocol can therefore
spoil a total without being detected; it learns nothing by that.
"""

import base64
from collections.abc import Mapping

import numpy as np

from ringfence.errors import MessageError, PlanError
from ringfence.protocol import Answer, Batch, FloatArray, Plan, SealedUpdate, ShufflerChannel
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.server.channels.base import Averaged, Totals
from ringfence.shuffler import sealing, shares, vector_sum


def is_usable(plan: Plan, number: int, answer: Answer) -> bool:
    """Return whether an answer is sealed to the shuffler: only the shuffler can tell more."""
    return isinstance(answer, SealedUpdate)


def average(
    channel: ShufflerChannel, plan: Plan, number: int, answers: Mapping[str, Answer], totals: Totals | None
) -> Averaged | None:
    """Return the mean over all records in the shuffler's batch, and no silo's own answer: only totals can be read."""
    return None if totals is None or not answers else (mean_of_totals(channel, plan, number, totals), {})


def read_batch(plan: Plan, key: bytes, round: int, content: bytes) -> Totals:
    """Open a batch with the server's key and add its shares up; MessageError if it is not one of that round."""
    stage, number, _ = plan.place(round)
    channel = stage.channel
    if not isinstance(channel, ShufflerChannel):
        raise PlanError(f"Round {round} of the plan does not go through a shuffler.")
    batch = Batch.from_bytes(content)
    if (batch.plan, batch.round) != (plan.digest(), round):
        raise MessageError("The batch belongs to another plan or round: it is not used.")
    sealed = sealing.split_messages(base64.b64decode(batch.messages), channel.message_bytes + SEALED_EXTRA)
    messages = sealing.open_messages(key, batch.plan, round, sealed)
    numbers = shares.add_shares(channel, messages, silos=batch.silos, numbers=channel.numbers(plan, stage))
    totals = Totals(batch.silos, numbers)
    mean_of_totals(channel, plan, number, totals)
    return totals


def mean_of_totals(channel: ShufflerChannel, plan: Plan, number: int, totals: Totals) -> FloatArray:
    """Return the mean answer over all records in the batch; MessageError if no honest silos give such totals."""
    query = plan.stages[number].query
    ones, vectors = totals.numbers[:-1], int(totals.numbers[-1])
    most, norm = sum(terms.stages[number].batch for terms in plan.silos), query.record_norm(plan)
    if (
        norm is None
        or len(ones) != query.length(plan)
        or not 1 <= vectors <= most
        or np.any(ones < 0)
        or np.any(ones > vectors * (channel.levels + channel.coins))
    ):
        raise MessageError("The batch's totals are out of range: a silo in it did not follow the plan.")
    total = vector_sum.decode_sum(ones, vectors=vectors, clip=norm, levels=channel.levels, coins=channel.coins)
    result: FloatArray = total / vectors
    return result
