"""What an answer costs that goes through a shuffler."""

import math

from ringfence.accounting.events import BinomialRelease
from ringfence.accounting.shuffled_sums import mixing_distance
from ringfence.errors import AccountingError
from ringfence.protocol import Plan, ShufflerChannel, SiloTerms, Task

MIXED = 2.0**-160
"""How far, in total variation, a round's shuffled shares may be from telling their total only."""


def counts_rounding(records: int, dimension: int) -> float:
    """Return by how much more than in exact arithmetic the counts for a shuffler may move, as a factor.

    Sums are exact: only their heights in counts are rounded (`docs/proofs.md`, What a shuffler hides).
    """
    return 1 + 12 * (records + 1) * math.sqrt(dimension) * 2.0**-53


def honest_silos(quorum: int, colluders: int) -> int:
    """Return the fewest silos of a shuffler's batch that keep their coins and shares to themselves.

    The server decides which deposits it carries, so a batch may hold `quorum` silos, all of its accomplices among them.
    """
    return quorum - colluders


def event(channel: ShufflerChannel, plan: Plan, terms: SiloTerms, work: Task) -> BinomialRelease:
    """Return the cost of counts that leave the shuffler together with those of the other honest silos.

    Which others is not the silo's choice, so those with the fewest coins count. Shares that do not hide each honest
    silo's own counts are refused: the shuffled guarantee would not hold.
    """
    honest = honest_silos(channel.quorum, channel.colluders)
    distance = channel.blocks(channel.numbers(plan, work.stage)) * mixing_distance(
        parties=honest, shares=channel.shares, bits=8 * channel.width * channel.block
    )
    if distance > MIXED:
        raise AccountingError(
            f"With {channel.shares} shares, the counts of {honest} silos are not proved to stay hidden from the "
            "server, so the plan's guarantee would not hold. Ask for a plan with more shares."
        )
    others = sorted(other.stages[work.number].batch for other in plan.silos if other.name != terms.name)
    return BinomialRelease(
        reach=channel.levels * counts_rounding(terms.records, work.length),
        trials=channel.coins * (work.batch + sum(others[: honest - 1])),
        own=channel.coins * work.batch,
        dimension=work.length,
        slack=channel.slack,
        partition="" if work.part is None else plan.digest(),
        part=0 if work.part is None else work.part.number,
    )
