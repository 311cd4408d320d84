"""What a shuffled guarantee is worth against a server with other silos at its side, who know their coins and shares."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.channels.shuffler import MIXED
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import BinomialRelease
from ringfence.accounting.shuffled_sums import mixing_distance
from ringfence.errors import AccountingError
from ringfence.planning.channels.coins import shares_needed
from ringfence.planning.propose import propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Plan, PublicKeys, SiloTerms
from tests.shuffler.shuffled_federation import schema_of, shuffle_of
from tests.support import restaged

DEPLOYED = {"north": 500, "south": 800, "west": 300}
"""The silos of docs/deploy.md."""


@cache
def planned(sizes: tuple[tuple[str, int], ...], colluders: int | None = None) -> Plan:
    """Plan 30 rounds for the silos of these sizes, with five weights, as docs/shuffle.md does."""
    keys = PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos={name: "a0" * 32 for name, _ in sizes})
    asked = PlanRequest(
        epsilon=1.0, algorithm="bounded", rounds=30, trust="shuffler", keys=keys, colluders=colluders, held_out=0.0
    )
    return propose_for(asked, schema_of(4), dict(sizes)).plan


def equal(silos: int, colluders: int | None = None) -> Plan:
    return planned(tuple((f"silo {number}", 500) for number in range(silos)), colluders)


def deployed(colluders: int | None = None) -> Plan:
    return planned(tuple(DEPLOYED.items()), colluders)


def seen_with(plan: Plan, own: SiloTerms, accomplices: tuple[SiloTerms, ...]) -> float:
    """Return the epsilon against a server whom these silos tell their coins, in the worst batch that it may compose.

    By the accountant, with the coins counted anew: those of the silo and of the smallest others that bring the batch,
    accomplices included, to the quorum.
    """
    ((event, count),) = plan_events(plan, own)
    assert isinstance(event, BinomialRelease)
    channel = shuffle_of(plan)
    honest = sorted(each.stages[0].batch for each in plan.silos if each not in (own, *accomplices))
    left = own.stages[0].batch + sum(honest[: channel.quorum - 1 - len(accomplices)])
    return accountant.epsilon([(replace(event, trials=channel.coins * left), count)], own.guarantee.delta)


def worst(plan: Plan, name: str, colluders: int) -> float:
    own = plan.terms(name)
    assert own is not None
    others = [each for each in plan.silos if each is not own]
    return max(seen_with(plan, own, accomplices) for accomplices in combinations(others, colluders))


def charged(plan: Plan, name: str) -> float:
    own = plan.terms(name)
    assert own is not None
    return accountant.epsilon(plan_events(plan, own), own.guarantee.delta)


@pytest.mark.parametrize(
    ("name", "without", "with_one"), [("north", 0.94, 1.378), ("south", 0.99, 1.218), ("west", 0.89, 1.303)]
)
def test_a_plan_that_counts_on_no_colluders_is_worth_less_against_one_and_the_default_is_not(
    name: str, without: float, with_one: float
) -> None:
    """What plans claimed before they named colluders, and what that was worth against another silo."""
    assert charged(deployed(0), name) == pytest.approx(without, abs=0.006)
    assert worst(deployed(0), name, 1) == pytest.approx(with_one, abs=0.001)
    assert worst(deployed(), name, 1) <= charged(deployed(), name) <= 1.0


@pytest.mark.parametrize(("silos", "with_one"), [(2, 1.458), (3, 1.246), (5, 1.119), (10, 1.050), (25, 1.020)])
def test_of_equal_silos_one_that_tells_its_coins_costs_what_it_brought(silos: int, with_one: float) -> None:
    plan = equal(silos, 0)
    assert charged(plan, "silo 0") == pytest.approx(1.0, abs=0.01)
    assert worst(plan, "silo 0", 1) == pytest.approx(with_one, abs=0.01)
    if silos > 2:
        assert worst(equal(silos), "silo 0", 1) <= charged(equal(silos), "silo 0") <= 1.0


@pytest.mark.parametrize(("silos", "colluders"), [(3, 1), (5, 1), (5, 2), (5, 3)])
def test_what_is_charged_covers_every_choice_of_accomplices(silos: int, colluders: int) -> None:
    plan = planned(tuple((f"silo {number}", 300 + 100 * number) for number in range(silos)), colluders)
    for terms in plan.silos:
        assert worst(plan, terms.name, colluders) <= charged(plan, terms.name) <= terms.guarantee.epsilon
        assert worst(plan, terms.name, min(colluders + 1, silos - 1)) > charged(plan, terms.name)


@pytest.mark.parametrize("silos", [3, 5])
def test_shares_for_all_silos_hide_nothing_among_those_that_keep_theirs_to_themselves(silos: int) -> None:
    """In blocks of 1,008 bits nothing at all is proved of one party less; shorter ones are refused as well."""
    shares = shares_needed(parties=silos, bits=1008, distance=MIXED)
    assert mixing_distance(parties=silos - 1, shares=shares, bits=1008) == 1.0
    plan = equal(silos, 0)
    claimed = restaged(plan, channel=shuffle_of(plan).model_copy(update={"colluders": 1}))
    with pytest.raises(AccountingError, match=f"counts of {silos - 1} silos are not proved"):
        plan_events(claimed, claimed.silos[0])
    assert plan_events(equal(silos), equal(silos).silos[0])
