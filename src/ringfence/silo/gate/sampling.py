"""A round's random draws: which records take part, by each sampling rule, and the channel's noise.

The only file at a silo that asks which sampling rule it has.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import PlanError
from ringfence.protocol import FixedSize, FloatArray, Full, OnePass, Phased, Plan, Poisson, Sampling, SiloTerms, Task
from ringfence.protocol.plan import sections
from ringfence.silo.channels import SENDERS
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.noise.exact_draws import uniform

Uniform = Callable[[int], NDArray[np.uint64]]
"""Draws that many whole numbers, each uniform on 0 … 2⁶⁴ − 1."""


def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
    """Draw the records that take part in a round, and its noise, from the operating system's randomness."""
    chosen = participation(work.stage.sampling, plan, terms, work, uniform)
    return Draws(chosen, SENDERS[type(work.stage.channel)].draw(work.stage.channel, work))


def participation(rule: Sampling, plan: Plan, terms: SiloTerms, work: Task, uniform: Uniform) -> FloatArray:
    """Return 1 for every record that takes part, and 0 for the others: all that are not in the stage's section."""
    asked = sections.members(work.stage.section, terms.records, plan.held_out)
    chosen = np.zeros(terms.records)
    match rule:
        case Full():
            chosen[asked] = 1.0
        case OnePass() | Phased() if work.part is not None:
            order = _partition(plan.digest(), terms.name, len(asked))
            chosen[asked[order[work.part.first : work.part.first + work.batch]]] = 1.0
        case Poisson():
            # An integer comparison: the probability is batch/records to within 2⁻⁶⁴, rounded down.
            chosen[asked[uniform(len(asked)) <= np.uint64((work.batch << 64) // len(asked) - 1)]] = 1.0
        case FixedSize():
            chosen[asked[_first(work.batch, len(asked), uniform)]] = 1.0
        case _:
            raise PlanError(f"This version cannot draw records by the rule '{rule.name}'.")
    return chosen


def _first(count: int, records: int, uniform: Uniform) -> NDArray[np.int64]:
    """Sample `count` records: those with the least random numbers; drawn again if it is not clear which these are.

    What is clear does not depend on the records' order, so every set of them is equally likely.
    """
    while True:
        numbers = uniform(records)
        order = np.argsort(numbers)
        if count == records or numbers[order[count - 1]] < numbers[order[count]]:
            return order[:count]


@lru_cache(maxsize=4)
def _partition(digest: str, silo: str, records: int) -> NDArray[np.int64]:
    """Order the records by a hash of the plan and their row number, to sample by partition.

    The privacy of one pass, and of phases, rests on the parts being disjoint, not on their being secret, so a fixed
    public order is enough, and a restarted silo finds the same one without having stored it. The rows must keep
    their order while the plan runs: the gate refuses a plan that goes by places once they have changed.
    """

    def key(row: int) -> bytes:
        """Hash a row number with the plan and the silo, to sample by partition."""
        return hashlib.sha256(f"{digest}/{silo}/{row}".encode()).digest()

    first = np.fromiter((int.from_bytes(key(row)[:8]) for row in range(records)), dtype=np.uint64, count=records)
    order = np.argsort(first, kind="stable")
    for place in np.flatnonzero(np.diff(first[order]) == 0):  # hardly ever: then the rest of the hash decides
        alike = np.flatnonzero(first[order] == first[order[place]])
        order[alike] = sorted(order[alike], key=lambda row: key(int(row)))
    return order
