"""The mechanism: compute a query's exact answer from the records that take part, and add the given noise.

It is a pure function of its arguments. Who takes part and what noise is added are decided outside, so the
gate (operating-system draws), the simulator and the audit run this same code, and equal draws give equal
bytes.

Guarantee. Replacing one record changes the exact answer by at most the query's sensitivity if that record takes part,
and not at all otherwise. `accounting.charges.task_event` also charges for the channel's rounding.

Edge case: nobody takes part (possible under Poisson sampling) gives the noise alone.
"""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ringfence.protocol import FloatArray, Plan, Task
from ringfence.silo.channels import SENDERS
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from ringfence.silo.records.storage import Unpicklable


@dataclass(frozen=True, repr=False)
class Draws(Unpicklable):
    """A round's randomness: 1 for every record that takes part and 0 for the others; and the channel's noise."""

    participation: FloatArray
    noise: Any


def release(
    plan: Plan, work: Task, argument: FloatArray, records: Records, draws: Draws, memory: object = None
) -> NDArray[Any]:
    """Return the numbers a silo sends in a round: the query's answer, with the channel's noise.

    `memory` is the channel's state from the stage's earlier rounds, if it has one; this round is added to it.
    """
    query, channel = work.stage.query, work.stage.channel
    exact = compute(query, plan, argument, records, draws.participation, work.batch)
    return SENDERS[type(channel)].encode(channel, plan, work, exact, draws.noise, memory)
