"""Plans that trust a shuffler: every promise kept, no more noise than needed, and refusals in words."""

import math
from typing import Any

import pytest

from ringfence.errors import AccountingError, PlanError
from ringfence.planning import accountant, mixing
from ringfence.planning.charges import MIXED, plan_events
from ringfence.planning.events import as_seen_alone
from ringfence.planning.mixing import Mixing
from ringfence.planning.prescribe import Member, make_plan, propose
from ringfence.planning.shuffling import mixing_distance
from ringfence.planning.wishes import Wishes, plan_for
from ringfence.protocol.plan import Participation, Plan
from ringfence.protocol.shuffle import Keys
from tests.shuffle.mixed import make_mixed, schema_of, shuffle_of

NAMES = ("big", "mid", "small")
KEYS = Keys(server="5e" * 32, shuffler="5f" * 32, silos={name: f"{i:02x}" * 32 for i, name in enumerate(NAMES)})
SIZES = dict(zip(NAMES, (300, 200, 120), strict=True))
SCHEMA = schema_of(3)


def plan_with(sizes: dict[str, int] | None = None, **said: Any) -> Plan:
    return make_mixed(SCHEMA, KEYS, sizes or SIZES, **said)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"quorum": 2},
        {"sampling": "one-pass"},
        {"epsilon": 0.3, "rounds": 1},
        {"epsilon": 4.0, "rounds": 20},
        {"delta": 1e-9},
        {"bits": 4 * 400},
        {"participation": Participation(silos=2)},
    ],
    ids=str,
)
def test_the_plan_keeps_every_silo_s_promise_in_both_views(said: dict[str, Any]) -> None:
    plan = plan_with(**said)
    shuffle = shuffle_of(plan)
    least = min(accountant.epsilon(plan_events(plan, terms), terms.delta) / terms.epsilon for terms in plan.silos)
    for terms in plan.silos:
        events = plan_events(plan, terms)
        assert accountant.epsilon(events, terms.delta) <= terms.epsilon
        alone = accountant.epsilon(as_seen_alone(events), terms.delta)
        assert terms.alone_epsilon is not None
        assert alone <= terms.alone_epsilon <= alone * (1 + 2e-6)
        assert terms.key == KEYS.silos[terms.name]
    assert least > 0.8, "coins come in whole numbers per record, but not many more of them than needed"
    assert plan.dimension * (shuffle.levels + shuffle.coins) <= said.get("bits", mixing.BITS * plan.dimension)
    assert (shuffle.server_key, shuffle.shuffler_key) == (KEYS.server, KEYS.shuffler)


def test_the_smallest_batch_that_may_leave_decides_how_many_coins_there_are() -> None:
    assert mixing.mixed_records([300, 120, 200], 2) == 320
    all_needed, two_needed = plan_with(), plan_with(quorum=2)
    noise = [shuffle_of(plan).coins / shuffle_of(plan).levels ** 2 for plan in (all_needed, two_needed)]
    assert noise[0] < noise[1]
    assert shuffle_of(all_needed).quorum == 3
    assert shuffle_of(two_needed).quorum == 2


def test_the_strictest_budget_decides_for_all() -> None:
    said = {"rounds": 3, "shuffler": Mixing(KEYS)}
    members = [Member(name, SIZES[name], 4.0, 1e-6) for name in NAMES]
    members[1] = Member("mid", SIZES["mid"], 0.5, 1e-7)
    plan = make_plan(SCHEMA, members, **said)
    for terms in plan.silos:
        assert accountant.epsilon(plan_events(plan, terms), 1e-7) <= 0.55


def test_shares_are_as_many_as_hide_whose_counts_are_whose_and_no_more() -> None:
    for sizes, said in ((SIZES, {}), (SIZES, {"quorum": 2}), (dict.fromkeys(NAMES, 20_000), {"epsilon": 4.0})):
        plan = plan_with(sizes, **said)
        shuffle = shuffle_of(plan)
        bits, blocks = 8 * shuffle.width * shuffle.block, shuffle.blocks(plan.numbers)

        def distance(shares: int, parties: int = shuffle.quorum, bits: int = bits, blocks: int = blocks) -> float:
            return blocks * mixing_distance(parties=parties, shares=shares, bits=bits)

        assert distance(shuffle.shares) <= MIXED < distance(shuffle.shares - 1)
        most = sum(sizes.values()) * (shuffle.levels + shuffle.coins)
        assert 256 ** (shuffle.width - 1) <= most < 256**shuffle.width
        assert bits <= mixing.GROUP_BITS


def test_many_weights_travel_in_several_blocks() -> None:
    wide = schema_of(150)
    plan = make_mixed(wide, KEYS, dict.fromkeys(NAMES, 2000), epsilon=4.0)
    shuffle = shuffle_of(plan)
    assert shuffle.blocks(plan.numbers) > 1
    assert shuffle.blocks(plan.numbers) * shuffle.block >= plan.numbers
    for terms in plan.silos:
        assert accountant.epsilon(plan_events(plan, terms), terms.delta) <= terms.epsilon


def test_the_noise_is_close_to_that_of_one_gaussian_on_all_records_and_far_below_that_of_silos_alone() -> None:
    """What a shuffler is for: at equal (ε, δ), the error of the mean falls like that of pooled records."""
    sizes = dict.fromkeys(NAMES, 1000)
    mixed = plan_with(sizes, rounds=4)
    members = [Member(name, 1000, 1.0, 1e-6) for name in NAMES]
    alone = make_plan(SCHEMA, members, rounds=4, survey=False)
    pooled = make_plan(SCHEMA, [Member("pool", 3000, 1.0, 1e-6)], rounds=4, survey=False)
    shuffle = shuffle_of(mixed)
    mixed_error = 2 * mixed.clip / shuffle.levels * math.sqrt((3000 * shuffle.coins + 3) / 4) / 3000
    pooled_error = pooled.silos[0].sigma
    alone_error = math.sqrt(sum((terms.weight * terms.sigma) ** 2 for terms in alone.silos))
    assert pooled_error < mixed_error < 1.2 * pooled_error
    assert alone_error > 1.7 * pooled_error


def test_the_planner_counts_on_no_less_noise_than_the_coins_bring() -> None:
    """A certificate covers the noise that there will be: the choice is made anew until it does."""
    for sizes in (dict.fromkeys(NAMES, 60), SIZES, dict.fromkeys(NAMES, 3000)):
        members = [Member(name, records, 2.0, 1e-6) for name, records in sizes.items()]
        proposal = propose(SCHEMA, members, most_rounds=20, shuffler=Mixing(KEYS))
        assert proposal.plan.trust == "shuffler"
        assert proposal.choice is not None
        assert proposal.plan.rounds <= 20
        assert proposal.plan.survey is None


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"sampling": "poisson"}, "full and one-pass sampling"),
        ({"sampling": "fixed"}, "full and one-pass sampling"),
        ({"survey": True}, "without a survey"),
        ({"correlation": 0.5, "sampling": "one-pass"}, "correlated noise"),
        ({"quorum": 1}, "between 2 and the 3 silos that a round asks, but is 1"),
        ({"quorum": 4}, "between 2 and the 3 silos"),
        ({"quorum": 3, "participation": Participation(silos=2)}, "between 2 and the 2 silos"),
        ({"participation": Participation(probability=0.5)}, "give their number, not a probability"),
        ({"sizes": {"big": 300}}, "between 2 and the 1 silos"),
        ({"sizes": SIZES | {"new": 50}}, "keys of new are missing"),
        ({"sizes": SIZES | {"small": 1}, "bits": 4 * 40}, "silo 'small' alone, with 1 records"),
    ],
    ids=str,
)
def test_what_cannot_go_through_a_shuffler_is_refused_in_words(said: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan_with(**said)


def test_too_few_bits_are_refused_with_the_number_that_would_do() -> None:
    with pytest.raises((PlanError, AccountingError), match="bits per vector are too few"):
        plan_with(bits=8, epsilon=0.05)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"trust": "shuffler"}, "names everybody's public keys"),
        ({"trust": "server", "keys": KEYS}, "one of nobody, shuffler, not 'server'"),
        ({"keys": KEYS}, "for plans that trust a shuffler"),
        ({"quorum": 2}, "for plans that trust a shuffler"),
        ({"bits": 500}, "for plans that trust a shuffler"),
        ({"trust": "shuffler", "keys": KEYS, "weights": "equal"}, "name no weights"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value),
)
def test_wishes_that_contradict_each_other_are_refused(said: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan_for(Wishes(epsilon=1.0, rounds=3, **said), SCHEMA, SIZES)


def test_wishes_become_a_plan_with_a_shuffler() -> None:
    wishes = Wishes(epsilon=1.0, delta=1e-6, rounds=3, trust="shuffler", keys=KEYS, quorum=2, bits=600, available=3)
    plan = plan_for(wishes, SCHEMA, SIZES)
    shuffle = shuffle_of(plan)
    assert shuffle.quorum == 2
    assert plan.dimension * (shuffle.levels + shuffle.coins) <= 600
