"""What a silo does in a round follows from the plan, the round, and how often it answered: nothing else."""

from typing import Any

import pytest

from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import phase_of, survey_length, survey_sensitivity, task
from tests.protocol.plan_document import LOCALIZED, ONE_PASS, SURVEY, Edits, edited, parse

LABEL = {"data.columns.cost": {"type": "categorical", "categories": ["a", "b"]}, "loss": {"name": "logistic"}}


def plan_of(*edits: Edits) -> Plan:
    together: Edits = {}
    for more in edits:
        together |= more
    return parse(edited(together))


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson"])
@pytest.mark.parametrize("survey", [{}, SURVEY], ids=["alone", "surveyed"])
def test_rounds_of_full_and_sampled_plans_are_all_alike_after_the_survey(sampling: str, survey: Edits) -> None:
    batches = {"silos.0.batch": 40, "silos.1.batch": 60} if sampling == "full" else {}
    plan = plan_of(survey, {"sampling": sampling, **batches})
    terms = plan.silos[0]
    tasks = {task(plan, terms, round, answered) for round in range(plan.preliminaries, 20) for answered in (0, round)}
    (work,) = tasks
    assert (work.query, work.length, work.batch, work.sigma) == ("gradient", 5, terms.batch, terms.sigma)
    assert work.part is None


@pytest.mark.parametrize("extra", [{}, ONE_PASS, LOCALIZED], ids=["fixed", "one-pass", "phased"])
def test_round_0_of_a_surveyed_plan_is_the_survey_over_all_records(extra: Edits) -> None:
    plan = plan_of(extra, SURVEY, {"silos.0.survey_sigma": 2.5})
    work = task(plan, plan.silos[0], 0, 0)
    assert (work.query, work.length, work.batch, work.sigma, work.part) == ("survey", 1, 40, 2.5, None)


@pytest.mark.parametrize("survey", [{}, SURVEY], ids=["alone", "surveyed"])
def test_one_pass_goes_by_the_silo_s_own_count_of_answers(survey: Edits) -> None:
    plan = plan_of(ONE_PASS, survey)
    for round in range(plan.preliminaries, plan.exchanges):
        for answered in range(4):
            work = task(plan, plan.silos[0], round, answered)
            assert (work.part, work.first, work.batch) == (answered, 10 * answered, 10)


@pytest.mark.parametrize("survey", [{}, SURVEY], ids=["alone", "surveyed"])
def test_phases_go_by_the_round(survey: Edits) -> None:
    plan = plan_of(LOCALIZED, survey)
    parts = [
        (work.part, work.first, work.batch)
        for round in range(plan.preliminaries, plan.exchanges)
        for work in [task(plan, plan.silos[0], round, 99)]
    ]
    assert parts == [(0, 0, 20)] * 3 + [(1, 20, 10)] * 2


def test_there_is_no_phase_after_the_last() -> None:
    spec: Any = plan_of(LOCALIZED).algorithm
    assert [phase_of(spec, round) for round in range(5)] == [0, 0, 0, 1, 1]
    with pytest.raises(IndexError):
        phase_of(spec, 5)


def test_a_survey_of_moments_has_two_numbers_per_feature_and_two_of_a_numeric_target() -> None:
    moments = {"survey.statistic": "moments"}
    assert survey_length(plan_of(SURVEY)) == 1
    assert survey_length(plan_of(SURVEY, moments)) == 2 * (5 + 1)
    assert survey_length(plan_of(SURVEY, moments, LABEL)) == 2 * 5


def test_a_survey_s_sensitivity_falls_with_the_records_and_is_in_the_statistic_s_units() -> None:
    moments = {"survey.statistic": "moments"}
    assert survey_sensitivity(plan_of(SURVEY), 10) == pytest.approx(5.0 / 10)  # X² = 2² + 1²
    assert survey_sensitivity(plan_of(SURVEY, moments), 10) == pytest.approx((4 + 2 + 4 + 1) ** 0.5 / 10)
    assert survey_sensitivity(plan_of(SURVEY, moments, LABEL), 10) == pytest.approx((4 + 2) ** 0.5 / 10)
