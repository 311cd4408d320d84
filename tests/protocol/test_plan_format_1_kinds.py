"""Surveys, correlated noise, restarts, phases and shufflers in format 1: what a plan of each kind needs to be one."""

from typing import Any

import pytest

from ringfence.protocol.channels import OwnNoise, ShufflerChannel
from ringfence.protocol.questions import Curvature, Moments
from tests.protocol.plan_document import Edits, parse, refusal
from tests.protocol.plan_format_1_document import (
    ACCELERATED,
    LOCALIZED,
    ONE_PASS,
    PHASED,
    SHUFFLED,
    STAGES,
    SURVEY,
    edited,
)


@pytest.mark.parametrize(("edits", "before"), [({}, 0), (SURVEY, 1)], ids=["without", "with"])
def test_a_survey_takes_a_round_of_its_own_before_the_others(edits: Edits, before: int) -> None:
    plan = parse(edited(edits))
    assert (plan.steps, plan.first_rounds[-1], plan.rounds) == (20, before, 20 + before)


def test_a_plan_without_rounds_needs_a_survey() -> None:
    assert "at least one round, or a survey" in refusal(edited({"rounds": 0}))
    assert parse(edited(SURVEY | {"rounds": 0})).rounds == 1


@pytest.mark.parametrize("silo", [0, 1])
def test_every_silo_has_noise_for_a_survey_exactly_if_there_is_one(silo: int) -> None:
    name = ["north", "süd"][silo]
    assert f"silo '{name}' must have noise for the survey" in refusal(
        edited(SURVEY | {f"silos.{silo}.survey_sigma": None})
    )
    assert f"silo '{name}' must have noise for the survey" in refusal(edited({f"silos.{silo}.survey_sigma": 1.0}))


def test_a_survey_s_noise_too_small_to_be_added_exactly_is_refused() -> None:
    # Curvature is at most X² = 2² + 1², moments are in units that make them at most 1.
    for statistic, question, largest in (("curvature", Curvature(), 5.0), ("moments", Moments(), 1.0)):
        edits = SURVEY | {"survey.statistic": statistic}
        limit = largest * 2.0**-20
        assert "noise of silo 'north'" in refusal(edited(edits | {"silos.0.survey_sigma": limit * 0.999}))
        assert parse(edited(edits | {"silos.0.survey_sigma": limit * 1.001})).stages[0].question == question


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson", "phased"])
def test_correlated_noise_needs_one_pass(sampling: str) -> None:
    batches = {"full": {"silos.0.batch": 40, "silos.1.batch": 60}, "phased": LOCALIZED}
    edits: Edits = {**batches.get(sampling, {}), "sampling": sampling, "correlation": 0.5}
    assert "correlated noise needs one-pass sampling" in refusal(edited(edits))


def test_correlated_noise_must_be_large_enough_for_the_sum_of_all_rounds() -> None:
    """The sum that noise is added to is longer than one mean, by up to the sum of the coefficients."""
    spread = 1 + 4**0.5 / 0.5
    limit = 1.5 * spread * 2.0**-20
    edits = ONE_PASS | {"correlation": 0.5}
    assert "noise of silo 'north'" in refusal(edited(edits | {"silos.0.sigma": limit * 0.999}))
    plan = parse(edited(edits | {"silos.0.sigma": limit * 1.001}))
    assert plan.stages[0].channel == OwnNoise(correlation=0.5)


@pytest.mark.parametrize("kind", [STAGES, LOCALIZED], ids=["stages", "phases"])
def test_stages_and_phases_fill_the_rounds_exactly(kind: Edits) -> None:
    for rounds in (kind.get("rounds", 20) - 1, kind.get("rounds", 20) + 1):
        assert "must add up to the plan's rounds" in refusal(edited(kind | {"rounds": rounds}))


def test_stages_need_strong_convexity() -> None:
    convex = STAGES | {"algorithm.penalty": 0.0, "ridge": 0.0}
    assert "give a ridge or a penalty" in refusal(edited(convex))
    for edits in ({"ridge": 0.01}, {"algorithm.penalty": 0.1}):
        assert parse(edited(convex | edits)).algorithm.name == "multi-stage"


def test_phases_go_with_phased_sampling_and_with_nothing_else() -> None:
    assert "go together" in refusal(edited(PHASED))
    assert "go together" in refusal(edited(PHASED | ACCELERATED))
    assert "go together" in refusal(edited(LOCALIZED | {"sampling": "fixed"}))
    assert all(stage.sampling.is_phased for stage in parse(edited(LOCALIZED)).stages)


def test_the_first_phase_takes_half_of_the_records() -> None:
    assert "the first phase takes half" in refusal(edited(LOCALIZED | {"silos.0.batch": 19}))
    assert parse(edited(LOCALIZED | {"silos.0.records": 41})).silos[0].stages[0].batch == 20


def test_every_phase_needs_a_record() -> None:
    phases = [{"rounds": 1, "penalty": 0.1}] * 5
    assert parse(edited(LOCALIZED | {"algorithm.phases": phases})).rounds == 5  # 40 records: 20, 10, 5, 2, 1
    too_many: Edits = {"algorithm.phases": [*phases, phases[0]], "rounds": 6}
    assert "silo 'north' has too few records for this many phases" in refusal(edited(LOCALIZED | too_many))
    lonely: Edits = {"silos.1.records": 1, "silos.1.batch": 1}
    assert "silo 'süd' has too few records for this many phases" in refusal(edited(LOCALIZED | lonely))


def test_a_later_phase_whose_noise_is_too_small_to_be_added_exactly_is_refused() -> None:
    """One round after ten thousand has a fiftieth of the noise, so it is its noise that must be large enough."""
    phases: Any = [{"rounds": 10_000, "penalty": 0.1}, {"rounds": 1, "penalty": 0.1}]
    edits = LOCALIZED | {"algorithm.phases": phases, "rounds": 10_001}
    limit = 1.5 * 2.0**-20 * 50
    assert "noise of silo 'north'" in refusal(edited(edits | {"silos.0.sigma": limit * 0.999}))
    assert parse(edited(edits | {"silos.0.sigma": limit * 1.001})).rounds == 10_001


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        (ACCELERATED, "algorithm.smoothness", 0.0),
        (ACCELERATED, "algorithm.pace", -1.0),
        (ACCELERATED, "algorithm.penalty", -1.0),
        (ACCELERATED, "algorithm.average", "best"),
        (STAGES, "algorithm.stages", []),
        (STAGES, "algorithm.stages.0.rounds", 0),
        (STAGES, "algorithm.stages.0.pace", -1.0),
        (LOCALIZED, "algorithm.phases", []),
        (LOCALIZED, "algorithm.phases.0.rounds", 0),
        (LOCALIZED, "algorithm.phases.0.penalty", 0.0),
    ],
    ids=str,
)
def test_an_algorithm_s_values_out_of_range_are_refused(kind: Edits, path: str, value: object) -> None:
    assert "algorithm" in refusal(edited(kind | {path: value}))


# Through a shuffler


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"trust": "nobody"}, "if, and only if, it trusts a shuffler"),
        ({"shuffle": None}, "if, and only if, it trusts a shuffler"),
        ({"trust": "server"}, "trust"),
        (SURVEY, "without correlated noise or a survey"),
        ({"sampling": "poisson"}, "full and one-pass sampling"),
        ({"sampling": "fixed"}, "full and one-pass sampling"),
        ({"participation": {"probability": 0.5}}, "quorum must be at least 2"),
        ({"participation": {"silos": 1}}, "quorum must be at least 2"),
        ({"shuffle.quorum": 3}, "quorum must be at least 2"),
        ({"shuffle.quorum": 1}, "quorum"),
        ({"silos.0.key": None}, "silo 'north' has a key and the epsilon of its noise alone if, and only if"),
        ({"silos.1.alone_epsilon": None}, "silo 'süd' has a key and the epsilon of its noise alone if, and only if"),
        ({"silos.0.weight": 0.5, "silos.1.weight": 0.5}, "must be its share of the batch"),
        ({"silos.0.sigma": 0.2}, "sigma of silo 'north' is not the noise of its coins"),
        ({"silos.1.sigma": 0.1}, "sigma of silo 'süd' is not the noise of its coins"),
        ({"shuffle.width": 1}, "do not fit the width"),
        ({"shuffle.shuffler_key": SHUFFLED["shuffle"]["server_key"]}, "different keys"),
    ],
    ids=str,
)
def test_a_shuffled_plan_that_would_not_keep_its_promise_is_refused(edits: Edits, says: str) -> None:
    assert says in refusal(edited(SHUFFLED | edits))


def test_phases_do_not_go_through_a_shuffler() -> None:
    silos = [
        SHUFFLED[f"silos.{silo}"] | {"batch": batch, "sigma": 0.25 * (25 / batch) ** 0.5}
        for silo, batch in enumerate((20, 30))
    ]
    edits = LOCALIZED | {name: SHUFFLED[name] for name in ("participation.silos", "trust", "shuffle")}
    one_phase = {"algorithm.phases": [{"rounds": 5, "penalty": 0.1}]}
    assert "full and one-pass sampling" in refusal(edited(edits | {"silos": silos} | one_phase))


@pytest.mark.parametrize("edits", [{"silos.0.key": "a0" * 32}, {"silos.1.alone_epsilon": 3.0}], ids=str)
def test_keys_and_the_epsilon_alone_belong_to_plans_that_trust_a_shuffler(edits: Edits) -> None:
    assert "if, and only if, the plan trusts a shuffler" in refusal(edited(edits))


def test_correlated_noise_does_not_go_through_a_shuffler() -> None:
    batches = {f"silos.{silo}.batch": 10 for silo in range(2)}
    edits = SHUFFLED | ONE_PASS | batches | {"correlation": 0.5}
    assert "without correlated noise" in refusal(edited(edits))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, 0) for field in ("levels", "coins", "shares", "block", "width", "slack")],
        *[(field, 2.5) for field in ("levels", "coins", "shares", "block", "width", "quorum")],
        *[(field, key) for field in ("server_key", "shuffler_key") for key in ("", "5e" * 31, "5E" * 32, 7, None)],
        ("width", 8),
        ("shares", 1),
        ("slack", 1.0),
        ("levels", 2**20 + 1),
        ("coins", 2**30 + 1),
    ],
    ids=str,
)
def test_what_is_said_about_the_shuffler_is_checked_field_by_field(field: str, value: Any) -> None:
    assert f"shuffle.{field}" in refusal(edited(SHUFFLED | {f"shuffle.{field}": value}))


def test_such_a_plan_trusts_the_shuffler_and_any_other_nobody() -> None:
    plan = parse(edited(SHUFFLED))
    assert (plan.trust, plan.observers) == ("shuffler", ("server", "anyone"))
    assert isinstance(plan.stages[0].channel, ShufflerChannel)
    assert (parse(edited({})).trust, parse(edited({})).observers) == ("nobody", ("anyone",))
