"""A draw is decided by as many bits as it needs, and then exactly.

Statistical tests state what they notice; both of their rates are 10⁻⁶ at most (`tests.rates`).
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from ringfence.silo.noise.exact_draws import Inversion, Weights, choices, exponential, lies_below, thresholds, uniform
from tests.rates import check_counts, check_frequencies

EXPONENTS = [Fraction(0), Fraction(1, 512), Fraction(3, 7), Fraction(1), Fraction(5, 2), Fraction(40)]


def exactly(exponent: Fraction, bits: int) -> Decimal:
    """Return 2^bits·exp(−exponent), by the standard library, which rounds it rightly to 100 digits."""
    with localcontext() as context:
        context.prec = 100
        return (Decimal(-exponent.numerator) / exponent.denominator).exp() * (Decimal(2) ** bits)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("bits", [1, 13, 64, 200])
def test_bounds_hold_the_exponential_between_them(exponent: Fraction, bits: int) -> None:
    low, high = exponential(exponent.numerator, exponent.denominator, bits)
    assert low <= exactly(exponent, bits) <= high


@pytest.mark.parametrize("exponent", [one for one in EXPONENTS if one <= 1])
def test_bounds_are_as_close_as_the_bits_allow(exponent: Fraction) -> None:
    low, high = exponential(exponent.numerator, exponent.denominator, 128)
    assert high - low <= (1 if exponent else 0)


def falling(bits: int) -> Weights:
    """Bound exp(−k/2), k = 0 … 4."""
    bounds = [exponential(k, 2, bits) for k in range(5)]
    return Weights([low for low, _ in bounds], [high for _, high in bounds], 0)


def endless(bits: int) -> Weights:
    """Bound 2^-k, k = 0, 1, …: exactly, as far as the bits go."""
    return Weights([1 << bits - k for k in range(bits)], [1 << bits - k for k in range(bits)], 2)


def law_of_falling() -> list[float]:
    mass = [math.exp(-k / 2) for k in range(5)]
    return [one / math.fsum(mass) for one in mass]


@pytest.mark.parametrize("bits", [5, 20, 63, 200])
def test_thresholds_hold_the_distribution_function_between_them(bits: int) -> None:
    lows, highs = thresholds(falling, bits)
    mass = [exactly(Fraction(k, 2), 0) for k in range(5)]
    with localcontext() as context:
        context.prec = 100
        for k, (low, high) in enumerate(zip(lows, highs, strict=True)):
            function = sum(mass[: k + 1], Decimal(0)) / sum(mass, Decimal(0)) * Decimal(2) ** bits
            assert low <= function <= high <= low + 1
    assert lows[-1] == highs[-1] == 2**bits


@pytest.mark.parametrize("bits", [1, 4, 63])
def test_outcomes_have_their_probabilities_however_few_bits_are_looked_at_first(bits: int) -> None:
    """With one bit every draw needs more of them. Equal probabilities are noticed."""
    drawn = Inversion(falling, bits).draw(uniform(8_000) >> np.uint64(64 - bits))
    law = dict(enumerate(law_of_falling()))
    check_frequencies(drawn, law, notices=dict.fromkeys(range(5), 0.2))


@pytest.mark.parametrize("bits", [2, 8])
def test_outcomes_without_end_come_with_their_probabilities(bits: int) -> None:
    """Outcomes that fall off twice as fast are noticed."""
    drawn = Inversion(endless, bits).draw(uniform(8_000) >> np.uint64(64 - bits))
    law = {k: 2.0 ** -(k + 1) for k in range(12)}
    check_frequencies(drawn, law, notices={k: 4.0**-k * 0.75 for k in range(12)})


def test_a_word_decides_alone_unless_it_holds_a_threshold() -> None:
    """Of all words of ten bits, those that are decided at once are decided rightly."""
    words = np.arange(1024, dtype=np.uint64)
    drawn = Inversion(falling, 10).draw(words)
    function = np.cumsum(law_of_falling())[:-1] * 1024
    held = np.isin(words, np.floor(function).astype(np.uint64))
    assert held.sum() == 4
    expected = np.searchsorted(function, words[~held].astype(np.float64))
    assert np.array_equal(drawn[~held], expected)


@pytest.mark.parametrize("exponent", [Fraction(1, 9), Fraction(1, 2), Fraction(7, 3)])
@pytest.mark.parametrize("bits", [1, 5])
def test_comparing_with_a_real_number_is_exact_however_few_bits_are_looked_at_first(
    exponent: Fraction, bits: int
) -> None:
    """A probability that is off by 0.03 is noticed: drawing anew what is undecided would be off by more."""

    def bounds(of: int) -> tuple[int, int]:
        return exponential(exponent.numerator, exponent.denominator, of)

    words = uniform(40_000) >> np.uint64(64 - bits)
    below = sum(lies_below(int(word), bits, bounds) for word in words)
    probability = math.exp(-exponent)
    for wrong in (probability - 0.03, probability + 0.03):
        check_counts(np.array([below]), len(words), probability, notices=wrong)


def test_a_number_that_is_a_fraction_of_the_bits_is_compared_without_further_ones() -> None:
    def three_quarters(bits: int) -> tuple[int, int]:
        return 3 << bits - 2, 3 << bits - 2

    assert [lies_below(word, 2, three_quarters) for word in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("many", [1, 2, 3, 7, 100, 128, 129, 255, 256])
def test_of_all_words_equally_many_choose_each_number(many: int) -> None:
    numbers, fair = choices(np.arange(256, dtype=np.uint64), 8, many)
    assert np.bincount(numbers[fair]).tolist() == [256 // many] * many
