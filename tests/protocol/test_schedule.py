"""What a silo does in a round follows from the plan, the round, and its answers in the stage: from nothing else."""

import pytest

from ringfence.protocol.plan.plan import task
from ringfence.protocol.plan.sampling import Part
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, plan_of

SURVEYED_ONE_PASS: Edits = plans.SURVEY | {"stages.1.sampling.name": "one-pass", "stages.1.rounds": 4}


@pytest.mark.parametrize(
    "edits",
    [{}, plans.FULL, plans.POISSON, plans.SURVEY, plans.SHUFFLED],
    ids=["fixed", "full", "poisson", "surveyed", "shuffled"],
)
def test_rounds_of_full_and_sampled_stages_are_all_alike(edits: Edits) -> None:
    plan = plan_of(edits)
    terms, first = plan.silos[0], plan.first_rounds[-1]
    (work,) = {task(plan, terms, round, answered) for round in range(first, plan.rounds) for answered in (0, round)}
    assert work.stage is plan.stages[-1]
    assert work.number == len(plan.stages) - 1
    assert (work.length, work.batch, work.sigma) == (5, terms.stages[-1].batch, terms.stages[-1].sigma)
    assert work.part is None


@pytest.mark.parametrize(
    "edits",
    [plans.SURVEY, SURVEYED_ONE_PASS, plans.KINDS["surveyed and shuffled"]],
    ids=["fixed", "one-pass", "shuffled"],
)
def test_a_survey_is_about_all_records_with_its_own_noise(edits: Edits) -> None:
    plan = plan_of(edits, {"silos.0.stages.0.sigma": 2.5})
    work = task(plan, plan.silos[0], 0, 0)
    assert (work.stage.query.name, work.number) == ("curvature", 0)
    assert (work.length, work.batch, work.sigma, work.part) == (1, 40, 2.5, None)


def test_the_answer_s_length_is_the_query_s() -> None:
    plan = plan_of(plans.MEANS_ONLY)
    assert task(plan, plan.silos[0], 0, 0).length == plan.stages[0].query.length(plan) == 22


@pytest.mark.parametrize(
    "edits", [plans.ONE_PASS, plans.CORRELATED, SURVEYED_ONE_PASS], ids=["alone", "correlated", "surveyed"]
)
def test_one_pass_goes_by_the_silo_s_own_count_of_answers(edits: Edits) -> None:
    plan = plan_of(edits)
    for round in range(plan.first_rounds[-1], plan.rounds):
        for answered in range(4):
            work = task(plan, plan.silos[0], round, answered)
            assert (work.part, work.batch) == (Part(answered, 10 * answered), 10)


def test_phases_go_by_the_round_whatever_was_answered() -> None:
    plan = plan_of(plans.LOCALIZED)
    for answered in (0, 1, 99):
        works = [task(plan, plan.silos[0], round, answered) for round in range(plan.rounds)]
        assert [(work.part, work.batch, work.sigma) for work in works] == (
            [(Part(0, 0), 20, 0.7)] * 3 + [(Part(1, 20), 10, 1.2)] * 2
        )
