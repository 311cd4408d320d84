"""Vector summation: no bias, the variance it promises, the paper's randomizer for one vector, and its exact privacy."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from ringfence.accounting import accountant
from ringfence.accounting.charges import task_event
from ringfence.accounting.events import Event, seen_by
from ringfence.planning.channels.coins import shares_needed
from ringfence.protocol import Observer, Plan, ShufflerChannel, SiloTerms, parse_schema
from ringfence.protocol.plan.plan import task
from ringfence.shuffler.vector_sum import decode_sum, encode_sum
from ringfence.silo.channels.shuffler import Coins
from ringfence.silo.gate import mechanism
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.records.records import Records
from tests.shuffler.shuffled_federation import plan_through, shuffle_of

Floats = NDArray[np.float64]
FALSE_ALARM = 1e-6
CLIP, LEVELS, COINS = 0.5, 3, 4


def decoded_sums(parties: list[Floats], repetitions: int, seed: int) -> Floats:
    """Run the protocol on parties of several vectors each, so often; return the decoded sums, less the true one."""
    random = np.random.default_rng(seed)
    vectors = sum(len(own) for own in parties)
    dimension = parties[0].shape[1]
    ones = np.zeros((repetitions, dimension), dtype=np.int64)
    for own in parties:
        coins = random.binomial(len(own) * COINS, 0.5, (repetitions, dimension))
        ones += encode_sum(
            np.broadcast_to(own.sum(axis=0), (repetitions, dimension)),
            vectors=len(own),
            clip=CLIP,
            levels=LEVELS,
            rounding=random.random((repetitions, dimension)),
            coins=coins,
        )
    found = decode_sum(ones, vectors=vectors, clip=CLIP, levels=LEVELS, coins=COINS)
    errors: Floats = found - np.sum([own.sum(axis=0) for own in parties], axis=0)
    return errors


def some_parties(sizes: tuple[int, ...], dimension: int = 4) -> list[Floats]:
    random = np.random.default_rng(11)
    drawn = [random.normal(size=(size, dimension)) for size in sizes]
    return [CLIP * own / np.linalg.norm(own, axis=1, keepdims=True) for own in drawn]


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (1, 2, 3)], ids=["a vector each", "summed first"])
def test_the_sum_is_unbiased_and_has_the_variance_it_promises(sizes: tuple[int, ...]) -> None:
    """By the exact mean and variance; the normal and χ² approximations are for sums of 40,000 draws."""
    repetitions = 40_000
    parties = some_parties(sizes)
    errors = decoded_sums(parties, repetitions, seed=5)
    height = [LEVELS * (own.sum(axis=0) / (2 * CLIP) + len(own) / 2) for own in parties]
    rounding = sum(part * (1 - part) for part in (each - np.floor(each) for each in height))
    variance = (2 * CLIP / LEVELS) ** 2 * (sum(sizes) * COINS / 4 + rounding)
    far = float(norm.isf(FALSE_ALARM / 2 / errors.shape[1]))
    assert np.all(np.abs(errors.mean(axis=0)) < far * np.sqrt(variance / repetitions))
    # Binomials have lighter tails than normals, so the variance's own error is no larger than χ² says.
    ratio = errors.var(axis=0) / variance * repetitions
    assert np.all(ratio < chi2.isf(FALSE_ALARM / 2 / errors.shape[1], repetitions))
    assert np.all(ratio > chi2.ppf(FALSE_ALARM / 2 / errors.shape[1], repetitions))
    promised = (2 * CLIP / LEVELS) ** 2 * (sum(sizes) * COINS + len(sizes)) / 4  # rounding adds 1/4 a party at most
    assert np.all(variance <= promised * (1 + 1e-12))
    assert np.all(variance > 0.8 * promised), "the promise is not far off either"


@pytest.mark.parametrize(("levels", "coins"), [(1, 1), (3, 4), (4, 2)])
@pytest.mark.parametrize("value", [-0.5, -0.3125, 0.0, 0.1875, 0.5])
def test_for_one_vector_it_is_the_papers_randomizer(levels: int, coins: int, value: float) -> None:
    """x̂ is ⌊y⌋ plus Ber(y − ⌊y⌋) with y = (x + L)g/(2L), and Bin(b, 1/2) is added: every probability, exactly."""
    y = Fraction(value + CLIP) * levels / Fraction(2 * CLIP)
    up = y - math.floor(y)
    expected: dict[int, Fraction] = {}
    for rounded, coin in itertools.product((0, 1), range(coins + 1)):
        weight = (up if rounded else 1 - up) * Fraction(math.comb(coins, coin), 2**coins)
        ones = math.floor(y) + rounded + coin
        expected[ones] = expected.get(ones, Fraction(0)) + weight
    found: dict[int, Fraction] = {}
    grid = 64  # y is a multiple of 1/64, so as many values of the rounding's coin tell all cases apart
    for step, tosses in itertools.product(range(grid), itertools.product((0, 1), repeat=coins)):
        ones = int(
            encode_sum(
                np.array([value]),
                vectors=1,
                clip=CLIP,
                levels=levels,
                rounding=np.array([step / grid]),
                coins=np.array([sum(tosses)]),
            )[0]
        )
        found[ones] = found.get(ones, Fraction(0)) + Fraction(1, grid * 2**coins)
    assert found == {ones: weight for ones, weight in expected.items() if weight}
    assert min(found) >= 0
    assert max(found) <= levels + coins


@settings(max_examples=200, deadline=None)
@given(
    total=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5),
    vectors=st.integers(1, 1000),
    levels=st.integers(1, 2**20),
    rounding=st.floats(0, 1, exclude_max=True),
)
def test_no_sum_leaves_the_range_that_a_share_is_wide_enough_for(
    total: list[float], vectors: int, levels: int, rounding: float
) -> None:
    length = len(total)
    ones = encode_sum(
        np.array(total),
        vectors=vectors,
        clip=1.0,
        levels=levels,
        rounding=np.full(length, rounding),
        coins=np.zeros(length, dtype=np.int64),
    )
    assert np.all(ones >= 0)
    assert np.all(ones <= levels * vectors)


# -- exact privacy: every rounding and every coin of the silo's own function, against the plan's own event --

GRID = 12
SLACK = 1e-3
AT = 0.02


def small_plan(features: int, batches: tuple[int, ...], levels: int, coins: int, clip: float) -> Plan:
    """A plan for a handful of records; dimension 1 without an intercept, 2 with one."""
    intercept = 0.0 if features == 1 else 1.0
    columns = {
        "x": {"type": "numeric", "lower": -1.0, "upper": 1.0},
        "ill": {"type": "categorical", "categories": ["no", "yes"]},
    }
    schema = parse_schema({"columns": columns, "intercept": intercept}, target="ill")
    assert schema.width == features
    shuffle = ShufflerChannel(
        levels=levels,
        coins=coins,
        quorum=len(batches),
        slack=SLACK,
        shares=shares_needed(parties=len(batches), bits=16 * (features + 1), distance=2.0**-160),
        block=features + 1,
        width=2,
        server_key="0" * 64,
        shuffler_key="1" * 64,
    )
    sizes = {f"silo-{number}": batch for number, batch in enumerate(batches)}
    return plan_through(shuffle, schema, sizes, dict.fromkeys(sizes, "2" * 64), clip=clip)


def distribution(plan: Plan, terms: SiloTerms, records: Records) -> list[Floats]:
    """Return, per coordinate, the probabilities of the counts that the silo's own function gives at weights 0.

    A sum lies a multiple of 1/GRID above a level, so that as many values of the rounding's coin tell all cases apart.
    """
    shuffle, work = shuffle_of(plan), task(plan, terms, 0, 0)
    trials = work.batch * shuffle.coins
    length = work.batch * (shuffle.levels + shuffle.coins) + 1
    found = [np.zeros(length) for _ in range(plan.dimension)]
    for coin, step in itertools.product(range(trials + 1), range(GRID)):
        coins = Coins(np.full(plan.dimension, coin), np.full(plan.dimension, (step + 0.5) / GRID))
        draws = Draws(np.ones(work.batch), coins)
        numbers = mechanism.release(plan, work, np.zeros(plan.dimension), records, draws)
        assert numbers[-1] == work.batch
        for coordinate in range(plan.dimension):
            found[coordinate][numbers[coordinate]] += math.comb(trials, coin) / 2**trials / GRID
    return found


def divergence(one: list[Floats], other: list[Floats], epsilon: float) -> float:
    """The hockey-stick divergence of independent coordinates: the exact δ at ε."""
    p, q = np.ones(1), np.ones(1)
    for left, right in zip(one, other, strict=True):
        p, q = np.outer(p, left).reshape(-1), np.outer(q, right).reshape(-1)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def records_at(plan: Plan, values: list[tuple[float, float]]) -> Records:
    features = np.array([[x] if plan.dimension == 1 else [x, 1.0] for x, _ in values])
    return Records(plan.data, features, np.array([y for _, y in values]))


@dataclass(frozen=True)
class Worlds:
    """What can be seen when silo 0's last record is one of several: by a server, and by one that sees it alone."""

    plan: Plan
    shuffled: list[list[Floats]]
    alone: list[list[Floats]]

    def events(self, observer: Observer) -> list[tuple[Event, int]]:
        terms = self.plan.silos[0]
        return seen_by(observer, [(task_event(self.plan, terms, task(self.plan, terms, 0, 0)), 1)])

    def exact_delta(self, observer: Observer, epsilon: float) -> float:
        """The largest exact δ at ε over all pairs of neighbours."""
        worlds = self.shuffled if observer == "server" else self.alone
        return max(divergence(one, other, epsilon) for one, other in itertools.permutations(worlds, 2))


SMALL = {
    "one coordinate": (1, (2, 2), 2, 40, 0.5),
    "one record": (1, (1, 3), 2, 80, 0.5),
    "two coordinates": (2, (2, 4), 2, 40, 0.75),
}


@pytest.fixture(scope="module", params=SMALL)
def worlds(request: pytest.FixtureRequest) -> Worlds:
    """All that the silos' own functions can return, for neighbours as far apart as the clip allows and nearer ones."""
    plan = small_plan(*SMALL[request.param])
    terms = plan.silos[0]
    rest = [(0.25, 1.0)] * (terms.records - 1)
    alone = [
        distribution(plan, terms, records_at(plan, [*rest, last])) for last in ((1.0, 1.0), (1.0, -1.0), (0.25, -1.0))
    ]
    shuffled = alone
    for others in plan.silos[1:]:
        added = distribution(plan, others, records_at(plan, [(0.75, -1.0)] * others.records))
        shuffled = [[np.convolve(own, more) for own, more in zip(world, added, strict=True)] for world in shuffled]
    return Worlds(plan, shuffled, alone)


@pytest.mark.parametrize("observer", ["server", "anyone"])
def test_what_leaves_is_as_private_as_the_plan_s_own_event_says(worlds: Worlds, observer: Observer) -> None:
    """Exact divergences over every rounding and coin: never above the claim, and not far below it."""
    events = worlds.events(observer)
    claimed = accountant.epsilon(events, AT)
    assert 0 < claimed < 5
    for epsilon in (0.0, 0.1, claimed / 2, claimed, 1.5 * claimed):
        assert worlds.exact_delta(observer, epsilon) <= accountant.delta(events, epsilon)
    assert worlds.exact_delta(observer, claimed) <= AT
    assert worlds.exact_delta(observer, claimed / 2) > AT, "a claim of half as much would be false"


def test_the_silo_s_own_coins_do_not_keep_the_shuffled_claim(worlds: Worlds) -> None:
    claimed = accountant.epsilon(worlds.events("server"), AT)
    assert claimed < accountant.epsilon(worlds.events("anyone"), AT)
    assert worlds.exact_delta("anyone", claimed) > AT
