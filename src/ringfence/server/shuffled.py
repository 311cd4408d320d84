"""The server's end of a shuffler: from a batch of mixed, sealed shares to the mean gradient.

All that can be read from a batch is the total over its silos. A silo that does not follow the protocol can therefore
spoil a total without being found out; it cannot learn anything by it.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ringfence.errors import MessageError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import SealedUpdate
from ringfence.protocol.plan import Plan
from ringfence.protocol.shuffle import Batch, Shuffle
from ringfence.shuffle import shares, vector_sum

Collect = Callable[[int, Sequence[SealedUpdate]], "Totals | None"]
"""Bring a round's sealed updates to the shuffler and return what it lets out; None if that is nothing yet."""


@dataclass(frozen=True)
class Totals:
    """What a batch adds up to: how many silos are in it, and the sums of their numbers."""

    silos: int
    numbers: vector_sum.Counts

    def packed(self) -> str:
        """Write the numbers as text."""
        return base64.b64encode(self.numbers.astype("<i8").tobytes()).decode()

    @classmethod
    def unpacked(cls, silos: int, text: str) -> "Totals":
        """Read the numbers again."""
        content = base64.b64decode(text)
        if len(content) % 8:
            raise MessageError("The totals are not a whole number of 8-byte integers.")
        return cls(silos, np.frombuffer(content, dtype="<i8").astype(np.int64))


def read_batch(plan: Plan, shuffle: Shuffle, key: bytes, round: int, content: bytes) -> Totals:
    """Open a batch with the server's key and add its shares up; MessageError if it is not one of that round."""
    from ringfence.shuffle import sealing

    batch = Batch.from_bytes(content)
    if (batch.plan, batch.round) != (plan.digest(), round):
        raise MessageError("The batch belongs to another plan or round: it is not used.")
    sealed = sealing.cut(base64.b64decode(batch.messages), shuffle.message_bytes + sealing.SEALED_EXTRA)
    messages = sealing.open_messages(key, batch.plan, round, sealed)
    totals = Totals(batch.silos, shares.add_up(shuffle, messages, silos=batch.silos, numbers=plan.numbers))
    mean_gradient(plan, shuffle, totals)
    return totals


def mean_gradient(plan: Plan, shuffle: Shuffle, totals: Totals) -> FloatArray:
    """Return the mean gradient over all records in the batch; MessageError if no honest silos give such totals."""
    ones, vectors = totals.numbers[:-1], int(totals.numbers[-1])
    most = sum(terms.batch for terms in plan.silos)
    if (
        len(ones) != plan.dimension
        or not 1 <= vectors <= most
        or np.any(ones < 0)
        or np.any(ones > vectors * (shuffle.levels + shuffle.coins))
    ):
        raise MessageError("The batch's totals are out of range: a silo in it did not follow the plan.")
    total = vector_sum.decode(ones, vectors=vectors, clip=plan.clip, levels=shuffle.levels, coins=shuffle.coins)
    mean: FloatArray = total / vectors
    return mean
