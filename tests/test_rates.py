"""The checks of statistical tests pass what is right, notice what they say, and refuse to be made with too few numbers.

The numbers here are seeded: these tests have no rates of their own.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tests.rates import check_counts, check_deviation, check_frequencies, check_shape, check_uncorrelated

COIN, BENT = {0: 0.5, 1: 0.5}, {0: 0.4, 1: 0.6}


def deviation(random: np.random.Generator, count: int, wrong: bool) -> None:
    check_deviation(random.normal(size=count) * (1.1 if wrong else 1.0), 1.0, notices=1.1)


def shape(random: np.random.Generator, count: int, wrong: bool) -> None:
    numbers = random.uniform(-(3**0.5), 3**0.5, size=count) if wrong else random.normal(size=count)
    check_shape(numbers, notices=0.056)  # so far off is a uniform law of the same variance


def correlation(random: np.random.Generator, count: int, wrong: bool) -> None:
    first, second = random.normal(size=(2, count))
    check_uncorrelated(first, 0.1 * first + 0.995 * second if wrong else second, notices=0.1)


def counts(random: np.random.Generator, count: int, wrong: bool) -> None:
    found = random.binomial(count, 0.5, size=20)
    found[3] = random.binomial(count, 0.6 if wrong else 0.5)
    check_counts(found, count, 0.5, notices=0.6)


def frequencies(random: np.random.Generator, count: int, wrong: bool) -> None:
    check_frequencies(random.binomial(1, 0.6 if wrong else 0.5, size=count), COIN, notices=BENT)


CHECKS = [deviation, shape, correlation, counts, frequencies]
Check = Callable[[np.random.Generator, int, bool], None]


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_right_passes_and_what_is_wrong_is_noticed(check: Check) -> None:
    for seed in range(20):
        check(np.random.default_rng(seed), 20_000, False)
        with pytest.raises(AssertionError) as noticed:
            check(np.random.default_rng(seed), 20_000, True)
        assert "too few" not in str(noticed.value)


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_with_too_few_numbers_for_what_it_says_fails_always(check: Check) -> None:
    with pytest.raises(AssertionError, match="too few numbers to notice"):
        check(np.random.default_rng(0), 100, False)


def test_a_value_that_the_law_does_not_list_is_noticed() -> None:
    seen = np.random.default_rng(0).binomial(1, 0.5, size=20_000)
    seen[:10] = 7
    with pytest.raises(AssertionError):
        check_frequencies(seen, COIN, notices=BENT)
