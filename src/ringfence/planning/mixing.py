"""Plans that trust a shuffler: one noise for all silos together, and shares that hide whose counts are whose."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringfence.errors import PlanError
from ringfence.planning import accountant, calibrate
from ringfence.planning.charges import MIXED, counts_rounding, plan_events
from ringfence.planning.events import as_seen_alone
from ringfence.planning.planner import Setting
from ringfence.planning.shuffling import choose, shares_needed
from ringfence.protocol.plan import Participation, Plan, SiloTerms, shuffle_sigma
from ringfence.protocol.shuffle import Keys, Shuffle

BITS = 140
"""Bits per coordinate and record that the protocol may take unless a limit is given: g + b."""

GROUP_BITS = 1024
"""Bits of one share at most: longer ones need as many more shares."""

SET_ASIDE = 0.01
"""Part of delta that the accounting of counts sets aside."""


@dataclass(frozen=True)
class Mixing:
    """What a person says about the shuffler: the keys of all, the quorum (all that are asked), a limit of bits.

    `bits` is how many bits a record may take in the protocol of the paper, d·(g + b).
    """

    keys: Keys
    quorum: int | None = None
    bits: int | None = None


def least_quorum(mixing: Mixing, silos: int, participation: Participation) -> int:
    """Return how many silos must be in a batch; PlanError if that cannot be."""
    asked = participation.silos or silos
    quorum = asked if mixing.quorum is None else mixing.quorum
    if participation.probability is not None:
        raise PlanError("A shuffler needs to know how many silos are asked: give their number, not a probability.")
    if not 2 <= quorum <= asked:
        raise PlanError(
            f"The shuffler's quorum must be between 2 and the {asked} silos that a round asks, but is {quorum}: a silo "
            "hides among others, and those must come."
        )
    return quorum


def mixed_records(sizes: Sequence[int], quorum: int) -> int:
    """Return how many records the smallest batch of so many silos holds."""
    return sum(sorted(sizes)[:quorum])


def with_shuffler(draft: dict[str, Any], terms: Sequence[SiloTerms], mixing: Mixing, quorum: int) -> Plan:
    """Put the plan together: the least coins that keep every silo's promise, and enough shares.

    The silos make one noise, so the strictest of their budgets decides for all.
    """
    batches = [own.batch for own in terms]
    answers = 1 if draft["sampling"] == "one-pass" else draft["rounds"]
    dimension = draft["data"].width * draft["loss"].outputs
    slack = min(own.delta for own in terms) * SET_ASIDE / answers
    shift = min(
        calibrate.gaussian_shift(own.epsilon, own.delta - 1.01 * answers * slack) / math.sqrt(answers) for own in terms
    )
    noise = choose(
        vectors=mixed_records(batches, quorum),
        dimension=dimension,
        shift=shift * (1 - 1e-9),
        slack=slack,
        bits=mixing.bits or BITS * dimension,
        inflation=max(counts_rounding(own.records, dimension) for own in terms),
    )
    shuffle = _shares(noise.levels, noise.coins, quorum, slack, batches, dimension + 1, mixing.keys)
    missing = [own.name for own in terms if own.name not in mixing.keys.silos]
    if missing:
        raise PlanError(f"The keys of {', '.join(missing)} are missing: every silo signs what it sends.")
    parties = tuple(
        own.model_copy(
            update={
                "sigma": shuffle_sigma(shuffle, draft["clip"], own.batch),
                "weight": own.batch / sum(batches),
                "key": mixing.keys.silos[own.name],
                "alone_epsilon": 1.0,
            }
        )
        for own in terms
    )
    plan = Plan(**draft, trust="shuffler", shuffle=shuffle, silos=parties)
    # What a silo's own coins are worth does not depend on what is claimed of them.
    return Plan(
        **draft,
        trust="shuffler",
        shuffle=shuffle,
        silos=tuple(own.model_copy(update={"alone_epsilon": _alone(plan, own)}) for own in parties),
    )


def cost(plan: Plan, setting: Setting) -> float:
    """Return how much more noise the plan's batches carry than Gaussian releases would; 0 without a shuffler.

    In standard deviations of the mean over a batch of average size, roundings included.
    """
    if plan.shuffle is None:
        return 0.0
    assumed = replace(setting, mixing_cost=1.0)
    whole = assumed.unit_noise * (plan.rounds if plan.sampling == "full" else plan.rounds**2)
    batch = sum(terms.batch for terms in plan.silos) * setting.available / len(plan.silos)
    step = 2 * plan.clip / plan.shuffle.levels
    actual = plan.dimension * step**2 * (batch * plan.shuffle.coins + setting.available) / 4 / batch**2
    return math.sqrt(actual / whole)


def _shares(
    levels: int, coins: int, quorum: int, slack: float, batches: Sequence[int], numbers: int, keys: Keys
) -> Shuffle:
    width = 1
    while sum(batches) * (levels + coins) >= 256**width:
        width += 1
    block = min(numbers, GROUP_BITS // (8 * width))
    blocks = -(-numbers // block)
    return Shuffle(
        levels=levels,
        coins=coins,
        quorum=quorum,
        slack=slack,
        shares=shares_needed(parties=quorum, bits=8 * width * block, distance=MIXED / blocks),
        block=block,
        width=width,
        server_key=keys.server,
        shuffler_key=keys.shuffler,
    )


def _alone(plan: Plan, own: SiloTerms) -> float:
    """Return the epsilon of the silo's own coins, to six digits and rounded up."""
    epsilon = accountant.epsilon(as_seen_alone(plan_events(plan, own)), own.delta)
    if not math.isfinite(epsilon):
        raise PlanError(
            f"The coins of silo '{own.name}' alone, with {own.batch} records in a round, would protect nobody if the "
            "server worked together with the shuffler. Allow more bits or rounds with more records, or leave it out."
        )
    return epsilon * (1 + 1e-6)
