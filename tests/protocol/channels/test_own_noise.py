"""A silo's own noise: what a plan needs to have it added exactly, when it may cancel, and its descriptions."""

import pytest

from ringfence.protocol import OwnNoise
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, edited, plan_of, refusal

PLAIN, WITH_CORRELATION = OwnNoise(), OwnNoise(correlation=0.5)


@pytest.mark.parametrize(
    "edits", [{}, plans.FULL, plans.POISSON, plans.LOCALIZED], ids=["fixed", "full", "poisson", "phased"]
)
def test_correlated_noise_needs_records_that_take_part_in_one_round_only(edits: Edits) -> None:
    edits = edits | {"stages.0.channel.correlation": 0.5}
    assert "correlated noise needs one-pass sampling" in refusal(edited(edits))


def test_correlated_noise_goes_with_one_pass_and_where_there_is_but_one_round() -> None:
    assert plan_of(plans.CORRELATED).stages[0].channel == WITH_CORRELATION
    assert plan_of(plans.SURVEY, {"stages.0.channel.correlation": 0.5}).stages[0].channel == WITH_CORRELATION


def test_an_answer_takes_eight_bytes_a_number() -> None:
    for edits, numbers in (({}, 5), (plans.SURVEY, 1), (plans.MEANS_ONLY, 22)):
        plan = plan_of(edits)
        assert plan.stages[0].channel.longest_answer(plan, plan.stages[0]) == 8 * numbers


def test_one_answer_is_enough_and_no_key_is_pinned() -> None:
    assert PLAIN.least_answers() == 1
    assert PLAIN.keys({"north": "a0" * 32}) is None
    assert not PLAIN.is_collected


def test_noise_has_a_level_unless_rounds_cancel_in_part() -> None:
    assert PLAIN.noise_level(0.7) == 0.7
    assert WITH_CORRELATION.noise_level(0.7) is None


def test_only_correlated_noise_needs_further_words_and_has_no_loss_bound() -> None:
    for edits in (plans.ONE_PASS, plans.CORRELATED):
        plan = plan_of(edits)
        channel = plan.stages[0].channel
        correlated = edits is plans.CORRELATED
        assert bool(channel.further_words()) == correlated
        assert channel.uncovered(plan, plan.stages[0], 0) == ("correlated noise" if correlated else "")
    assert "correlation 0.5" in " ".join(WITH_CORRELATION.further_words())


@pytest.mark.parametrize("kind", ["plain", "surveyed", "localized", "correlated"])
def test_an_operator_reads_that_everybody_sees_the_answers_and_that_they_carry_noise(kind: str) -> None:
    plan = plan_of(plans.KINDS[kind])
    audience = " ".join(plan.leading_channel.audience(plan, plan.silos[0]))
    assert "assume that everyone sees them" in audience
    assert "Other silos in the plan: süd. The guarantee holds even if all of them collude with the server." in audience
    assert "adds its own noise before anything leaves it" in " ".join(plan.leading_channel.reliance_words())
    assert plan.leading_channel.noise_words(0.123456, "record") == "each number gets noise of standard deviation 0.1235"
