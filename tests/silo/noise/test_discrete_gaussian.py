"""Our draws and OpenDP's have one distribution, and what floating point decides, whole numbers decide alike.

Statistical tests state what they notice; both of their rates are 10⁻⁶ at most (`tests.rates`). OpenDP's sampler takes
the same tests as ours.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from ringfence.silo.noise import discrete_gaussian as module
from ringfence.silo.noise.discrete_gaussian import NEAR, STRIPS, discrete_gaussian, exactly_keep, keep, strip_weights
from ringfence.silo.noise.exact_draws import exponential, thresholds
from tests.rates import check_deviation, check_frequencies, check_shape

enable_features("contrib")  # OpenDP's name for measurements whose proofs its own team has not yet reviewed


def reference_noise(count: int, scale: float) -> NDArray[np.int64]:
    """Draw discrete Gaussian numbers with OpenDP's exact sampler."""
    space = vector_domain(atom_domain(T=float, nan=False), size=count), l2_distance(T=float)
    return np.array(make_gaussian(*space, scale=scale, k=0)([0.0] * count)).astype(np.int64)


Sampler = Callable[[int, float], NDArray[np.int64]]
SAMPLERS = pytest.mark.parametrize("sampler", [discrete_gaussian, reference_noise])
FINE = 0.37 * 2.0**32
"""A scale as real noise has it, between 2³⁰ and 2³¹."""


def law(scale: float) -> dict[int, float]:
    reach = math.ceil(9 * scale)
    mass = {x: math.exp(-x * x / (2 * scale * scale)) for x in range(-4 * reach, 4 * reach + 1)}
    total = math.fsum(mass.values())
    return {x: mass[x] / total for x in range(-reach, reach + 1)}


def heavier(of: dict[int, float], where: set[int]) -> dict[int, float]:
    """Return the law that gives twice the weight to some values."""
    mass = {x: (2 if x in where else 1) * probability for x, probability in of.items()}
    total = math.fsum(mass.values())
    return {x: one / total for x, one in mass.items()}


@SAMPLERS
@pytest.mark.parametrize("scale", [0.6, 1.0, 1.7])
def test_on_a_coarse_grid_every_number_has_its_exact_probability(sampler: Sampler, scale: float) -> None:
    """Zero that counts twice, once for each sign, is noticed, and a scale that is an eighth larger."""
    drawn = sampler(40_000, scale)
    for wrong in (heavier(law(scale), {0}), law(1.125 * scale)):
        check_frequencies(drawn, law(scale), notices=wrong)


@SAMPLERS
def test_where_strips_meet_no_number_is_in_both(sampler: Sampler) -> None:
    """At this scale a strip holds two or three numbers. That the first of each comes twice as often is noticed."""
    scale = 40.7
    first = {math.ceil(strip * scale / STRIPS) for strip in range(1, NEAR)}
    first |= {-z for z in first}
    drawn = sampler(20_000, scale)
    check_deviation(drawn.astype(np.float64), scale, notices=1.06)
    share, wrong = (math.fsum(of[z] for z in first & of.keys()) for of in (law(scale), heavier(law(scale), first)))
    check_frequencies(np.isin(drawn, list(first)).astype(np.int64), {1: share}, notices={1: wrong})


@SAMPLERS
def test_on_a_fine_grid_numbers_are_gaussian_and_so_are_their_sums(sampler: Sampler) -> None:
    drawn = sampler(40_000, FINE).astype(np.float64)
    check_deviation(drawn, FINE, notices=1.04)
    check_shape(drawn / FINE, notices=0.03)
    sums = drawn.reshape(-1, 4).sum(axis=1)
    check_deviation(sums, 2 * FINE, notices=1.08)


def test_a_million_numbers_are_as_gaussian_as_a_million_can_tell() -> None:
    drawn = discrete_gaussian(1_000_000, FINE)
    check_deviation(drawn.astype(np.float64), FINE, notices=1.009)
    check_shape(drawn / FINE, notices=0.006)
    within = np.abs(drawn) * STRIPS / FINE % 1  # where in its strip a number lies: its density falls by little
    law_within = dict(enumerate(within_strips()))
    for part in range(16):
        larger = {one: share * (1.05 if one == part else 1.0) for one, share in law_within.items()}
        total = math.fsum(larger.values())
        wrong = {one: share / total for one, share in larger.items()}
        check_frequencies((within * 16).astype(np.int64), law_within, notices=wrong)


def within_strips() -> NDArray[np.float64]:
    """Return the probability of each sixteenth of a strip, over all strips."""
    ends = np.arange(16 * NEAR + 1) / (16 * STRIPS)
    function = np.array([math.erf(end / math.sqrt(2)) for end in ends])
    shares: NDArray[np.float64] = np.diff(function).reshape(-1, 16).sum(axis=0)
    return shares


def test_numbers_that_whole_numbers_decide_have_the_same_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw takes the slow path. A scale that is a quarter larger is noticed."""
    monkeypatch.setattr(module, "ERROR", 2.0)
    drawn = discrete_gaussian(20_000, 1.7)
    check_frequencies(drawn, law(1.7), notices=law(1.25 * 1.7))


def edge_cases(scale: float) -> list[tuple[int, int]]:
    """Return numbers at both ends and in the middle of every strip, with their strips."""
    cases = []
    for strip in range(NEAR):
        begin = math.ceil(Fraction(scale) * strip / STRIPS)
        end = math.ceil(Fraction(scale) * (strip + 1) / STRIPS)
        cases += [(z, strip) for z in {begin, (begin + end) // 2, end - 1} if begin <= z < end]
    return cases


@pytest.mark.parametrize("scale", [0.6, 17.3, 2.0**30, FINE, math.nextafter(2.0**31, 0), math.pi * 2**33])
def test_floating_point_is_no_further_off_than_the_proof_says(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is off by less than 2⁻⁴⁴. With that allowed for, it decides what is 2⁻⁴³ away alone, and rightly."""

    def unasked(*_: object) -> bool:
        raise AssertionError("floating point did not decide")

    monkeypatch.setattr(module, "ERROR", 2.0**-44)
    monkeypatch.setattr(module, "exactly_keep", unasked)
    chosen: list[tuple[int, int, int, bool]] = []
    for z, strip in edge_cases(scale):
        gamma = ((z / Fraction(scale)) ** 2 - Fraction(strip, STRIPS) ** 2) / 2
        low, high = exponential(gamma.numerator, gamma.denominator, 64)
        chosen.append((z, strip, low - 2**21 - 1, True))
        if high + 2**21 < 2**64:
            chosen.append((z, strip, high + 2**21, False))
    numbers, strips, words, expected = zip(*chosen, strict=True)
    kept = keep(np.array(numbers), np.array(strips), np.array(words, dtype=np.uint64), scale)
    assert kept.tolist() == list(expected)


@pytest.mark.parametrize("scale", [0.6, FINE])
def test_whole_numbers_decide_the_closest_cases_and_strips_far_out(scale: float) -> None:
    far = (math.ceil(Fraction(scale) * 16 * STRIPS / STRIPS), 16 * STRIPS)
    for z, strip in [*edge_cases(scale)[::7], far]:
        gamma = ((z / Fraction(scale)) ** 2 - Fraction(strip, STRIPS) ** 2) / 2
        low, high = exponential(gamma.numerator, gamma.denominator, 64)
        words = [low - 1, *([high] if high < 2**64 else [])]
        assert [exactly_keep(z, strip, word, scale) for word in words] == [True, False][: len(words)]
        kept = keep(np.full(len(words), z), np.full(len(words), strip), np.array(words, dtype=np.uint64), scale)
        assert kept.tolist() == [True, False][: len(words)]


@pytest.mark.parametrize("bits", [63, 127])
def test_strips_have_the_weights_of_the_discrete_gaussian_of_scale_sixteen(bits: int) -> None:
    """Its distribution function by fractions with a thousand bits, whose tail is below 2⁻⁷⁰⁰."""
    weights = [exponential(strip**2, 2 * STRIPS**2, 1000)[0] for strip in range(512)]
    total = sum(weights)
    lows, highs = thresholds(strip_weights, bits)
    reached = 0
    for low, high, weight in zip(lows, highs, weights, strict=False):
        reached += weight
        assert low <= Fraction(reached << bits, total) <= high <= low + 1


def test_strips_are_wide_enough_that_few_draws_are_undecided() -> None:
    lows, _ = thresholds(strip_weights, 63)
    assert len(lows) < 256
    assert 1 - lows[NEAR - 1] / 2**63 < 2.0**-50
    assert 0.625**14 / math.factorial(14) < 2.0**-45


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.4, 2.0**36, math.inf, math.nan])
def test_scales_for_which_nothing_is_proved_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        discrete_gaussian(1, scale)


@pytest.mark.parametrize("count", [0, 1, 2, 33, 70_001])
def test_there_are_as_many_numbers_as_were_asked_for(count: int) -> None:
    assert len(discrete_gaussian(count, FINE)) == count


def test_the_last_bit_of_a_word_is_the_sign_and_decides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(0).integers(2**64, size=(3, 5000), dtype=np.uint64)

    def kept(flipped: int) -> NDArray[np.int64]:
        given = [words[0] ^ np.uint64(flipped), words[1], words[2]]
        monkeypatch.setattr(module, "uniform", lambda count: given.pop(0)[:count])
        return module._kept(5000, 100.0)

    found, opposite = kept(0), kept(1)
    assert np.array_equal(found[found != 0], -opposite[opposite != 0])
    assert np.any(found > 0)
    assert np.any(found < 0)
