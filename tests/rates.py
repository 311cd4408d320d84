"""Statistical tests with two rates, both at most one in a million and both computed from exact distributions.

A false alarm is a test that fails though the code is right. A miss is one that passes though the code is wrong in the
way, and by as much, as the test says that it notices. A test that takes too few numbers for what it says fails always.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringfence.protocol import FloatArray

FALSE_ALARM = 2.5e-7
MISS = 2.5e-7
"""Of each check here, so that a test that makes four of them has rates of one in a million."""

_TOO_FEW = "too few numbers to notice that so surely"
_ELSEWHERE = -(10**9)


def check_deviation(noise: FloatArray, sigma: float, *, notices: float) -> None:
    """Check independent Gaussian numbers of mean 0 for their standard deviation, by their sum of squares.

    It notices one that is at least `notices` times as large as it should be, or as many times smaller.
    """
    law = stats.chi2(noise.size)
    low, high = law.ppf(FALSE_ALARM / 2), law.isf(FALSE_ALARM / 2)
    assert max(law.cdf(high / notices**2), law.sf(low * notices**2)) <= MISS, _TOO_FEW
    assert low < np.sum((noise / sigma) ** 2) < high


def check_shape(standardised: FloatArray, *, notices: float) -> None:
    """Check independent numbers for being standard normal: how far their distribution function is off anywhere.

    It notices a law whose distribution function is off by `notices` somewhere. How far a sample's function is from its
    law's has the bound 2·exp(−2nt²) of Dvoretzky, Kiefer, Wolfowitz and Massart for every law.
    """
    allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * standardised.size))
    assert 2 * math.exp(-2 * standardised.size * max(0.0, notices - allowed) ** 2) <= MISS, _TOO_FEW
    assert stats.kstest(standardised, "norm").statistic < allowed


def check_uncorrelated(first: FloatArray, second: FloatArray, *, notices: float) -> None:
    """Check pairs of Gaussian numbers of one deviation, each pair independent of the others, for their correlation.

    Σ(x+y)² and Σ(x−y)² are independent, and with correlation ρ their ratio is (1+ρ)/(1−ρ) times one of Fisher's F. It
    notices a ρ of at least `notices`, positive or negative.
    """
    law = stats.f(first.size, first.size)
    high = law.isf(FALSE_ALARM / 2)  # and by symmetry 1/high is the other end
    assert law.cdf(high * (1 - notices) / (1 + notices)) <= MISS, _TOO_FEW
    assert 1 / high < np.sum((first + second) ** 2) / np.sum((first - second) ** 2) < high


def check_counts(counts: NDArray[np.int64], runs: int, probability: float, *, notices: float) -> None:
    """Check how often each of several things happened in so many runs, where each has the same probability.

    The things need not be independent of each other. It notices one that has probability `notices`.
    """
    low, high = _usual(runs, probability, FALSE_ALARM / len(counts))
    assert _unnoticed(runs, notices, low, high) <= MISS, _TOO_FEW
    assert low <= counts.min() <= counts.max() <= high


def check_frequencies(seen: NDArray[np.int64], law: Mapping[int, float], *, notices: Mapping[int, float]) -> None:
    """Check how often each value was seen for its exact probability; what the law does not list is one more value.

    It notices the law `notices`.
    """
    limits = {
        value: _usual(len(seen), probability, FALSE_ALARM / (len(law) + 1))
        for value, probability in {**law, _ELSEWHERE: _rest(law, law)}.items()
    }
    wrong = {**notices, _ELSEWHERE: _rest(notices, law)}
    # All values must look usual to miss a wrong law: the most telling one by itself bounds how likely that is.
    unnoticed = min(_unnoticed(len(seen), wrong.get(value, 0.0), *ends) for value, ends in limits.items())
    assert unnoticed <= MISS, _TOO_FEW
    counts = {value: int(np.sum(seen == value)) for value in law}
    counts[_ELSEWHERE] = len(seen) - sum(counts.values())
    for value, (low, high) in limits.items():
        assert low <= counts[value] <= high, value


def _rest(law: Mapping[int, float], listed: Mapping[int, float]) -> float:
    return max(0.0, 1.0 - math.fsum(law.get(value, 0.0) for value in listed))


def _usual(runs: int, probability: float, alarm: float) -> tuple[int, int]:
    """Return limits that a binomial count leaves, on either side, with probability alarm/2 at most."""
    if probability == 0.0:
        return 0, 0
    law = stats.binom(runs, probability)
    return int(law.ppf(alarm / 2)), int(law.isf(alarm / 2))


def _unnoticed(runs: int, probability: float, low: int, high: int) -> float:
    law = stats.binom(runs, probability)
    return float(law.cdf(high) - law.cdf(low - 1))
