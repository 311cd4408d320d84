"""The mechanism: compute a question's exact answer from the records that take part, and add the given noise.

It is a pure function of its arguments. Who takes part and what noise is added are decided outside, so the
gate (operating-system draws), the simulator and the audit run this same code, and equal draws give equal
bytes.

Guarantee. Replacing one record moves the exact answer by at most the question's sensitivity when that record takes
part, and not at all otherwise. What the channel's rounding adds to that, `accounting.charges.task_event` charges for.

Edge case: nobody takes part (possible under Poisson sampling) gives the noise alone.
"""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import Task
from ringfence.silo.channels import sending
from ringfence.silo.questions import Summed, compute
from ringfence.silo.unpicklable import Unpicklable


@dataclass(frozen=True, repr=False)
class Draws(Unpicklable):
    """A round's randomness: 1 for every record that takes part and 0 for the others; and the channel's noise."""

    participation: FloatArray
    noise: Any


def release(
    plan: Plan, work: Task, argument: FloatArray, records: Summed, draws: Draws, memory: object = None
) -> NDArray[Any]:
    """Return the numbers a silo sends in a round: the question's answer, with the channel's noise.

    `memory` is what the channel remembers of the stage's earlier rounds (`ChannelAtSilo.memory`), if anything; it then
    remembers this round too.
    """
    question, channel = work.stage.question, work.stage.channel
    exact = compute(question, plan, argument, records, draws.participation, work.batch)
    return sending(channel).encode(channel, plan, work, exact, draws.noise, memory)
