"""Small shuffled sums by brute force: no claim is below the exact divergence, and none is far above it."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.accounting.shuffled_sums import binomial_shift, mixing_distance
from ringfence.errors import AccountingError

Floats = NDArray[np.float64]
GAMMAS = [0.0, *np.exp(np.linspace(-2.5, 6.0, 35)), 1e4, 1e8]


def total_of(sums: Sequence[float], trials: int) -> Floats:
    """The exact distribution of one coordinate's total: each party's sum rounded at random, and all coins."""
    mass = binom.pmf(np.arange(trials + 1), trials, 0.5)
    for party in sums:
        whole = math.floor(party)
        mass = np.convolve(mass, [0.0] * whole + [1 - (party - whole), party - whole])
    return mass


def totals(sums: Floats, trials: int, room: int) -> Floats:
    """The joint distribution of all coordinates, from sums by coordinate and party; ``room`` for the rounded sums."""
    joint = np.ones(1)
    for coordinate in sums:
        mass = np.zeros(trials + room)
        exact = total_of(coordinate, trials)
        mass[: len(exact)] = exact
        joint = np.multiply.outer(joint, mass).ravel()
    return joint


def hockey_stick(p: Floats, q: Floats, gamma: float) -> float:
    return float(np.maximum(p - gamma * q, 0.0).sum())


def gaussian_hockey_stick(shift: float, gamma: float) -> float:
    """The same of N(shift,1) against N(0,1), for every gamma."""
    if gamma == 0:
        return 1.0
    cut = math.log(gamma) / shift
    return float(ndtr(shift / 2 - cut) - gamma * ndtr(-shift / 2 - cut))


def directions(dimension: int, levels: float) -> list[Floats]:
    """How a replaced vector may move the sums: along an axis, a diagonal, at random, and not all the way."""
    random = np.random.default_rng(dimension)
    moves = [np.eye(dimension)[0], np.ones(dimension), *random.normal(size=(3, dimension))]
    whole = [levels * move / np.linalg.norm(move) for move in moves]
    return [*whole, 0.6 * whole[1], 0.13 * whole[0]]


@pytest.mark.parametrize(
    ("levels", "trials", "dimension", "slack"),
    [(1, 40, 1, 1e-4), (2, 121, 1, 1e-6), (5, 80, 1, 1e-3), (2, 60, 2, 1e-3), (3, 101, 2, 1e-4), (2, 44, 3, 1e-3)],
)
def test_no_two_neighbours_are_further_apart_than_the_shift_says(
    levels: int, trials: int, dimension: int, slack: float
) -> None:
    shift = binomial_shift(reach=float(levels), trials=trials, dimension=dimension, slack=slack)
    assert shift < 6
    random = np.random.default_rng(levels)
    for move in directions(dimension, levels):
        # Two other parties and the record's own; sums are at least `levels`, so that the move leaves none negative.
        sums = levels + 2 * random.random((dimension, 2))
        moved = sums + np.stack([move, np.zeros(dimension)], axis=1)
        p, q = (totals(each, trials, room=3 * levels + 8) for each in (moved, sums))
        for gamma in GAMMAS:
            allowed = gaussian_hockey_stick(shift, gamma) + slack + 1e-12
            assert hockey_stick(p, q, gamma) <= allowed
            assert hockey_stick(q, p, gamma) <= allowed


@pytest.mark.parametrize("trials", [20, 41, 200, 1001])
@pytest.mark.parametrize("slack", [1e-2, 1e-5])
@pytest.mark.parametrize("reach", [0.05, 0.3, 0.5, 1.0, 2.7])
def test_no_threshold_tells_one_coordinate_s_neighbours_apart_better_than_a_gaussian(
    trials: int, slack: float, reach: float
) -> None:
    shift = binomial_shift(reach=reach, trials=trials, dimension=1, slack=slack)
    if shift == math.inf:
        assert trials < 50
        return
    above = binom.sf(np.arange(-4, trials + 5) - 1, trials, 0.5)

    def tail(x: Floats) -> Floats:
        return np.interp(x, np.arange(-4, trials + 5), above)

    x = np.arange(-3.0, trials + 1.0, 1 / 64)
    for move in (reach, reach / 2, reach / 7):
        with np.errstate(divide="ignore"):
            power = ndtr(shift + ndtri(tail(x + move)))
        assert np.all(tail(x) <= power + slack + 1e-12)


def test_the_curvature_of_rounded_sums_is_counted() -> None:
    """A tenth of a level moves the tail's quantile by more than a tenth of the largest step between integers."""
    trials, slack, move = 100, 1e-7, 0.05
    steps = binomial_shift(reach=1.0, trials=trials, dimension=1, slack=slack)
    small = binomial_shift(reach=move, trials=trials, dimension=1, slack=slack)
    k = np.arange(trials + 1)
    z = -ndtri(binom.sf(k - 1, trials, 0.5))
    inside = k[(binom.sf(k - 1, trials, 0.5) > slack) & (z > 0)]
    largest_step = float(np.max(z[inside + 1] - z[inside]))
    # Just before the last integer that counts, where the curve between integers is steepest.
    low, high = binom.sf(inside[-1] - 2, trials, 0.5), binom.sf(inside[-1] - 1, trials, 0.5)
    exact = float(-ndtri(high) + ndtri(high + move * (low - high)))
    assert exact > 1.1 * move * float(z[inside[-1]] - z[inside[-1] - 1])
    assert exact <= small
    assert move * largest_step < small < steps


def test_the_slack_is_shared_by_the_coordinates() -> None:
    """Ten coins move by one level beyond all that was possible with probability 2^-10: per coordinate."""
    p, q = (totals(np.full((3, 1), level), 10, room=4) for level in (1.0, 0.0))
    beyond = float(p[q == 0].sum())
    assert beyond > 2.9e-3
    assert binomial_shift(reach=math.sqrt(3), trials=10, dimension=3, slack=0.9 * beyond) == math.inf
    one = binomial_shift(reach=1.0, trials=100, dimension=1, slack=1e-4)
    assert binomial_shift(reach=1.0, trials=100, dimension=10, slack=1e-4) > 1.1 * one
    # Where curvature does not count, sharing the slack is all that a dimension costs.
    first, second = (binomial_shift(reach=2.0, trials=10**9, dimension=d, slack=d * 1e-9) for d in (1, 10))
    assert first == second


def test_the_curvature_is_counted_in_every_coordinate() -> None:
    one, four = (binomial_shift(reach=1.0, trials=1000, dimension=d, slack=d * 1e-9) for d in (1, 4))
    nine = binomial_shift(reach=1.0, trials=1000, dimension=9, slack=9e-9)
    assert four - one == pytest.approx(nine - four, rel=1e-6)  # 2 - 1 = 3 - 2
    assert four - one > 0.02 * one


def test_two_rounds_of_which_the_second_answers_the_first_compose() -> None:
    trials, slack = (60, 90), 1e-4
    shifts = [binomial_shift(reach=2.0, trials=T, dimension=1, slack=slack) for T in trials]
    first_p, first_q = total_of([3.3], trials[0]), total_of([1.3], trials[0])
    width = trials[1] + 8
    p, q = np.zeros((len(first_p), width)), np.zeros((len(first_p), width))
    for outcome, mass in enumerate(first_p):
        # The analyst asks where the record matters most, or hardly, or the other way round.
        move = (2.0, 0.4, -1.7)[outcome % 3]
        for joint, weight, party in ((p, mass, 3.5 + move), (q, [*first_q, 0.0, 0.0][outcome], 3.5)):
            exact = total_of([party], trials[1])
            joint[outcome, : len(exact)] = weight * exact
    together = math.hypot(*shifts)
    for gamma in GAMMAS:
        allowed = gaussian_hockey_stick(together, gamma) + 2 * slack + 1e-12
        assert hockey_stick(p.ravel(), q.ravel(), gamma) <= allowed
        assert hockey_stick(q.ravel(), p.ravel(), gamma) <= allowed
    assert hockey_stick(p, q, 1.0) > 0.6 * gaussian_hockey_stick(together, 1.0)  # so the check has teeth


def least_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    low, high = 0.0, 50.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize(("levels", "trials", "ratio"), [(2, 400, 1.15), (4, 1000, 1.06), (10, 10_000, 1.02)])
def test_the_claimed_epsilon_is_close_to_the_exact_one(levels: int, trials: int, ratio: float) -> None:
    delta = 1e-4
    slack = delta / 100
    claimed = gaussian_epsilon(
        binomial_shift(reach=float(levels), trials=trials, dimension=1, slack=slack), delta - slack
    )
    p, q = total_of([levels + 0.5], trials), np.append(total_of([0.5], trials), [0.0] * levels)
    exact = least_epsilon(lambda epsilon: hockey_stick(p, q, math.exp(epsilon)), delta)
    assert exact <= claimed <= ratio * exact


@pytest.mark.parametrize("trials", [2**28, 2**28 + 1, 10**10, 10**12, 2**52])
def test_huge_numbers_of_coins_are_no_worse_than_claimed_and_nearly_gaussian(trials: int) -> None:
    deviation, slack = math.sqrt(trials) / 2, 1e-9
    move = math.ceil(deviation / 10)
    shift = binomial_shift(reach=float(move), trials=trials, dimension=1, slack=slack)
    assert move / deviation < shift < 1.005 * move / deviation
    k = trials // 2 + np.round(np.linspace(-6.5, 6.5, 501) * deviation)
    p, q = binom.sf(k - move - 1, trials, 0.5), binom.sf(k - 1, trials, 0.5)
    assert np.all(p <= ndtr(shift + ndtri(q)) + slack)


def published_epsilon(*, l1: float, l2: float, largest: float, trials: int, dimension: int, delta: float) -> float:
    """The ε of the binomial mechanism (p = 1/2) by the closed form of cpSGD (Agarwal et al. 2018).

    For integer vectors whose neighbours differ by at most ``l1``, ``l2`` and ``largest`` in l1, l2 and l∞ norm.
    """
    v = trials / 4
    assert v >= max(23 * math.log(10 * dimension / delta), 2 * largest)  # the theorem's condition
    b, c, d = 1 / 3, math.sqrt(2) * (3 / 4 + 1), 2 / 3
    return (
        l2 * math.sqrt(2 * math.log(1.25 / delta) / v)
        + (l2 * c * math.sqrt(math.log(10 / delta)) + l1 * b) / (v * (1 - delta / 10))
        + largest * 2 / 3 * math.log(1.25 / delta) / v
        + largest * d * math.log(20 * dimension / delta) * math.log(10 / delta) / v
    )


@pytest.mark.parametrize("dimension", [1, 50])
@pytest.mark.parametrize("levels", [1, 10, 40])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_closed_form_of_the_literature_never_needs_fewer_coins(dimension: int, levels: int, delta: float) -> None:
    l2 = levels + math.sqrt(dimension)  # rounding included
    for factor in (1, 4, 100):
        trials = factor * math.ceil(max(92 * math.log(10 * dimension / delta), 8 * (levels + 1)))
        published = published_epsilon(
            l1=math.sqrt(dimension) * l2, l2=l2, largest=levels + 1.0, trials=trials, dimension=dimension, delta=delta
        )
        shift = binomial_shift(reach=float(levels), trials=trials, dimension=dimension, slack=delta / 100)
        assert gaussian_epsilon(shift, 0.99 * delta) < published


def test_the_shift_grows_with_the_reach_and_the_dimension_and_falls_with_coins_and_slack() -> None:
    def shift(reach: float = 5.0, trials: int = 5000, dimension: int = 10, slack: float = 1e-8) -> float:
        return binomial_shift(reach=reach, trials=trials, dimension=dimension, slack=slack)

    assert shift(reach=4.9) < shift() < shift(reach=5.1)
    assert shift(trials=5100) < shift() < shift(trials=4900)
    assert shift(dimension=9) < shift() < shift(dimension=11)
    assert shift(slack=1e-6) < shift() < shift(slack=1e-10)


@pytest.mark.parametrize(("reach", "trials", "slack"), [(1.0, 1, 1e-3), (30.0, 50, 1e-3), (1e300, 100, 0.01)])
def test_too_few_coins_prove_nothing(reach: float, trials: int, slack: float) -> None:
    assert binomial_shift(reach=reach, trials=trials, dimension=1, slack=slack) == math.inf


@pytest.mark.parametrize(
    "nonsense",
    [
        *({"reach": reach} for reach in (0.0, math.nan)),
        *({"trials": trials} for trials in (0, 2**52 + 1, 10.5)),
        *({"slack": slack} for slack in (0.0, 1.0, 1e-150)),
        {"dimension": 0},
    ],
)
def test_nonsense_is_refused(nonsense: dict[str, float]) -> None:
    given = {"reach": 1.0, "trials": 100, "dimension": 2, "slack": 1e-6, **nonsense}
    with pytest.raises(AccountingError):
        binomial_shift(**given)  # type: ignore[arg-type]


Element = tuple[int, ...]


def plus(a: Element, b: Element, orders: Element) -> Element:
    return tuple((x + y) % order for x, y, order in zip(a, b, orders, strict=True))


def views(inputs: Sequence[Element], shares: int, orders: Element) -> dict[tuple[Element, ...], float]:
    """The exact distribution of the shuffled shares, as sorted tuples: the order tells nothing more."""
    group = list(itertools.product(*map(range, orders)))
    view: dict[tuple[Element, ...], float] = {(): 1.0}
    for element in inputs:
        extended: dict[tuple[Element, ...], float] = defaultdict(float)
        for free in itertools.product(group, repeat=shares - 1):
            rest = element
            for share in free:
                rest = plus(rest, tuple(-x for x in share), orders)
            for seen, mass in view.items():
                extended[tuple(sorted((*seen, *free, rest)))] += mass / len(group) ** (shares - 1)
        view = extended
    return view


@pytest.mark.parametrize(
    ("orders", "parties", "shares"),
    [((2,), 2, 2), ((2,), 2, 4), ((2,), 3, 3), ((2,), 3, 4), ((4,), 2, 3), ((2, 2), 2, 3), ((4,), 2, 4), ((4,), 3, 2)],
)
def test_the_shuffled_shares_tell_no_more_than_the_total_up_to_the_mixing_distance(
    orders: Element, parties: int, shares: int
) -> None:
    group = list(itertools.product(*map(range, orders)))
    bound = mixing_distance(parties=parties, shares=shares, bits=int(math.log2(len(group))))
    simulated = {total: views([total], parties * shares, orders) for total in group}
    distances = []
    for inputs in itertools.combinations_with_replacement(group, parties):
        total = group[0]
        for element in inputs:
            total = plus(total, element, orders)
        view = views(inputs, shares, orders)
        distances.append(sum(abs(view.get(seen, 0.0) - mass) for seen, mass in simulated[total].items()) / 2)
    assert 0 < max(distances) <= bound


@pytest.mark.parametrize(("parties", "shares"), [(2, 2), (2, 3), (2, 4), (3, 2), (4, 2)])
@pytest.mark.parametrize("bits", [1, 2])
def test_the_recursion_bounds_the_expectation_over_all_permutations(parties: int, shares: int, bits: int) -> None:
    places = parties * shares
    expectation = 0.0
    for order in itertools.permutations(range(places)):
        component = list(range(2 * parties))
        for place, target in enumerate(order):
            old, new = component[parties + target // shares], component[place // shares]
            component = [new if label == old else label for label in component]
        expectation += 2.0 ** (bits * (len(set(component)) - 1)) / math.factorial(places)
    exact = math.sqrt(expectation - 1) / 2
    bound = mixing_distance(parties=parties, shares=shares, bits=bits)
    assert min(1.0, exact) <= bound
    if parties == 2:  # where only the chance that everything is connected is bounded, by 1
        assert bound == pytest.approx(min(1.0, exact / math.sqrt(1 - 0.5**bits)), rel=1e-4)


def test_more_shares_mix_better_and_larger_groups_need_more() -> None:
    assert mixing_distance(parties=1, shares=1, bits=64) == 0.0
    assert mixing_distance(parties=5, shares=1, bits=64) == 1.0
    distances = [mixing_distance(parties=20, shares=k, bits=20) for k in range(8, 30)]
    assert all(0 < after < before for before, after in itertools.pairwise(distances))
    assert mixing_distance(parties=20, shares=20, bits=21) == pytest.approx(
        math.sqrt(2) * mixing_distance(parties=20, shares=20, bits=20), rel=1e-6
    )


def test_a_mix_of_too_many_parties_is_refused() -> None:
    with pytest.raises(AccountingError, match="combine some of them first"):
        mixing_distance(parties=10_001, shares=5, bits=8)
