"""A plan is public facts and stages: where its rounds stand, whom it protects against, and what stages may not do."""

import math

import pytest

from ringfence.protocol import OwnNoise, Participation, PublicKeys, ShufflerChannel
from ringfence.protocol.plan.plan import EVERYBODY
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, edited, parse, phase, plan_of, refusal, shuffled_silo

# Rounds


@pytest.mark.parametrize(
    ("edits", "rounds", "steps", "first"),
    [
        ({}, 20, 20, (0,)),
        (plans.SURVEY, 21, 20, (0, 1)),
        (plans.MEANS_ONLY, 1, 0, (0,)),
        (plans.LOCALIZED, 5, 5, (0, 3)),
    ],
    ids=["plain", "surveyed", "means only", "localized"],
)
def test_rounds_are_counted_through_all_stages_and_steps_through_those_that_train(
    edits: Edits, rounds: int, steps: int, first: tuple[int, ...]
) -> None:
    plan = plan_of(edits)
    assert (plan.rounds, plan.steps, plan.first_rounds) == (rounds, steps, first)
    assert all(stage.query.name == "gradient" for stage in plan.training_stages)


def test_every_round_has_its_place_and_there_is_none_before_the_first_or_after_the_last() -> None:
    plan = plan_of(plans.LOCALIZED)
    places = [plan.place(round) for round in range(plan.rounds)]
    assert [(place.number, place.round) for place in places] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert all(place.stage is plan.stages[place.number] for place in places)
    for round in (-1, 5, 10**9):
        with pytest.raises(IndexError, match=f"no round {round}"):
            plan.place(round)


def test_a_stage_that_says_nothing_of_channel_and_participation_has_noise_of_its_own_and_asks_everybody() -> None:
    document = edited(plans.SURVEY)
    del document["stages"][0]["channel"], document["stages"][0]["participation"]
    stage = parse(document).stages[0]
    assert (stage.channel, stage.participation) == (OwnNoise(correlation=0.0), EVERYBODY)
    assert Participation() == EVERYBODY


# Public facts


def test_a_silo_finds_its_own_terms_and_a_stranger_none() -> None:
    plan = parse(plans.DOCUMENT)
    for terms in plan.silos:
        assert plan.terms(terms.name) is terms
    assert plan.terms("east") is None


def test_the_other_silos_are_named_up_to_ten_of_them() -> None:
    assert parse(plans.DOCUMENT).others("north") == "süd"
    alone = parse(edited({"silos": [plans.DOCUMENT["silos"][0] | {"weight": 1.0}]}))
    assert alone.others("north") == "none"
    silos = [plans.DOCUMENT["silos"][0] | {"name": f"s{i}", "weight": 1 / 13} for i in range(13)]
    assert parse(edited({"silos": silos})).others("s3") == "s0, s1, s2, s4, s5, s6, s7, s8, s9, s10 and 2 more"


def test_the_dimension_counts_every_feature_for_every_output() -> None:
    assert parse(plans.DOCUMENT).dimension == 5  # age, three towns, intercept
    three = {"type": "categorical", "categories": ["a", "b", "c"]}
    softmax = {"data.columns.cost": three, "training.loss": {"name": "softmax", "classes": 3}}
    assert plan_of(softmax).dimension == 15


def test_the_constants_are_those_of_the_loss_plus_the_ridge() -> None:
    plan = plan_of({"training.loss": {"name": "squared"}})
    longest = math.hypot(2.0, 1.0)
    reach = 4.0 * math.sqrt(5)
    assert plan.constants.lipschitz == pytest.approx(longest * (longest * reach + 1.0))
    assert plan.constants.smoothness == pytest.approx(5.0 + 0.01)
    assert plan.constants.strong_convexity == pytest.approx(0.01)


# Whom guarantees hold against


def test_a_plan_whose_silos_make_their_own_noise_protects_against_anyone_and_trusts_nobody() -> None:
    for edits in ({}, plans.SURVEY, plans.LOCALIZED):
        plan = plan_of(edits)
        assert (plan.observers, plan.trust, plan.keys) == (("anyone",), "nobody", None)
        assert plan.leading_channel in [stage.channel for stage in plan.stages]


def test_one_stage_through_a_shuffler_makes_the_plan_one_that_trusts_it_and_is_stated_against_both() -> None:
    for edits in (plans.SHUFFLED, plans.SURVEYED_AND_SHUFFLED):
        plan = plan_of(edits)
        assert (plan.observers, plan.trust) == (("server", "anyone"), "shuffler")
        assert isinstance(plan.leading_channel, ShufflerChannel)
        silos = {"north": "a0" * 32, "süd": "a1" * 32}
        assert plan.keys == PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos=silos)
        for terms in plan.silos:
            assert terms.guarantee is terms.guarantees[0] is terms.against("server")
            assert terms.against("anyone") is terms.guarantees[1]


@pytest.mark.parametrize("quorums", [(2, 3), (3, 2)], ids=str)
def test_of_two_stages_through_a_shuffler_the_one_that_counts_on_more_silos_speaks_for_the_plan(
    quorums: tuple[int, int],
) -> None:
    silos = [shuffled_silo(0, weight=0.25), *(shuffled_silo(1, weight=0.375, name=name) for name in ("süd", "west"))]
    everybody = plans.SHUFFLED["stages"][0] | {"participation": {"silos": None, "probability": None}}
    plan = plan_of(
        {
            "stages": [everybody | {"channel": plans.SHUFFLER | {"quorum": quorum}} for quorum in quorums],
            "silos": [silo | {"stages": silo["stages"] * 2} for silo in silos],
        }
    )
    assert plan.leading_channel.least_answers() == 3
    assert "At least 3 silos" in " ".join(plan.leading_channel.reliance_words())


# One division of the records


def staged(*stages: Edits, batches: tuple[int, ...]) -> Edits:
    """Return a plan of these stages, with batches of 40 and of 60 records in proportion."""
    return {
        "stages": list(stages),
        "silos.0.stages": [{"batch": batch, "sigma": 1.0} for batch in batches],
        "silos.1.stages": [{"batch": batch * 3 // 2, "sigma": 1.0} for batch in batches],
    }


PASS: Edits = plans.GRADIENT | {"sampling": {"name": "one-pass"}, "rounds": 4}
ALL: Edits = plans.GRADIENT | {"sampling": {"name": "full"}}


@pytest.mark.parametrize(
    "edits",
    [
        staged(PASS, PASS, batches=(10, 10)),
        staged(PASS, phase(0, 2), batches=(10, 20)),
        staged(phase(0, 2), phase(1, 2), PASS, batches=(20, 10, 2)),
        staged(PASS, ALL, PASS, batches=(2, 40, 2)),
    ],
    ids=["two passes", "a pass and a phase", "phases and a pass", "a pass, all, a pass"],
)
def test_a_plan_that_divides_its_records_twice_is_refused(edits: Edits) -> None:
    """Parts of two divisions overlap, and would be counted as disjoint."""
    assert "a plan divides its records only once" in refusal(edited(edits))


@pytest.mark.parametrize(
    "edits",
    [
        staged(PASS, batches=(10,)),
        staged(PASS, ALL, ALL, batches=(10, 40, 40)),
        staged(plans.CURVATURE, PASS, plans.MEANS, batches=(40, 10, 40)),
        staged(phase(0, 2), phase(1, 2), batches=(20, 10)),
        staged(phase(1, 2), phase(0, 2), phase(1, 3), batches=(10, 20, 10)),
    ],
    ids=["a pass", "a pass and all", "a pass and surveys", "phases", "phases in any order, also again"],
)
def test_a_plan_that_divides_its_records_once_may_ask_about_all_of_them_too(edits: Edits) -> None:
    assert len(plan_of(edits).stages) == len(edits["stages"])


# Noise


def test_noise_too_small_to_be_added_exactly_is_refused_in_every_stage() -> None:
    # The curvature is at most X² = 2² + 1², a moment at most 1, a mean gradient at most the clip; by chance all 40
    # records may take part in a batch of 10; and with correlated noise a sum over rounds is added to.
    for edits, stage, largest in (
        ({}, 0, 1.5),
        (plans.FULL, 0, 1.5),
        ({"stages.0.sampling.name": "poisson"}, 0, 1.5 * 40 / 10),
        (plans.ONE_PASS, 0, 1.5),
        (plans.CORRELATED, 0, 1.5 * (1 + 4**0.5 / 0.5)),
        (plans.LOCALIZED, 1, 1.5),
        (plans.SURVEY, 0, 5.0),
        (plans.SURVEY, 1, 1.5),
        (plans.MEANS_ONLY, 0, 1.0),
    ):
        path, limit = f"silos.0.stages.{stage}.sigma", largest * 2.0**-20
        assert "noise of silo 'north' is less than a millionth" in refusal(edited(edits | {path: limit * 0.999}))
        assert plan_of(edits | {path: limit * 1.001}).silos[0].stages[stage].sigma == limit * 1.001
        assert "noise of silo 'süd'" in refusal(edited(edits | {f"silos.1.stages.{stage}.sigma": 1e-9}))


def test_noise_beyond_the_range_of_exact_arithmetic_is_refused() -> None:
    assert "too large or too small" in refusal(edited({"silos.0.stages.0.sigma": 1e300}))
    tiny = {"stages.0.query.clip": 1e-300, "silos.0.stages.0.sigma": 1e-290, "silos.1.stages.0.sigma": 1e-290}
    assert "too large or too small" in refusal(edited(tiny))
