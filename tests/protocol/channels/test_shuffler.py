"""What a plan needs whose answers go through a shuffler, what travels, and its descriptions."""

import math
from typing import Any

import pytest

from ringfence.protocol import ShufflerChannel
from ringfence.protocol.channels.shuffler import LABEL_BYTES, SEALED_EXTRA
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, coins_sigma, edited, phase, plan_of, refusal, shuffled_silo

CHANNEL = ShufflerChannel(**plans.SHUFFLER)
ONE_PASS: Edits = plans.SHUFFLED | {
    "stages.0.sampling.name": "one-pass",
    "stages.0.rounds": 4,
    "silos": [shuffled_silo(0, batch=10), shuffled_silo(1, batch=15)],
}


# What it demands


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"stages.0.sampling.name": "poisson"}, "full and one-pass sampling"),
        ({"stages.0.sampling.name": "fixed"}, "full and one-pass sampling"),
        ({"stages.0.query": plans.CURVATURE["query"]}, "without correlated noise or a survey"),
        ({"stages.0.query": {"name": "feature-means"}}, "without correlated noise or a survey"),
        ({"stages.0.channel.correlation": 0.5}, "not permitted"),
        ({"stages.0.participation": {"probability": 0.5}}, "quorum must be at least 2"),
        ({"stages.0.participation": {"silos": 1}}, "quorum must be at least 2"),
        ({"stages.0.channel.quorum": 3}, "quorum must be at least 2"),
        ({"stages.0.channel.quorum": 1}, "quorum"),
        ({"silos.0.key": None}, "silo 'north' needs a public key"),
        ({"silos.0.weight": 0.5, "silos.1.weight": 0.5}, "must be its share of the batch"),
        ({"silos.0.stages.0.sigma": 0.2}, "sigma of silo 'north' is not the noise of its coins"),
        ({"silos.1.stages.0.sigma": 0.1}, "sigma of silo 'süd' is not the noise of its coins"),
        ({"stages.0.query.clip": 1.6}, "sigma of silo 'north' is not the noise of its coins"),
        ({"stages.0.channel.width": 1}, "do not fit the width"),
        ({"stages.0.channel.shuffler_key": plans.SHUFFLER["server_key"]}, "different keys: a party that holds both"),
    ],
    ids=str,
)
def test_a_plan_that_would_not_keep_its_promise_is_refused(edits: Edits, says: str) -> None:
    assert says in refusal(edited(plans.SHUFFLED | edits))


def test_full_and_one_pass_sampling_go_through_a_shuffler_and_phases_do_not() -> None:
    assert [plan_of(edits).stages[0].sampling.name for edits in (plans.SHUFFLED, ONE_PASS)] == ["full", "one-pass"]
    phased = {
        "stages": [phase(0, 5) | {key: plans.SHUFFLED["stages"][0][key] for key in ("channel", "participation")}],
        "silos": [shuffled_silo(0, batch=20), shuffled_silo(1, batch=30)],
        "training.algorithm": plans.LOCALIZED["training.algorithm"] | {"phases": [{"rounds": 5, "penalty": 0.1}]},
    }
    assert "full and one-pass sampling" in refusal(edited(phased))


def test_a_survey_with_the_silos_own_noise_may_stand_beside_a_stage_through_the_shuffler() -> None:
    assert [stage.channel.name for stage in plan_of(plans.SURVEYED_AND_SHUFFLED).stages] == ["own-noise", "shuffler"]
    assert "without correlated noise or a survey" in refusal(
        edited(plans.SURVEYED_AND_SHUFFLED | {"stages.0.channel": plans.SHUFFLER})
    )


def test_counts_fill_the_width_of_their_shares_to_the_last_one_and_no_further() -> None:
    """100 records of 6 levels and so many coins: 100 · 655 = 65,500 < 256² and 100 · 656 > it."""
    for coins, fits in ((649, True), (650, False)):
        edits = plans.SHUFFLED | {"stages.0.channel.coins": coins}
        edits |= {f"silos.{i}.stages.0.sigma": coins_sigma((40, 60)[i], coins=coins) for i in range(2)}
        if fits:
            assert plan_of(edits).trust == "shuffler"
        else:
            assert "do not fit the width" in refusal(edited(edits))


@pytest.mark.parametrize("clip", [1e-300, 1e300])
def test_noise_out_of_the_range_that_can_be_computed_with_is_refused(clip: float) -> None:
    edits = plans.SHUFFLED | {"stages.0.query.clip": clip}
    edits |= {f"silos.{i}.stages.0.sigma": coins_sigma((40, 60)[i], clip=clip) for i in range(2)}
    assert "too large or too small to compute with" in refusal(edited(edits))


def test_more_blocks_than_a_message_can_number_are_refused() -> None:
    town = {"type": "categorical", "categories": [str(number) for number in range(9_400)]}
    edits = plans.SHUFFLED | {f"data.columns.town-{number}": town for number in range(7)}  # 65,800 weights
    assert "more blocks of weights than a message can number" in refusal(edited(edits | {"stages.0.channel.block": 1}))
    assert plan_of(edits | {"stages.0.channel.block": 2}).dimension > 2**16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, 0) for field in ("levels", "coins", "shares", "block", "width", "slack")],
        *[(field, 2.5) for field in ("levels", "coins", "shares", "block", "width", "quorum")],
        *[(field, key) for field in ("server_key", "shuffler_key") for key in ("", "5e" * 31, "5E" * 32, 7, None)],
        *(("width", 8), ("shares", 1), ("slack", 1.0), ("levels", 2**20 + 1), ("coins", 2**30 + 1)),
    ],
    ids=str,
)
def test_what_is_said_about_the_shuffler_is_checked_field_by_field(field: str, value: Any) -> None:
    path = f"stages.0.channel.{field}"
    assert f"stages.0.channel.shuffler.{field}" in refusal(edited(plans.SHUFFLED | {path: value}))


@pytest.mark.parametrize("field", [name for name in plans.SHUFFLER if name not in ("name", "colluders")])
def test_nothing_about_the_shuffler_but_its_colluders_has_a_default(field: str) -> None:
    channel = {name: value for name, value in plans.SHUFFLER.items() if name != field}
    assert f"{field}: Field required" in refusal(edited(plans.SHUFFLED | {"stages.0.channel": channel}))


# What travels


def test_a_silo_s_numbers_are_a_count_per_weight_and_how_many_records_they_are_of() -> None:
    plan = plan_of(plans.SHUFFLED)
    assert CHANNEL.numbers(plan, plan.stages[0]) == plan.dimension + 1 == 6


@pytest.mark.parametrize(("numbers", "blocks"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
def test_numbers_travel_in_blocks_each_cut_into_shares_of_one_length(numbers: int, blocks: int) -> None:
    assert CHANNEL.blocks(numbers) == blocks
    assert CHANNEL.messages(numbers) == 100 * blocks
    assert CHANNEL.message_bytes == LABEL_BYTES + 8 * 2
    assert CHANNEL.envelope_bytes(numbers) == 100 * blocks * (18 + SEALED_EXTRA) + SEALED_EXTRA


def test_an_honest_answer_is_no_longer_than_its_envelope() -> None:
    plan = plan_of(plans.SHUFFLED)
    assert CHANNEL.longest_answer(plan, plan.stages[0]) == CHANNEL.envelope_bytes(6)
    assert CHANNEL.least_answers() == 2


def test_a_silo_s_noise_is_that_of_its_coins_in_its_own_mean() -> None:
    """Bin(Kb, 1/2) has variance Kb/4, a count is worth 2L/g, and the mean is over K."""
    for batch, norm in ((40, 1.5), (1, 0.1), (10**6, 7.0)):
        variance = (2 * norm / 6) ** 2 * batch * 25 / 4 / batch**2
        assert CHANNEL.sigma(norm, batch) == pytest.approx(math.sqrt(variance), rel=1e-12)


# Descriptions


def test_the_reliance_on_the_shuffler_and_on_others_noise_is_said() -> None:
    plan = plan_of(plans.SHUFFLED)
    said = " ".join(CHANNEL.reliance_words())
    assert "shuffler does not collude with the server" in said
    assert "At least 2 silos" in said
    audience = " ".join(CHANNEL.audience(plan, plan.silos[0]))
    assert "Other silos in the plan: süd." in audience
    assert "shuffler that does not collude with the server, and 2 silos" in audience
    assert "25 coins tossed for each person and number" in CHANNEL.noise_words(0.1, "person")
    assert CHANNEL.noise_level(0.1) is None, "no single answer is seen"


def test_silos_that_differ_and_take_turns_are_not_covered_by_a_loss_bound() -> None:
    three: Edits = {
        "stages": edited(plans.SHUFFLED)["stages"],
        "silos": [shuffled_silo(0, weight=0.25), *(shuffled_silo(1, weight=0.375, name=name) for name in ("b", "c"))],
    }
    for silos, uncovered in ((2, True), (3, False), (None, False)):
        plan = plan_of(three, {"stages.0.participation.silos": silos})
        assert bool(plan.stages[0].channel.uncovered(plan, plan.stages[0], 0)) == uncovered
