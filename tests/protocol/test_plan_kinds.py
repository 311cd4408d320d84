"""Surveys, one pass with correlated noise, stages and phases: what a plan of each kind needs to be one."""

import math
from typing import Any

import pytest

from ringfence.protocol.algorithms import Localized
from tests.protocol.plan_document import (
    ACCELERATED,
    LOCALIZED,
    ONE_PASS,
    PHASED,
    STAGES,
    SURVEY,
    Edits,
    edited,
    parse,
    refusal,
)


@pytest.mark.parametrize(("edits", "before"), [({}, 0), (SURVEY, 1)], ids=["without", "with"])
def test_a_survey_takes_a_round_of_its_own_before_the_others(edits: Edits, before: int) -> None:
    plan = parse(edited(edits))
    assert (plan.rounds, plan.preliminaries, plan.exchanges) == (20, before, 20 + before)


def test_a_plan_without_rounds_needs_a_survey() -> None:
    assert "at least one round, or a survey" in refusal(edited({"rounds": 0}))
    assert parse(edited(SURVEY | {"rounds": 0})).exchanges == 1


@pytest.mark.parametrize("silo", [0, 1])
def test_every_silo_has_noise_for_a_survey_exactly_if_there_is_one(silo: int) -> None:
    name = ["north", "süd"][silo]
    assert f"silo '{name}' must have noise for the survey" in refusal(
        edited(SURVEY | {f"silos.{silo}.survey_sigma": None})
    )
    assert f"silo '{name}' must have noise for the survey" in refusal(edited({f"silos.{silo}.survey_sigma": 1.0}))


def test_a_survey_s_noise_too_small_to_be_added_exactly_is_refused() -> None:
    # Curvature is at most X² = 2² + 1², moments are in units that make them at most 1.
    for statistic, largest in (("curvature", 5.0), ("moments", 1.0)):
        edits = SURVEY | {"survey.statistic": statistic}
        limit = largest * 2.0**-20
        assert "noise of silo 'north'" in refusal(edited(edits | {"silos.0.survey_sigma": limit * 0.999}))
        assert parse(edited(edits | {"silos.0.survey_sigma": limit * 1.001})).survey is not None


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson", "phased"])
def test_correlated_noise_needs_one_pass(sampling: str) -> None:
    batches = {"full": {"silos.0.batch": 40, "silos.1.batch": 60}, "phased": LOCALIZED}
    edits: Edits = {**batches.get(sampling, {}), "sampling": sampling, "correlation": 0.5}
    assert "correlated noise is for one-pass sampling" in refusal(edited(edits))


def test_correlated_noise_must_be_large_enough_for_the_sum_of_all_rounds() -> None:
    """The sum that noise is added to is longer than one mean, by up to the sum of the coefficients."""
    spread = 1 + 4**0.5 / 0.5
    limit = 1.5 * 40 / 10 * spread * 2.0**-20
    edits = ONE_PASS | {"correlation": 0.5}
    assert "noise of silo 'north'" in refusal(edited(edits | {"silos.0.sigma": limit * 0.999}))
    assert parse(edited(edits | {"silos.0.sigma": limit * 1.001})).correlation == 0.5


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
    assert parse(edited(LOCALIZED)).sampling == "phased"


def test_the_first_phase_takes_half_of_the_records() -> None:
    assert "the first phase takes half" in refusal(edited(LOCALIZED | {"silos.0.batch": 19}))
    assert parse(edited(LOCALIZED | {"silos.0.records": 41})).silos[0].batch == 20


def test_every_phase_needs_a_record() -> None:
    phases = [{"rounds": 1, "penalty": 0.1}] * 5
    assert parse(edited(LOCALIZED | {"algorithm.phases": phases})).rounds == 5  # 40 records: 20, 10, 5, 2, 1
    too_many: Edits = {"algorithm.phases": [*phases, phases[0]], "rounds": 6}
    assert "too few records for so many phases" in refusal(edited(LOCALIZED | too_many))


def test_a_later_phase_whose_noise_is_too_small_to_be_added_exactly_is_refused() -> None:
    """One round after ten thousand has a fiftieth of the noise, so it is its noise that must be large enough."""
    phases: Any = [{"rounds": 10_000, "penalty": 0.1}, {"rounds": 1, "penalty": 0.1}]
    edits = LOCALIZED | {"algorithm.phases": phases, "rounds": 10_001}
    limit = 1.5 * 2.0**-20 * 50
    assert "noise of silo 'north'" in refusal(edited(edits | {"silos.0.sigma": limit * 0.999}))
    assert parse(edited(edits | {"silos.0.sigma": limit * 1.001})).rounds == 10_001


def test_a_phase_s_noise_gives_every_phase_the_same_guarantee() -> None:
    """R rounds over m records have the shift 2L√R/(mσ)."""
    spec = parse(edited(LOCALIZED)).algorithm
    assert isinstance(spec, Localized)
    for records in (40, 41, 43, 1000):
        shifts = [
            math.sqrt(phase.rounds) / ((records >> (i + 1)) * spec.noise(records, i))
            for i, phase in enumerate(spec.phases)
        ]
        assert shifts[1] == pytest.approx(shifts[0], rel=2e-6)
        assert shifts[1] <= shifts[0]


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
