"""Who takes part in a round: by each rule as it says, drawn afresh or from one fixed partition of the records.

Statistical tests state what they notice; both of their rates are 10⁻⁶ at most (`tests.rates`).
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ringfence.planning.request import Member
from ringfence.protocol import (
    FloatArray,
    Localized,
    NoisyUpdate,
    Phase,
    Phased,
    Plan,
    RefusalReason,
    Sampling,
    SiloTerms,
    Task,
    sampling_named,
)
from ringfence.protocol.plan import sections
from ringfence.protocol.plan.plan import task
from ringfence.protocol.plan.sampling import SAMPLING_NAMES
from ringfence.protocol.plan.sections import Section
from ringfence.silo.gate import sampling
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.sampling import draw
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.generated import examples
from tests.rates import check_counts, check_frequencies
from tests.support import Drawn, MakePlan, approved_by, ask, ask_all, own_terms, rebuilt, refusal

# -- every rule's contract --


class Question(NamedTuple):
    """Who is asked: the rule, the section's members, and the batch."""

    rule: Sampling
    plan: Plan
    terms: SiloTerms
    work: Task
    asked: NDArray[np.int64]

    def chosen(self, words: Sequence[int], answered: int = 0) -> NDArray[np.int64]:
        """Return the places, within the section, of those who take part if these are the uniform numbers."""
        count, batch = len(self.asked), self.work.batch
        part = self.rule.part(records=count, batch=batch, answered=answered)
        drawn = lambda many: np.array(words, dtype=np.uint64)[:many]  # noqa: E731
        found = sampling.participation(self.rule, self.plan, self.terms, replace(self.work, part=part), drawn)
        assert set(np.unique(found)) <= {0.0, 1.0}
        assert found.shape == (self.terms.records,)
        inside = found[self.asked]
        assert inside.sum() == found.sum() <= self.rule.most(records=count, batch=batch)
        return np.flatnonzero(inside)


def require_all(question: Question, words: list[int]) -> None:
    assert question.chosen(words).tolist() == list(range(len(question.asked)))


def require_the_least(question: Question, words: list[int]) -> None:
    """Check that those with the least numbers are chosen: so all sets are equally likely."""
    places = np.argsort(np.array(words, dtype=np.uint64))
    assert question.chosen(words).tolist() == sorted(places[: question.work.batch])


def require_independent_coins(question: Question, words: list[int]) -> None:
    """Check that each word decides about its own record, at a rate of batch/n rounded down to a multiple of 2⁻⁶⁴."""
    edge = question.work.batch * 2**64 // len(question.asked)
    for near in (edge - 2, edge - 1, edge, edge + 1, edge + 2):
        for place in range(len(words)):
            tried = [*words[:place], min(near, 2**64 - 1), *words[place + 1 :]]
            assert question.chosen(tried).tolist() == [row for row, word in enumerate(tried) if word < edge]


def require_disjoint_parts(question: Question, words: list[int]) -> None:
    """Check that parts have the batch's size, are disjoint and complete, and depend on no draw."""
    count, batch = len(question.asked), question.work.batch
    parts = [question.chosen(words, answered) for answered in range(count // batch)]
    assert [len(part) for part in parts] == [batch] * len(parts)
    assert len(np.unique(np.concatenate(parts))) == batch * len(parts)
    assert all(np.array_equal(part, question.chosen(words[::-1], i)) for i, part in enumerate(parts))


def require_disjoint_phases(question: Question, words: list[int]) -> None:
    taken: list[int] = []
    for number in range(int(math.log2(len(question.asked)))):
        rule = Phased(phase=number)
        batch = rule.batch("clinic", records=len(question.asked), rounds=1, asked=None)
        own = question._replace(rule=rule, work=replace(question.work, batch=batch))
        part = own.chosen(words, answered=number)
        assert len(part) == batch == len(question.asked) >> (number + 1)
        assert np.array_equal(part, own.chosen(words[::-1]))
        taken += part.tolist()
    assert len(set(taken)) == len(taken)


SECTIONS: tuple[Section | None, ...] = (None, "training", "held-out")
CONTRACTS: dict[str, Callable[[Question, list[int]], None]] = {
    "full": require_all,
    "fixed": require_the_least,
    "poisson": require_independent_coins,
    "one-pass": require_disjoint_parts,
    "phased": require_disjoint_phases,
}


@pytest.mark.parametrize("name", SAMPLING_NAMES)
@given(data=st.data())
@examples(60)
def test_every_rule_chooses_who_takes_part_exactly_as_is_charged(
    plan_of: MakePlan, name: str, data: st.DataObject
) -> None:
    """For all numbers that may be drawn; of all records, or of those in a section."""
    section: Section | None = data.draw(st.sampled_from(SECTIONS))
    records = data.draw(st.integers(20, 60) if section else st.integers(1, 60))
    rule, plan = sampling_named(name), rebuilt(plan_of(), held_out=0.3)
    asked = sections.members(section, records, plan.held_out)
    count = len(asked)
    assert count == sections.size(section, records, plan.held_out)
    batch = count if rule.takes_all else data.draw(st.integers(1, count) | st.just(count))
    words = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count, unique=True))
    terms = plan.silos[0].model_copy(update={"records": records})
    stage = plan.stages[0].model_copy(update={"section": section})
    work = replace(task(plan, plan.silos[0], 0, 0), stage=stage, batch=batch)
    CONTRACTS[name](Question(rule, plan, terms, work, asked), words)


# -- drawn afresh --

RUNS = 2000


def drawn_batches(plan: Plan) -> FloatArray:
    """Return who took part in so many runs of a plan's first round, one row for each."""
    terms = plan.silos[0]
    chosen = np.array([draw(plan, terms, task(plan, terms, 0, 0)).participation for _ in range(RUNS)])
    assert set(np.unique(chosen)) == {0.0, 1.0}
    return chosen


def meetings(chosen: FloatArray) -> NDArray[np.int64]:
    """Return how often any two records took part together."""
    met: NDArray[np.int64] = (chosen.T @ chosen)[np.triu_indices(chosen.shape[1], 1)].astype(np.int64)
    return met


def test_fixed_batches_have_exactly_k_distinct_records_each_equally_likely(plan_of: MakePlan) -> None:
    """A record that takes part with probability 0.6 is noticed, where 0.45 is right."""
    plan = plan_of(sampling="fixed")
    chosen = drawn_batches(plan)
    assert own_terms(plan).batch == 18
    assert np.all(chosen.sum(axis=1) == 18)
    check_counts(chosen.sum(axis=0).astype(np.int64), RUNS, 18 / 40, notices=0.6)


def test_a_draw_in_which_it_is_not_clear_who_comes_first_is_made_again() -> None:
    """Of all ways to give four records one of four numbers, the clear ones give every three of them equally often."""
    counts: dict[tuple[int, ...], int] = {}
    for numbers in itertools.product(range(4), repeat=4):
        draws = iter([np.array(numbers, dtype=np.uint64), np.array([9, 8, 7, 6], dtype=np.uint64)])
        chosen = tuple(sorted(sampling._first(3, 4, lambda _, draws=draws: next(draws))))  # type: ignore[misc]
        if sorted(numbers)[2] < sorted(numbers)[3]:
            counts[chosen] = counts.get(chosen, 0) + 1
        else:
            assert chosen == (1, 2, 3)  # as the second draw says
    assert len(counts) == 4
    assert len(set(counts.values())) == 1


def test_any_two_records_meet_in_a_fixed_batch_as_often_as_any_other_two(plan_of: MakePlan) -> None:
    """With probability K(K−1)/(n(n−1)), here 0.2: a batch that was a run of neighbours would pass the test above.

    In such a run neighbours meet with probability 17/40. A pair that meets with probability 0.33 is noticed.
    """
    met = meetings(drawn_batches(plan_of(sampling="fixed")))
    check_counts(met, RUNS, 18 * 17 / (40 * 39), notices=0.33)


def test_poisson_batches_have_exactly_binomial_sizes(plan_of: MakePlan) -> None:
    """A size that is always the same is noticed, and a rate of 0.55 where 0.45 is right."""
    plan = plan_of(sampling="poisson")
    sizes = drawn_batches(plan).sum(axis=1).astype(np.int64)
    law, wrong = ({size: float(stats.binom(40, rate).pmf(size)) for size in range(41)} for rate in (0.45, 0.55))
    assert own_terms(plan).batch == 18
    for other in ({18: 1.0}, wrong):
        check_frequencies(sizes, law, notices=other)


def test_poisson_sampling_takes_each_record_independently_at_the_plan_s_rate(plan_of: MakePlan) -> None:
    """A record that takes part with probability 0.6 is noticed, and two that meet with 0.34 where 0.45² is right."""
    chosen = drawn_batches(plan_of(sampling="poisson"))
    check_counts(chosen.sum(axis=0).astype(np.int64), RUNS, 0.45, notices=0.6)
    check_counts(meetings(chosen), RUNS, 0.45**2, notices=0.34)


def test_one_pass_takes_disjoint_parts_of_one_fixed_partition(plan_of: MakePlan) -> None:
    plan = plan_of(sampling="one-pass", rounds=5)
    terms = plan.silos[0]
    parts = np.array([draw(plan, terms, task(plan, terms, answered, answered)).participation for answered in range(5)])
    again = np.array([draw(plan, terms, task(plan, terms, answered, answered)).participation for answered in range(5)])
    assert np.array_equal(parts, again)
    assert parts.sum(axis=1).tolist() == [8.0] * 5
    assert parts.sum(axis=0).tolist() == [1.0] * 40


# -- phases --

ROUNDS = (3, 2, 4)
SIZES = (20, 10, 5)
"""Of phases of 40 records."""


def phased(plan_of: MakePlan, rounds: tuple[int, ...] = ROUNDS, **changes: Any) -> Plan:
    phases = tuple(Phase(rounds=count, penalty=0.1 * 8**i) for i, count in enumerate(rounds))
    return plan_of(algorithm=Localized(smoothness=1.0, phases=phases), rounds=sum(rounds), **changes)


def phase_of_round(rounds: tuple[int, ...]) -> list[int]:
    return [phase for phase, count in enumerate(rounds) for _ in range(count)]


@pytest.mark.parametrize("survey", [False, True])
def test_phase_i_uses_half_as_many_records_as_the_last_always_the_same_and_none_of_another_phase_s(
    gate: Gate, plan_of: MakePlan, survey: bool, drawn: Drawn
) -> None:
    plan = approved_by(gate, phased(plan_of, survey=survey))
    ask_all(gate, plan)
    gradients = [draws.participation for work, draws in drawn if work.stage.query.trains]
    assert len(gradients) == 9
    sets = [{tuple(np.flatnonzero(p)) for p, own in zip(gradients, phase_of_round(ROUNDS), strict=True) if own == i}
            for i in range(3)]  # fmt: skip
    assert [len(different) for different in sets] == [1, 1, 1]
    parts = [different.pop() for different in sets]
    assert tuple(map(len, parts)) == SIZES
    assert len(set().union(*parts)) == sum(SIZES)


def test_a_restarted_silo_goes_on_with_the_same_records(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan, drawn: Drawn
) -> None:
    plan = approved_by(gate, phased(plan_of))
    ask_all(gate, plan, [0, 3])
    ledger.close()
    sampling._partition.cache_clear()
    with Ledger.open(ledger.path) as reopened:
        ask_all(Gate(records, reopened), plan, [4, 5])
    zero, three, four, five = (draws.participation for _, draws in drawn)
    assert np.array_equal(three, four)
    assert np.max(zero + three + five) == 1.0


def test_phases_go_by_the_number_of_the_round_and_not_by_the_count_of_answers(
    gate: Gate, plan_of: MakePlan, drawn: Drawn
) -> None:
    plan = approved_by(gate, phased(plan_of))
    ask_all(gate, plan, [2, 4, 8])
    assert [work.part.number for work, _ in drawn if work.part is not None] == [0, 1, 2]
    assert [work.batch for work, _ in drawn] == list(SIZES)
    assert refusal(ask(gate, plan, 9)) is RefusalReason.ROUND_OUT_OF_RANGE


def test_a_phase_s_noise_grows_with_the_root_of_its_rounds_and_falls_with_its_records(
    gate: Gate, plan_of: MakePlan, drawn: Drawn
) -> None:
    plan = approved_by(gate, phased(plan_of))
    ask_all(gate, plan)
    first = own_terms(plan, 0).sigma
    for (work, _), phase in zip(drawn, phase_of_round(ROUNDS), strict=True):
        expected = first * math.sqrt(ROUNDS[phase] / ROUNDS[0]) * SIZES[0] / SIZES[phase]
        assert work.sigma == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("records_", [2, 3, 39])
def test_odd_and_tiny_silos_have_phases_of_whole_records(
    records: Records, plan_of: MakePlan, records_: int, tmp_path: Path, drawn: Drawn
) -> None:
    count = int(math.log2(records_))
    plan = phased(plan_of, (1,) * count, members=[Member("clinic", records_, 1.0, 1e-6)])
    with Ledger.create(tmp_path / "small.ledger", silo="clinic", budget=Budget(1.0, 1e-6)) as ledger:
        gate = Gate(records.take(np.arange(records_)), ledger)
        gate.approve(plan)
        for round in range(count):
            assert isinstance(ask(gate, plan, round), NoisyUpdate)
    assert [draws.participation.sum() for _, draws in drawn] == [records_ >> (i + 1) for i in range(count)]
    assert np.sum([draws.participation for _, draws in drawn], axis=0).max() == 1.0


def test_a_partition_s_order_is_that_of_the_hashes_whatever_their_first_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that run have used it already: no version may change it."""
    for bits in (256, 3):  # with three bits to begin with, almost all records tie

        class Hashed:
            def __init__(self, content: bytes) -> None:
                whole = hashlib.sha256(content).digest()
                self._digest = whole if bits == 256 else bytes([whole[0] & 7, *bytes(7), *whole[8:]])  # noqa: B023

            def digest(self) -> bytes:
                return self._digest

        monkeypatch.setattr(sampling, "hashlib", SimpleNamespace(sha256=Hashed))
        sampling._partition.cache_clear()
        keys = [Hashed(f"plan/clinic/{row}".encode()).digest() for row in range(200)]
        assert sampling._partition("plan", "clinic", 200).tolist() == sorted(range(200), key=keys.__getitem__)
    sampling._partition.cache_clear()
