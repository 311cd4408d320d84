"""What every channel promises: what leaves is the answer, rounded as is charged, and exactly the charged noise."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.accounting.charges import task_event
from ringfence.accounting.events import BinomialRelease
from ringfence.federation.local_shuffler import local_shuffler
from ringfence.protocol import FloatArray, Plan, Task
from ringfence.protocol.channels.own_noise import OwnNoise
from ringfence.protocol.channels.shuffler import ShufflerChannel
from ringfence.protocol.plan.plan import task
from ringfence.silo.channels import SENDERS
from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.channels.shuffler import Coins
from tests.generated import examples
from tests.rates import check_counts, check_deviation
from tests.shuffler.shuffled_federation import NAMES, make_shuffled_plan, schema_of
from tests.support import MakePlan, clip_of, renoised, shift_in


@pytest.fixture(scope="module")
def shuffled() -> Plan:
    with local_shuffler(NAMES) as local:
        return make_shuffled_plan(schema_of(3), local.keys, dict.fromkeys(NAMES, 40))


def work_of(plan: Plan) -> Task:
    return task(plan, plan.silos[0], 0, 0)


def test_every_channel_has_a_contract() -> None:
    assert set(SENDERS) == {OwnNoise, ShufflerChannel}


SHARES = st.lists(st.floats(-1, 1), min_size=4, max_size=4)
"""Directions; a number of 0 has neighbours on one grid's edge."""


def moved_by(direction: list[float], most: float) -> FloatArray:
    """Return a vector along the direction, of the given length at most."""
    norm = float(np.linalg.norm(direction))
    return np.array(direction) * (most * (1 - 2.0**-40) / norm) if norm > 1e-100 else np.zeros(len(direction))


# -- own noise --


@given(
    exact=SHARES,
    direction=SHARES,
    edges=st.lists(st.sampled_from([0.0, 0.5, -0.5]), min_size=4, max_size=4),
    exponent=st.integers(-10, 10),
    whole=st.integers(-(2**33), 2**33),
)
@examples(60)
def test_own_noise_is_added_to_the_answer_on_its_grid_and_neighbours_are_no_further_apart_than_is_charged(
    plan_of: MakePlan, exact: list[float], direction: list[float], edges: list[float], exponent: int, whole: int
) -> None:
    """Also where an answer lies on an edge, at which rounding goes either way."""
    plan = renoised(plan_of(), sigma=(1.37 if exponent % 2 else 1.0) * 2.0**-exponent)
    work = work_of(plan)
    grid = 2.0 ** grid_exponent(work.sigma)
    assert work.sigma * 2.0**-31 < grid <= work.sigma * 2.0**-30
    sender, channel = SENDERS[type(work.stage.channel)], work.stage.channel
    noise = grid * np.full(4, float(whole))

    def sent(answer: FloatArray) -> FloatArray:
        return sender.encode(channel, plan, work, answer, noise, sender.memory(channel))

    scale = min(1.0, work.sigma * 2.0**20)
    one = np.array([(math.floor(x * scale / grid) + edge) * grid for x, edge in zip(exact, edges, strict=True)])
    most = work.stage.query.sensitivity(plan, work.batch)
    other = one + moved_by(direction, most)
    for answer in (one, other):
        for number, own in zip(sent(answer), answer, strict=True):
            steps = (Fraction(number) - whole * Fraction(grid)) / Fraction(grid)
            assert steps == round(Fraction(own) / Fraction(grid))
    moved = [Fraction(a) - Fraction(b) for a, b in zip(sent(one), sent(other), strict=True)]
    charged = Fraction(shift_in(task_event(plan, plan.silos[0], work))) * Fraction(work.sigma)
    assert sum(step**2 for step in moved) <= charged**2


def test_own_noise_has_the_standard_deviation_that_is_charged_and_lies_on_the_grid(plan_of: MakePlan) -> None:
    """A deviation that is off by 5 % is noticed."""
    for sigma in (2.0**-10, 0.3, 1.0, 1.99999):
        work = replace(work_of(renoised(plan_of(), sigma=sigma)), length=30_000)
        noise = SENDERS[type(work.stage.channel)].draw(work.stage.channel, work)
        grid = 2.0 ** grid_exponent(sigma)
        assert np.all(noise / grid == np.rint(noise / grid))
        check_deviation(noise, sigma, notices=1.05)


# -- through a shuffler --


@given(
    direction=SHARES,
    other=SHARES,
    share=st.sampled_from([0.0, 0.5, 0.95]),
    rounding=st.sampled_from([0.0, 0.5, 1 - 2.0**-53]),
    heads=st.integers(0, 1000),
)
@examples(60)
def test_counts_for_a_shuffler_are_the_rounded_heights_and_coins_and_neighbours_no_further_apart_than_is_charged(
    shuffled: Plan, direction: list[float], other: list[float], share: float, rounding: float, heads: int
) -> None:
    work = work_of(shuffled)
    channel, clip, batch = work.stage.channel, clip_of(shuffled), work.batch
    assert isinstance(channel, ShufflerChannel)
    event = task_event(shuffled, shuffled.silos[0], work)
    assert isinstance(event, BinomialRelease)
    assert (event.own, event.dimension) == (channel.coins * batch, work.length)
    coins = Coins(np.full(4, heads, dtype=np.int64), np.full(4, rounding))
    mean, most = moved_by(direction, clip * share), channel.levels * batch
    heights, counts = [], []
    for answer in (mean, mean + moved_by(other, 2 * clip / batch)):
        sent = SENDERS[ShufflerChannel].encode(channel, shuffled, work, answer, coins, None)
        assert sent[-1] == batch
        exact = [Fraction(number) * most / (2 * Fraction(clip)) + Fraction(most, 2) for number in answer]
        for count, height in zip(sent, exact, strict=False):
            assert 0 <= count - heads <= most
            assert abs(count - heads - (min(max(height, Fraction(0)), Fraction(most)) + Fraction(rounding))) <= 1
        heights.append(exact)
        counts.append(sent[:-1])
    apart = sum((a - b) ** 2 for a, b in zip(*heights, strict=True))
    assert apart <= Fraction(event.reach) ** 2
    # Rounded by the same numbers, each count moves by less than one more than its height.
    assert all(abs(int(a - b)) < abs(x - y) + 1 + 2**-30 for a, b, x, y in zip(*counts, *heights, strict=True))


def test_a_silo_tosses_the_coins_that_are_charged(shuffled: Plan) -> None:
    """A coin that shows heads with probability 0.49 is noticed, and so are coins of which one in fifty is missing."""
    work = work_of(shuffled)
    channel = work.stage.channel
    assert isinstance(channel, ShufflerChannel)
    drawn = [SENDERS[ShufflerChannel].draw(channel, work) for _ in range(500)]
    heads = np.concatenate([coins.heads for coins in drawn])
    tossed = channel.coins * work.batch
    assert np.all((heads >= 0) & (heads <= tossed))
    check_counts(np.array([heads.sum()]), heads.size * tossed, 0.5, notices=0.49)
    check_deviation((heads - tossed / 2.0).astype(np.float64), math.sqrt(tossed) / 2, notices=1.25)
