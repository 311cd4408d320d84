"""What counts cost that leave a shuffler: the coins that are certain to be there, and shares that hide whose."""

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.accounting.channels.shuffler import MIXED, counts_rounding
from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.events import BinomialRelease
from ringfence.errors import AccountingError
from ringfence.planning.channels.coins import shares_needed
from ringfence.protocol import FloatArray, Plan
from ringfence.protocol.plan.plan import task
from ringfence.shuffler.vector_sum import Counts, encode_sum
from tests.accounting.plans import mixed_plan
from tests.generated import examples
from tests.shuffler.shuffled_federation import numbers_of, shuffle_of
from tests.support import restaged


@pytest.fixture(scope="module")
def mixed() -> dict[str, Plan]:
    """Plans of three silos of different sizes, two of which are enough, by sampling."""
    return {sampling: mixed_plan(sampling) for sampling in ("full", "one-pass")}


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_a_silo_counts_on_its_own_coins_and_those_of_the_smallest_others(mixed: dict[str, Plan], sampling: str) -> None:
    plan = mixed[sampling]
    shuffle = shuffle_of(plan)
    parts = {"full": 1, "one-pass": 3}[sampling]
    for name, own, other in (("big", 300, 120), ("mid", 200, 120), ("small", 120, 200)):
        terms = plan.terms(name)
        assert terms is not None
        event = task_event(plan, terms, task(plan, terms, 1, 1))
        assert isinstance(event, BinomialRelease)
        assert event.own == shuffle.coins * (own // parts)
        assert event.trials == shuffle.coins * (own // parts + other // parts)
        assert event.reach == pytest.approx(shuffle.levels, rel=1e-9)
        assert event.reach > shuffle.levels, "rounding errors included"
        assert (event.dimension, event.slack) == (plan.dimension, shuffle.slack)
        assert (event.partition, event.part) == ((plan.digest(), 1) if sampling == "one-pass" else ("", 0))


def test_a_larger_quorum_means_more_coins_that_are_certain(mixed: dict[str, Plan]) -> None:
    plan = mixed["full"]
    three = restaged(plan, channel=shuffle_of(plan).model_copy(update={"quorum": 3}))
    for few, many in zip(plan.silos, three.silos, strict=True):
        ((with_two, _),), ((with_three, _),) = plan_events(plan, few), plan_events(three, many)
        assert isinstance(with_two, BinomialRelease)
        assert isinstance(with_three, BinomialRelease)
        assert with_three.trials == shuffle_of(plan).coins * 620 > with_two.trials
        assert with_three.own == with_two.own


def test_one_pass_is_counted_once_and_full_rounds_as_often_as_there_are(mixed: dict[str, Plan]) -> None:
    assert {sampling: plan_events(plan, plan.silos[0])[0][1] for sampling, plan in mixed.items()} == {
        "full": 3,
        "one-pass": 1,
    }


def test_too_few_shares_cost_nothing_because_they_are_refused(mixed: dict[str, Plan]) -> None:
    plan = mixed["full"]
    shuffle = shuffle_of(plan)
    fewer = restaged(plan, channel=shuffle.model_copy(update={"shares": shuffle.shares - 1}))
    with pytest.raises(AccountingError, match="more shares"):
        plan_events(fewer, fewer.silos[0])


def test_every_block_of_numbers_must_be_hidden_and_not_only_the_first(mixed: dict[str, Plan]) -> None:
    """Shares that hide one block may be too few for all of them together."""
    plan = mixed["full"]
    shuffle = shuffle_of(plan)
    assert shuffle.blocks(numbers_of(plan)) == 1
    narrow = shuffle.model_copy(update={"block": 1})
    blocks = narrow.blocks(numbers_of(plan))
    assert blocks == numbers_of(plan) == 5

    def least(blocks: int) -> int:
        """Return the fewest shares that hide so many blocks, each by itself."""
        return shares_needed(parties=2, bits=8 * narrow.width, distance=MIXED / blocks)

    assert least(1) < least(blocks)
    short, enough = (
        restaged(plan, channel=narrow.model_copy(update={"shares": least(blocks) - missing})) for missing in (1, 0)
    )
    with pytest.raises(AccountingError, match="more shares"):
        plan_events(short, short.silos[0])
    assert plan_events(enough, enough.silos[0])


@given(st.integers(1, 5), st.integers(1, 2**20), st.sampled_from([1, 3, 10, 2**16]), st.randoms())
@examples(200)
def test_a_count_is_an_exact_sum_rounded_at_random_up_to_what_is_charged(
    dimension: int, vectors: int, levels: int, random: Random
) -> None:
    """Where a computed count turns from one whole number to the next is where the exact height would, in fractions."""
    clip, allowed = random.uniform(0.1, 3.0), Fraction(counts_rounding(vectors, dimension)) - 1
    totals = [random.choice([-1, 1]) * random.random() ** random.choice([1, 40]) for _ in range(dimension)]
    exact = [Fraction(total) * vectors / math.ceil(math.sqrt(dimension)) for total in totals]  # of norm up to vectors
    mean = np.array([float(total / vectors * Fraction(clip)) for total in exact])

    def counts(rounding: FloatArray) -> Counts:
        none = np.zeros(dimension, dtype=np.int64)
        return encode_sum(vectors * mean, vectors=vectors, clip=clip, levels=levels, rounding=rounding, coins=none)

    low, high = np.full(dimension, -1), np.full(dimension, 2**53 - 1)  # the count at `high` is the larger one, if any
    least, most = counts(np.zeros(dimension)), counts(np.full(dimension, 1 - 2.0**-53))
    assert np.all(most - least <= 1)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        up = counts(np.ldexp(middle.astype(np.float64), -53)) > least
        low, high = np.where(up, low, middle), np.where(up, middle, high)
    chances = [
        Fraction(2**53 - int(turn), 2**53) if above else 0 for turn, above in zip(high, most > least, strict=True)
    ]
    errors = [
        int(count) + chance - levels * (total / 2 + Fraction(vectors, 2))
        for count, chance, total in zip(least, chances, exact, strict=True)
    ]
    assert 4 * sum(error**2 for error in errors) <= (allowed * levels) ** 2, "of both neighbours"
