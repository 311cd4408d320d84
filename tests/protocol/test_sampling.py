"""Sampling rules: which batches each allows, which part a round takes, how often its cost counts, and what it says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.protocol import FixedSize, Full, OnePass, Phased, Poisson, Sampling, sampling_named
from ringfence.protocol.plan.sampling import SAMPLING_NAMES, Part

RULES: list[Sampling] = [sampling_named(name) for name in SAMPLING_NAMES]
every_rule = pytest.mark.parametrize("rule", [*RULES, Phased(phase=3)], ids=str)

counts = st.integers(1, 10_000)


def checked(rule: Sampling, records: int, batch: int, rounds: int = 1) -> str:
    """Return why the rule does not allow these numbers, or nothing if it does."""
    try:
        rule.check("north", records=records, batch=batch, rounds=rounds)
    except ValueError as refused:
        return str(refused)
    return ""


# Names and traits


def test_every_rule_has_its_name_its_traits_and_limits() -> None:
    assert [rule.name for rule in RULES] == list(SAMPLING_NAMES)
    with pytest.raises(KeyError):
        sampling_named("some")
    traits = {
        rule.name: (rule.takes_all, rule.is_secret, rule.is_fresh, rule.is_phased, rule.times(12), rule.most_rounds(40))
        for rule in RULES
    }
    assert traits == {
        "full": (True, False, False, False, 12, None),
        "fixed": (False, True, False, False, 12, None),
        "poisson": (False, True, False, False, 12, None),
        "one-pass": (False, False, True, False, 1, 40),
        "phased": (False, False, True, True, 12, None),
    }
    by_chance = [rule.name for rule in RULES if rule.most(records=40, batch=10) != 10]
    assert by_chance == ["poisson"]
    assert Poisson().most(records=40, batch=10) == 40


# Which batches are allowed


@every_rule
def test_no_rule_allows_a_batch_larger_than_the_silo(rule: Sampling) -> None:
    assert "silo 'north' has 40, fewer than its batch" in checked(rule, 40, 41)


def test_full_sampling_is_over_all_records() -> None:
    assert checked(Full(), 40, 40, 1000) == ""
    assert "batch of silo 'north' differs" in checked(Full(), 40, 39)


@pytest.mark.parametrize("rule", [FixedSize(), Poisson()], ids=str)
def test_secret_draws_may_have_any_batch_in_any_number_of_rounds(rule: Sampling) -> None:
    for batch in (1, 17, 40):
        assert checked(rule, 40, batch, 10**6) == ""


def test_one_pass_needs_a_record_of_its_own_for_every_place_in_every_batch() -> None:
    assert checked(OnePass(), 40, 10, 4) == ""
    assert "one pass of 4 rounds of 10 records needs more than the 39 records of silo 'north'" in checked(
        OnePass(), 39, 10, 4
    )
    assert "needs more" in checked(OnePass(), 40, 10, 5)


def test_a_phase_takes_its_own_half_of_what_the_earlier_ones_left() -> None:
    for phase, batch in enumerate((20, 10, 5, 2, 1)):
        assert checked(Phased(phase=phase), 41, batch, 1000) == ""
        assert "batch of silo 'north' differs" in checked(Phased(phase=phase), 41, batch + 1)
    assert "too few records for this many phases" in checked(Phased(phase=5), 41, 1)


# Parts of the partition


@pytest.mark.parametrize("rule", [Full(), FixedSize(), Poisson()], ids=str)
def test_rules_that_draw_from_all_records_have_no_parts(rule: Sampling) -> None:
    assert rule.part(records=40, batch=10, answered=3) is None


@given(batch=counts, rounds=counts, spare=st.integers(0, 100))
def test_the_parts_of_one_pass_follow_each_other_and_end_within_the_records(
    batch: int, rounds: int, spare: int
) -> None:
    rule, records = OnePass(), batch * rounds + spare
    parts = [rule.part(records=records, batch=batch, answered=answered) for answered in {0, rounds // 2, rounds - 1}]
    for part in parts:
        assert part.first == part.number * batch
        assert part.first + batch <= records


@given(records=st.integers(2, 2**53))
def test_the_parts_of_phases_share_no_record_and_end_within_the_records(records: int) -> None:
    place = 0
    for number in range(min(records.bit_length() - 1, 60)):
        rule = Phased(phase=number)
        size = rule.batch("north", records=records, rounds=1, asked=None)
        assert rule.part(records=records, batch=size, answered=99) == Part(number, place)
        rule.check("north", records=records, batch=size, rounds=5)
        place += size
    assert place <= records


# Batches by default


@given(records=counts, rounds=counts)
def test_a_batch_by_default_is_one_that_the_rule_allows(records: int, rounds: int) -> None:
    for rule in RULES:
        try:
            batch = rule.batch("north", records=records, rounds=rounds, asked=None)
        except ValueError as refused:
            problem = str(refused)
        else:
            assert checked(rule, records, batch, rounds) == ""
            continue
        assert problem.endswith(".")
        assert rule.name in ("one-pass", "phased")
        assert records < max(2, rounds)


def test_batches_by_default_use_all_records_as_the_rule_allows() -> None:
    asked: dict[str, Any] = {"records": 1000, "rounds": 16, "asked": None}
    batches = {rule.name: rule.batch("north", **asked) for rule in RULES}
    assert batches == {"full": 1000, "fixed": 250, "poisson": 250, "one-pass": 62, "phased": 500}
    assert FixedSize().batch("north", records=5, rounds=10**6, asked=None) == 1


def test_a_batch_that_is_asked_for_is_taken_where_the_rule_leaves_it_open() -> None:
    for rule in (FixedSize(), Poisson(), OnePass()):
        assert rule.batch("north", records=1000, rounds=16, asked=7) == 7
    assert Full().batch("north", records=1000, rounds=16, asked=1000) == 1000
    with pytest.raises(ValueError, match="leave the batch out, or choose poisson"):
        Full().batch("north", records=1000, rounds=16, asked=999)
    with pytest.raises(ValueError, match="leave the batch out"):
        Phased().batch("north", records=1000, rounds=16, asked=500)


def test_too_few_records_for_the_rounds_or_phases_are_refused_by_the_silo_s_name() -> None:
    with pytest.raises(ValueError, match=r"One pass of 16 rounds .* silo 'north' has 15: ask for fewer rounds"):
        OnePass().batch("north", records=15, rounds=16, asked=None)
    with pytest.raises(ValueError, match="Silo 'north' is too small for 5 phases"):
        Phased(phase=4).batch("north", records=31, rounds=1, asked=None)


# Words


@every_rule
def test_every_rule_tells_an_operator_in_a_sentence_who_takes_part(rule: Sampling) -> None:
    sentence = rule.words(records=40, batch=40 if rule.takes_all else 10, rounds=3, unit="record")
    assert sentence.endswith(".")
    assert "40 records" in sentence or "of 40" in sentence
    assert ("secret" in sentence) == rule.is_secret
    assert rule.brief
    assert "\n" not in sentence


def test_rules_name_what_no_loss_bound_covers() -> None:
    even, uneven = [(40, 10, 0.5)] * 2, [(40, 10, 0.4), (60, 15, 0.6)]
    assert [rule.uncovered(even, 4) for rule in RULES] == ["", "sampled batches", "sampled batches", "", ""]
    assert OnePass().uncovered([(40, 9, 1.0)], 4) == "one-pass batches that leave some out"
    assert Phased().uncovered(uneven, 4) == "phases of silos that differ"
