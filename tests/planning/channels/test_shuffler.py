"""Plans that trust a shuffler: every promise kept, no more noise than needed, and refusals in words."""

import math
from typing import Any

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.channels.shuffler import MIXED
from ringfence.accounting.charges import cost, plan_events
from ringfence.accounting.shuffled_sums import mixing_distance
from ringfence.errors import AccountingError, PlanError
from ringfence.planning.channels import PLANNERS, shuffler
from ringfence.planning.propose import make_plan, propose, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Participation, Plan, PublicKeys
from tests.shuffler.shuffled_federation import make_shuffled_plan, numbers_of, schema_of, shuffle_of
from tests.support import clip_of

NAMES = ("big", "mid", "small")
KEYS = PublicKeys(
    server="5e" * 32, shuffler="5f" * 32, silos={name: f"{i:02x}" * 32 for i, name in enumerate(NAMES, 2)}
)
SIZES = dict(zip(NAMES, (300, 200, 120), strict=True))
SCHEMA = schema_of(3)


def plan_with(sizes: dict[str, int] | None = None, **said: Any) -> Plan:
    return make_shuffled_plan(SCHEMA, KEYS, sizes or SIZES, **said)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"quorum": 2, "colluders": 0},
        {"colluders": 0},
        {"sampling": "one-pass"},
        {"epsilon": 0.3, "rounds": 1},
        {"epsilon": 4.0, "rounds": 20},
        {"delta": 1e-9},
        {"bits": 4 * 400},
        {"participation": Participation(silos=2), "colluders": 0},
    ],
    ids=str,
)
def test_the_plan_keeps_every_silo_s_promise_to_each_observer(said: dict[str, Any]) -> None:
    plan = plan_with(**said)
    channel, spent = shuffle_of(plan), []
    for terms in plan.silos:
        events = plan_events(plan, terms)
        server, anyone = terms.guarantees
        assert (server.against, anyone.against) == ("server", "anyone")
        assert server.epsilon == said.get("epsilon", 1.0)
        assert cost(events, server) <= server.epsilon
        assert cost(events, anyone) <= anyone.epsilon <= max(server.epsilon, cost(events, anyone) * (1 + 2e-6))
        assert terms.key == KEYS.silos[terms.name]
        spent.append(cost(events, server) / server.epsilon)
    assert min(spent) > 0.8, "coins come in whole numbers per record, but not many more of them than needed"
    assert plan.dimension * (channel.levels + channel.coins) <= said.get("bits", shuffler.BITS * plan.dimension)
    assert (channel.server_key, channel.shuffler_key) == (KEYS.server, KEYS.shuffler)


def test_a_silo_whose_own_coins_are_more_than_are_counted_on_claims_no_less_against_anyone() -> None:
    """A budget could not allow less against anyone than against the server."""
    server, anyone = plan_with(SIZES | {"big": 2000}).silos[0].guarantees
    assert server.epsilon == anyone.epsilon


def test_the_smallest_batch_that_may_leave_decides_how_many_coins_there_are() -> None:
    members = [Member(name, records, 1.0) for name, records in SIZES.items()]
    for quorum, colluders, mixed in ((2, 0, 320), (3, 1, 320), (3, 0, 620)):
        request = PlanRequest(trust="shuffler", keys=KEYS, quorum=quorum, colluders=colluders)
        assert shuffler.mixed_records(request, members) == mixed
    all_needed, two_needed = (plan_with(quorum=quorum, colluders=0) for quorum in (3, 2))
    noise = [shuffle_of(plan).coins / shuffle_of(plan).levels ** 2 for plan in (all_needed, two_needed)]
    assert noise[0] < noise[1]
    assert shuffle_of(all_needed).quorum == 3
    assert shuffle_of(two_needed).quorum == 2


def test_the_strictest_budget_decides_for_all() -> None:
    members = [Member(name, SIZES[name], 4.0, 1e-6) for name in NAMES]
    members[1] = Member("mid", SIZES["mid"], 0.5, 1e-7)
    plan = make_plan(SCHEMA, members, PlanRequest(algorithm="bounded", rounds=3, trust="shuffler", keys=KEYS))
    for terms in plan.silos:
        assert accountant.epsilon(plan_events(plan, terms), 1e-7) <= 0.55


def test_shares_are_as_many_as_hide_whose_counts_are_whose_and_no_more() -> None:
    for sizes, said in ((SIZES, {}), (SIZES, {"colluders": 0}), (dict.fromkeys(NAMES, 20_000), {"epsilon": 4.0})):
        plan = plan_with(sizes, **said)
        channel = shuffle_of(plan)
        bits, blocks = 8 * channel.width * channel.block, channel.blocks(numbers_of(plan))

        def distance(
            shares: int, parties: int = channel.quorum - channel.colluders, bits: int = bits, blocks: int = blocks
        ) -> float:
            return blocks * mixing_distance(parties=parties, shares=shares, bits=bits)

        assert distance(channel.shares) <= MIXED < distance(channel.shares - 1)
        most = sum(sizes.values()) * (channel.levels + channel.coins)
        assert 256 ** (channel.width - 1) <= most < 256**channel.width
        assert bits <= shuffler.GROUP_BITS


def test_many_weights_travel_in_several_blocks() -> None:
    plan = make_shuffled_plan(schema_of(150), KEYS, dict.fromkeys(NAMES, 2000), epsilon=4.0)
    channel = shuffle_of(plan)
    assert channel.blocks(numbers_of(plan)) > 1
    assert channel.blocks(numbers_of(plan)) * channel.block >= numbers_of(plan)
    for terms in plan.silos:
        assert cost(plan_events(plan, terms), terms.guarantee) <= terms.guarantee.epsilon


def test_the_noise_is_close_to_that_of_one_gaussian_on_all_records_and_far_below_that_of_silos_alone() -> None:
    """What a shuffler is for: at equal (ε, δ), the error of the mean falls like that of pooled records."""
    mixed = plan_with(dict.fromkeys(NAMES, 1000), rounds=4, colluders=0)
    members = [Member(name, 1000, 1.0, 1e-6) for name in NAMES]
    alone = make_plan(SCHEMA, members, PlanRequest(rounds=4, survey=False))
    pooled = make_plan(SCHEMA, [Member("pool", 3000, 1.0, 1e-6)], PlanRequest(rounds=4, survey=False))
    channel = shuffle_of(mixed)
    mixed_error = 2 * clip_of(mixed) / channel.levels * math.sqrt((3000 * channel.coins + 3) / 4) / 3000
    pooled_error = pooled.silos[0].stages[0].sigma
    alone_error = math.sqrt(sum((terms.weight * terms.stages[0].sigma) ** 2 for terms in alone.silos))
    assert pooled_error < mixed_error < 1.2 * pooled_error
    peers = shuffle_of(plan_with(dict.fromkeys(NAMES, 1000), rounds=4))
    needed = math.sqrt(peers.coins) / peers.levels / (math.sqrt(channel.coins) / channel.levels)
    assert needed == pytest.approx(math.sqrt(3 / 2), rel=0.1), "two of three silos make the noise then"
    assert alone_error > 1.7 * pooled_error


@pytest.mark.parametrize(
    "sizes", [dict.fromkeys(NAMES, 60), SIZES, dict.fromkeys(NAMES, 3000)], ids=["small", "uneven", "large"]
)
def test_the_planner_counts_on_no_less_noise_than_the_coins_bring(sizes: dict[str, int]) -> None:
    """A bound covers the noise that there will be: the choice is made anew until it does."""
    members = [Member(name, records, 2.0, 1e-6) for name, records in sizes.items()]
    request = PlanRequest(algorithm="bounded", most_rounds=20, trust="shuffler", keys=KEYS)
    proposal = propose(SCHEMA, members, request)
    assert proposal.plan.trust == "shuffler"
    assert proposal.choice is not None
    assert proposal.plan.steps == proposal.plan.rounds <= 20, "there is no survey"


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"sampling": "poisson"}, "full and one-pass sampling"),
        ({"sampling": "fixed"}, "full and one-pass sampling"),
        ({"sampling": "phased"}, "full and one-pass sampling"),
        ({"survey": True}, "without a curvature survey"),
        ({"correlation": 0.5, "sampling": "one-pass"}, "correlated noise"),
        ({"quorum": 1}, "between 2 and the 3 silos that a round asks, but is 1"),
        ({"quorum": 4}, "between 2 and the 3 silos"),
        ({"quorum": 2}, r"Of 2 silos in a batch, 1 may collude.*Let a batch hold 3 silos or more, or do not use"),
        ({"sizes": {"big": 300, "mid": 200}}, "a shuffler would gain nothing"),
        ({"colluders": 2}, "Let a batch hold 4 silos or more"),
        ({"colluders": -1}, "-1 may collude"),
        ({"quorum": 3, "participation": Participation(silos=2)}, "between 2 and the 2 silos"),
        ({"quorum": 3, "available": 2}, "between 2 and the 2 silos"),
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
        ({"trust": "shuffler"}, "must name everyone's public keys"),
        ({"trust": "server", "keys": KEYS}, "one of nobody, shuffler, not 'server'"),
        ({"keys": KEYS}, "for plans that trust a shuffler"),
        ({"quorum": 2}, "for plans that trust a shuffler"),
        ({"colluders": 1}, "for plans that trust a shuffler"),
        ({"bits": 500}, "for plans that trust a shuffler"),
        ({"trust": "shuffler", "keys": KEYS, "weights": "equal"}, "leave the weights out"),
        ({"trust": "shuffler", "keys": KEYS, "weights": "noise"}, "leave the weights out"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value),
)
def test_requests_that_contradict_themselves_are_refused(said: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        propose_for(PlanRequest(epsilon=1.0, rounds=3, **said), SCHEMA, SIZES)


def test_a_request_becomes_a_plan_with_a_shuffler() -> None:
    trusted: dict[str, Any] = {"trust": "shuffler", "keys": KEYS, "quorum": 2, "colluders": 0, "bits": 600}
    request = PlanRequest(epsilon=1.0, algorithm="bounded", rounds=3, available=3, held_out=0.0, **trusted)
    plan = propose_for(request, SCHEMA, SIZES).plan
    channel = shuffle_of(plan)
    assert (channel.quorum, channel.colluders) == (2, 0)
    assert plan.dimension * (channel.levels + channel.coins) <= 600
    assert plan.keys == KEYS


def test_what_is_not_said_is_decided_by_the_channel() -> None:
    request = PlanRequest(epsilon=1.0, trust="shuffler", keys=KEYS)
    decided = PLANNERS[request.trust].restricted(request, request.members(SIZES))
    assert (decided.sampling, decided.weights, decided.quorum, decided.colluders) == ("full", "records", 3, 1)
    assert PLANNERS[request.trust].surveys_curvature(decided) is False


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"colluders": 0, "quorum": 2},
        {"epsilon": 3.0, "delta": 1e-9},
        {"rounds": 20},
        {"available": 2, "colluders": 0},
        {"weights": "records", "held_out": 0.0},
    ],
    ids=str,
)
def test_preconditioned_descent_goes_through_a_shuffler_after_a_survey_with_each_silo_s_own_noise(
    said: dict[str, Any],
) -> None:
    request = PlanRequest(**{"epsilon": 1.0, "trust": "shuffler", "keys": KEYS, "curves": 0, **said})
    plan = propose_for(request, SCHEMA, dict.fromkeys(NAMES, 2000)).plan
    survey, training, *_ = plan.stages
    assert (survey.query.name, survey.channel.trust) == ("feature-moments", "nobody")
    assert (training.query.name, training.channel.trust) == ("preconditioned-gradient", "shuffler")
    for terms in plan.silos:
        events = plan_events(plan, terms)
        server, anyone = terms.guarantees
        assert 0.9 * server.epsilon < cost(events, server) <= server.epsilon
        assert cost(events, anyone) <= anyone.epsilon


def test_a_strict_silo_s_survey_has_its_own_noise_and_its_promise_is_kept() -> None:
    members = [Member(name, 4000, 2.0, 1e-6) for name in NAMES]
    members[1] = Member("mid", 4000, 0.5, 1e-7)
    plan = make_plan(SCHEMA, members, PlanRequest(trust="shuffler", keys=KEYS))
    noise = [terms.stages[0].sigma for terms in plan.silos]
    assert noise[0] == noise[2] < noise[1] / 2
    for terms in plan.silos:
        assert cost(plan_events(plan, terms), terms.guarantee) <= terms.guarantee.epsilon
