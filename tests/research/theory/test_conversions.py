"""Conversions between privacy statements: against exact small cases, and the paper's claims about its own examples."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import stats

from ringfence.accounting.profiles import gaussian_delta
from ringfence.errors import AccountingError, PlanError
from ringfence.research.theory import conversions
from ringfence.research.theory.conversions import Availability, EpsilonDelta


def test_a_group_of_one_is_a_record_and_a_whole_silo_is_rarely_protected() -> None:
    assert conversions.central(1.0, 1e-6) == (1.0, 1e-6)
    assert conversions.group(0.5, 1e-6, 1) == EpsilonDelta(0.5, 1e-6)
    assert conversions.group(0.5, 1e-6, 3) == pytest.approx((1.5, 3 * math.e * 1e-6))
    assert conversions.user_level(1.0, 1e-6, 1000) == (1000.0, 1.0)
    assert conversions.user_level(0.001, 1e-9, 1000) == pytest.approx((1.0, 1000 * math.exp(0.999) * 1e-9))


@pytest.mark.parametrize("size", [2, 5])
def test_the_group_bound_holds_for_gaussian_noise(size: int) -> None:
    shift, epsilon = 0.3, 0.5
    delta = gaussian_delta(shift, epsilon)
    bound = conversions.group(epsilon, delta, size)
    assert gaussian_delta(size * shift, bound.epsilon) <= bound.delta


def test_the_split_of_a_budget_over_rounds_composes_back() -> None:
    for epsilon, delta, rounds in [(1.0, 1e-6, 1), (1.0, 1e-6, 100), (29.0, 1e-6, 7), (0.1, 0.3, 1000)]:
        each = conversions.per_round(epsilon, delta, rounds)
        whole = conversions.advanced_composition([each.epsilon] * rounds, [each.delta] * rounds, delta / 2)
        assert whole.epsilon <= epsilon
        assert whole.delta == pytest.approx(delta)


def test_the_short_form_of_composition_is_an_upper_bound() -> None:
    parts = [0.05, 0.9, 1.0]
    exact = conversions.advanced_composition(parts, [0.0] * 3, 1e-6)
    assert exact.epsilon <= conversions.local_to_central(parts, 1e-6)


def test_subsampling_beats_the_paper_s_simple_form() -> None:
    for epsilon in (0.1, 0.5, 1.0):
        for rate in (0.01, 0.3, 0.99):
            sampled = conversions.subsampled(epsilon, 1e-6, rate)
            assert sampled.epsilon <= min(epsilon, 2 * rate * epsilon)
    assert conversions.subsampled(2.0, 1e-6, 1.0) == pytest.approx((2.0, 1e-6))


def test_subsampled_randomized_response_is_exact() -> None:
    """Two records, one of which is asked at random: the privacy of the record is ln(1 + (e^ε − 1)/2) exactly."""
    epsilon = 1.0
    keep, other = conversions.randomized_response(2, epsilon)
    first, second = (keep + other) / 2, (other + other) / 2  # P(answer 1) for data (1, 0) and (0, 0)
    assert math.log(first / second) == pytest.approx(conversions.subsampled(epsilon, 0.0, 0.5).epsilon)


def test_total_variation_and_deletion() -> None:
    assert conversions.perturbed_delta(0.0, 0.1, 0.2) == pytest.approx(0.5)
    assert conversions.deletion_group(1.0, 1e-3) == pytest.approx((2.0, (1 + math.e) * 1e-3))
    assert conversions.perturbed_delta(1000.0, 1e-9, 0.0) == 1.0


def test_shuffling_needs_many_silos_or_a_tiny_epsilon() -> None:
    hidden = conversions.shuffled_round(0.005, 0.0, records=100, silos=10_000, slack=1e-6)
    assert hidden.epsilon < 0.005
    assert hidden.delta == 1e-6


def exact_shuffle(silos: int, epsilon: float, budget: float) -> float:
    """The δ at ``budget`` of N shuffled answers of binary randomized response, one record each, by enumeration."""
    keep, other = conversions.randomized_response(2, epsilon)
    counts = np.arange(silos + 1)
    worst = 0.0
    for ones in range(silos):  # of the silos that do not change
        rest = np.convolve(stats.binom.pmf(np.arange(ones + 1), ones, keep),
                           stats.binom.pmf(np.arange(silos - ones), silos - 1 - ones, other))  # fmt: skip
        zero = np.convolve(rest, [keep, other])
        one = np.convolve(rest, [other, keep])
        assert len(zero) == len(counts)
        for p, q in ((zero, one), (one, zero)):
            worst = max(worst, float(np.maximum(p - math.exp(budget) * q, 0).sum()))
    return worst


def test_the_shuffle_bound_holds_for_randomized_response() -> None:
    bound = conversions.shuffled_round(0.5, 0.0, records=1, silos=400, slack=1e-3)
    assert exact_shuffle(400, 0.5, bound.epsilon) <= bound.delta
    assert bound.epsilon < 0.5


def test_the_delta_after_shuffling_has_the_factor_that_the_paper_forgets() -> None:
    hidden = conversions.shuffled_round(0.001, 1e-12, records=10, silos=2000, slack=1e-8)
    moved = 2 * 2000 * 10 * math.exp(9 * 0.001) * 1e-12
    assert hidden.delta == pytest.approx(1e-8 + (math.exp(hidden.epsilon) + 1) * moved)
    alone = conversions.shuffled_sequential(0.1, 1e-12, records=10, silos=2000)
    assert alone.delta >= 11 * 10 * 2000 * 1e-12  # at ε = 1/n; the paper has 7


def test_rounds_after_a_shuffler() -> None:
    run = conversions.shuffled_run([0.005] * 10, [1e-14] * 10, records=100, silos=5000)
    single = conversions.shuffled_round(0.005, 1e-14, records=100, silos=5000, slack=5e-9)
    assert single.epsilon < run.epsilon < 10 * single.epsilon * 3
    assert run.delta == pytest.approx(10 * single.delta + 5e-8)
    order = conversions.shuffled_order(1.0, 1e-14, records=100, silos=5000, compositionality=2.0)
    assert order == pytest.approx(4 * math.log(1 / (5e5 * 1e-14)) / math.sqrt(5000))


def test_randomized_response_is_a_distribution_with_the_promised_ratio() -> None:
    keep, other = conversions.randomized_response(5, 1.3)
    assert keep + 4 * other == pytest.approx(1.0)
    assert keep / other == pytest.approx(math.exp(1.3))


def transcript(secret: int, answers: tuple[int, ...], universe: int, epsilon: float) -> float:
    """The probability of the answers of the paper's Algorithm 3, corrected: in round r the secret e_r is answered by
    randomized response, and any other by a uniform element; as printed it is silent then, which reveals it.
    """
    keep, other = conversions.randomized_response(universe, epsilon)
    probability = 1.0
    for r, answer in enumerate(answers):
        probability *= (keep if answer == r else other) if secret == r else 1 / universe
    return probability


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_algorithm_that_is_not_compositional(epsilon: float) -> None:
    """Over all transcripts it is exactly ε-DP, while its rounds' epsilons add up to √d times their size."""
    d = 4
    worst = max(
        math.log(transcript(x, answers, d, epsilon) / transcript(y, answers, d, epsilon))
        for answers in product(range(d), repeat=d)
        for x in range(d)
        for y in range(d)
    )
    assert worst == pytest.approx(epsilon)  # 2ε would be true but not tight: the two rounds cannot both be worst
    assert sum(transcript(0, answers, d, epsilon) for answers in product(range(d), repeat=d)) == pytest.approx(1.0)
    keep, other = conversions.randomized_response(d, epsilon)
    single = max(math.log(keep * d), -math.log(other * d))  # the least epsilon of one round
    assert single < epsilon
    C = conversions.compositionality([single] * d, epsilon)
    assert pytest.approx(math.sqrt(d) * single / epsilon) == C
    assert conversions.compositionality([epsilon] * d, epsilon) == pytest.approx(math.sqrt(d))


def test_not_compositional_means_growing_with_the_universe() -> None:
    ratios = []
    for d in (4, 100, 2500):
        keep, other = conversions.randomized_response(d, 0.5)
        ratios.append(conversions.compositionality([max(math.log(keep * d), -math.log(other * d))] * d, 0.5))
    assert ratios[0] > 1.3
    assert conversions.compositionality([0.7] * 9, 0.7) == pytest.approx(3.0)  # one pass: the root of its rounds
    assert ratios[2] / ratios[1] == pytest.approx(5, rel=0.02)


def test_m_is_a_harmonic_mean() -> None:
    many = conversions.independent(25, 0.5)
    assert (many.mean, many.harmonic, many.quadratic) == pytest.approx((12.5, 11.95, 11.64), rel=5e-4)
    few = conversions.independent(10, 0.5)
    assert (few.mean, few.harmonic, few.quadratic) == pytest.approx((5.0, 4.36, 3.91), rel=2e-3)
    assert (few.most, many.most) == (10, 25)
    fixed = conversions.always(7)
    assert fixed.mean == fixed.harmonic == pytest.approx(fixed.quadratic) == pytest.approx(7.0)
    assert conversions.independent(3, 1.0).harmonic == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("convert", "words"),
    [
        (lambda: conversions.group(1.0, 1e-6, 0), "size"),
        (lambda: conversions.per_round(30.0, 1e-6, 7), "2 ln"),
        (lambda: conversions.advanced_composition([1.0, 1.0], [1e-6], 1e-6), "same length"),
        (lambda: conversions.advanced_composition([1.0], [1e-6], 0.0), "slack"),
        (lambda: conversions.local_to_central([1.1], 1e-6), "at most 1"),
        (lambda: conversions.subsampled(1.0, 1e-6, 0.0), "sampling rate"),
        (lambda: conversions.shuffled_round(0.01, 0.0, records=100, silos=25, slack=1e-6), "proved to help only if"),
        (lambda: conversions.shuffled_run([0.005], [1e-5], records=100, silos=5000), "less than"),
        (lambda: conversions.shuffled_order(100.0, 1e-14, records=100, silos=5000), "√N"),
        (lambda: conversions.randomized_response(1, 1.0), "at least 2"),
        (lambda: Availability({0: 0.5, 1: 0.5}), "At least one silo"),
        (lambda: Availability({1: 0.5, 2: 0.4}), "add up to 1"),
    ],
)
def test_what_no_theorem_covers_is_refused(convert: Callable[[], object], words: str) -> None:
    with pytest.raises((AccountingError, PlanError), match=words):
        convert()
