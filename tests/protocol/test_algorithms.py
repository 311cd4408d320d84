"""Algorithms are data in the plan: which stages suit them, which points become the model, how they read."""

import math
from typing import Any

import pytest

from ringfence import protocol
from ringfence.protocol import Accelerated, AlgorithmSpec, Phased
from ringfence.protocol.plan.algorithms import tail_begins
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, edited, phase, plan_of, refusal

PHASES = protocol.Localized(
    smoothness=5.0, phases=(protocol.Phase(rounds=3, penalty=0.1), protocol.Phase(rounds=2, penalty=0.8))
)
RESTARTS = protocol.MultiStage(
    smoothness=5.0, stages=(protocol.Restart(rounds=12, upsilon=10.0), protocol.Restart(rounds=8, upsilon=30.0))
)
ALGORITHMS: list[AlgorithmSpec] = [protocol.MinibatchSGD(step=0.1), Accelerated(smoothness=5.0), RESTARTS, PHASES]
every_algorithm = pytest.mark.parametrize("spec", ALGORITHMS, ids=lambda spec: spec.name)


# Stages that suit them


def test_an_average_over_no_round_is_refused() -> None:
    assert "lower `skip`" in refusal(edited({"training.algorithm.skip": 20}))
    assert plan_of({"training.algorithm.skip": 19}).steps == 20
    assert "lower `skip`" in refusal(edited(plans.SURVEY | {"training.algorithm.skip": 20})), (
        "a survey's round does not count"
    )
    assert plan_of(plans.MEANS_ONLY).steps == 0, "where nothing is trained, nothing is averaged"


@pytest.mark.parametrize("rounds", [19, 21])
def test_restarts_fill_the_rounds_exactly(rounds: int) -> None:
    assert "must add up to the plan's rounds" in refusal(edited(plans.RESTARTED | {"stages.0.rounds": rounds}))


def test_restarts_need_strong_convexity() -> None:
    convex = plans.RESTARTED | {"training.algorithm.penalty": 0.0, "training.ridge": 0.0}
    assert "give a ridge or a penalty" in refusal(edited(convex))
    for edits in ({"training.ridge": 0.01}, {"training.algorithm.penalty": 0.1}):
        assert plan_of(convex, edits).algorithm.name == "multi-stage"


@pytest.mark.parametrize(
    "edits",
    [
        {"stages.0.rounds": 4},
        {"stages.1.rounds": 1},
        {"stages": [phase(0, 3)]} | {f"silos.{i}.stages": [{"batch": (20, 30)[i], "sigma": 1.0}] for i in range(2)},
        {"stages.1.sampling": {"name": "full"}, "silos.0.stages.1.batch": 40, "silos.1.stages.1.batch": 60},
        {"stages.1.sampling": {"name": "fixed"}},
        {"stages.1.sampling.phase": 2, "silos.0.stages.1.batch": 5, "silos.1.stages.1.batch": 7},
        {"training.algorithm.phases": [{"rounds": 2, "penalty": 0.1}, {"rounds": 3, "penalty": 0.8}]},
    ],
    ids=["longer", "shorter", "missing", "all records", "sampled", "another phase", "in another order"],
)
def test_the_localized_algorithm_needs_one_stage_for_each_phase_with_its_rounds_and_records(edits: Edits) -> None:
    assert "the localized algorithm needs one stage per phase" in refusal(edited(plans.LOCALIZED | edits))


@every_algorithm
def test_an_algorithm_names_the_stages_that_it_wants(spec: AlgorithmSpec) -> None:
    stages = spec.training_stages("one-pass", 20)
    if spec is PHASES:
        assert stages == [(3, Phased(phase=0)), (2, Phased(phase=1))]
        assert (spec.default_sampling, spec.own_rounds) == ("phased", 5)
    else:
        assert stages == [(20, protocol.OnePass())]
        assert spec.training_stages("full", 7) == [(7, protocol.Full())]
        assert (spec.default_sampling, spec.own_rounds) == ("full", 20 if spec is RESTARTS else None)


# Noise


def test_a_phase_s_noise_gives_every_phase_the_same_guarantee() -> None:
    """R rounds over m records have the shift 2L√R/(mσ)."""
    for records in (40, 41, 43, 1000):
        shifts = [
            math.sqrt(part.rounds) / ((records >> (i + 1)) * PHASES.noise(records, i))
            for i, part in enumerate(PHASES.phases)
        ]
        assert shifts[1] == pytest.approx(shifts[0], rel=2e-6)
        assert shifts[1] <= shifts[0]


def test_all_rounds_of_the_other_algorithms_have_the_same_noise() -> None:
    assert all(spec.noise(1000, 0) == 1.0 for spec in ALGORITHMS)


# Averages


@every_algorithm
def test_another_average_is_another_algorithm_and_only_the_theorem_s_own_is_covered(spec: AlgorithmSpec) -> None:
    assert spec.keeps_theorem_average
    assert spec.averaged("weighted", 40) == spec
    for average in ("last", "tail"):
        assert not spec.averaged(average, 40).keeps_theorem_average


def test_minibatch_sgd_averages_by_leaving_rounds_out() -> None:
    spec = protocol.MinibatchSGD(step=0.1)
    found: dict[Any, int] = {average: spec.averaged(average, 41).skip for average in ("weighted", "last", "tail")}
    assert found == {"weighted": 0, "last": 40, "tail": 30}
    assert [tail_begins(rounds) for rounds in (1, 2, 4, 41)] == [0, 1, 3, 30]


def test_a_survey_betters_all_steps_but_given_ones() -> None:
    assert [spec.takes_survey for spec in ALGORITHMS] == [False, True, True, True]


# What the server runs


def test_upsilon_is_what_the_noise_needs_and_no_less_than_smoothness_demands() -> None:
    """υ ≥ 2β without strong convexity, υ ≥ β with some, in one run; the paper's restarts have υ ≥ 2β."""
    assert [run.upsilon for run in Accelerated(smoothness=5.0).recursions(20, 0.0, 5.0)] == [10.0]
    assert [run.upsilon for run in Accelerated(smoothness=5.0).recursions(20, 1.0, 5.0)] == [6.0]
    assert [run.upsilon for run in Accelerated(smoothness=5.0, upsilon=50.0).recursions(20, 1.0, 5.0)] == [50.0]
    assert [run.upsilon for run in Accelerated(smoothness=5.0).recursions(20, 0.0, 2.0)] == [4.0], "as a survey found"
    assert [run.upsilon for run in RESTARTS.recursions(20, 1.0, 5.0)] == [12.0, 30.0]
    assert [run.upsilon for run in PHASES.recursions(5, 0.0, 5.0)] == [5.1, 5.8]


def test_phases_pull_towards_where_each_began_and_restarts_to_where_all_began() -> None:
    assert [(run.rounds, run.recentres) for run in PHASES.recursions(5, 0.0, 5.0)] == [(3, True), (2, True)]
    assert [(run.rounds, run.recentres) for run in RESTARTS.recursions(20, 1.0, 5.0)] == [(12, False), (8, False)]


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({}, "step 0.1, momentum 0.5"),
        ({"training.algorithm.momentum": 0.0}, "step 0.1"),
        ({"training.algorithm": {"name": "accelerated", "smoothness": 5.0}, "training.ridge": 0.0}, "upsilon 10"),
        (plans.RESTARTED, "stages of 12, 8"),
        (plans.LOCALIZED, "phases of 3, 2"),
    ],
    ids=["momentum", "plain", "accelerated", "restarted", "localized"],
)
def test_an_algorithm_says_in_a_few_words_which_steps_it_takes(edits: Edits, words: str) -> None:
    plan = plan_of(edits)
    assert plan.algorithm.words(plan) == words


def test_an_upsilon_that_a_survey_may_lower_is_described_as_an_upper_bound() -> None:
    spec = {"training.algorithm": {"name": "accelerated", "smoothness": 5.0, "penalty": 0.1}}
    plain, surveyed = plan_of(spec), plan_of(plans.SURVEY, spec)
    assert plain.algorithm.words(plain) == "upsilon 5.11, penalty 0.1"
    assert surveyed.algorithm.words(surveyed) == "upsilon at most 5.11, penalty 0.1"
