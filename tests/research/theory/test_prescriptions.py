"""The paper's prescriptions: a worked example, whole numbers, corrections, refusals."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from ringfence.errors import AccountingError, PlanError
from ringfence.research.theory import bounds, prescriptions
from ringfence.research.theory.conversions import Availability, always, independent
from ringfence.research.theory.prescriptions import OnePassSchedule, Unbalanced
from tests.research.theory.worked import ROUGH, STRONG, WORKED


def test_the_worked_example() -> None:
    assert prescriptions.minibatch_rounds(WORKED) == 31_390
    assert prescriptions.erm_rounds(WORKED, printed=True) == math.ceil(19.15)
    assert prescriptions.erm_rounds(ROUGH) == 232
    assert round(prescriptions.smoothing_erm(ROUGH)) == 88
    assert prescriptions.one_pass(WORKED) == OnePassSchedule(math.ceil(97.03), 12, noise_dominated=False)
    rounds = prescriptions.shuffled_rounds(WORKED)
    assert rounds == pytest.approx(3.8e7, rel=0.01)
    assert prescriptions.shuffled_least_silos(WORKED, rounds=rounds) == math.ceil(605.3)
    with pytest.raises(PlanError, match=r"needs at least .* = 606 silos"):
        prescriptions.shuffled_noise(WORKED, rounds=rounds)


def test_the_smooth_rounds_are_corrected_so_that_smoothing_by_the_paper_s_choice_gives_the_non_smooth_rounds() -> None:
    assert prescriptions.erm_rounds(WORKED) == 25  # and not 20
    ell = math.log(1 / WORKED.delta)
    smooth = prescriptions.smoothed(ROUGH, prescriptions.smoothing_erm(ROUGH) / math.sqrt(ell))
    assert prescriptions.erm_rounds(smooth) == prescriptions.erm_rounds(ROUGH) == 232
    assert prescriptions.erm_rounds(smooth, printed=True) == 60  # which leaves an error 15 times the rate:
    rate, beta = bounds.empirical(ROUGH), smooth.smoothness
    assert beta is not None
    assert beta * 10.0**2 / 232**2 <= rate < 14 * rate < beta * 10.0**2 / 60**2


def test_sampled_batches_and_absent_silos_take_more_empirical_rounds() -> None:
    private = 1238**2 / (50 * math.log(1 / WORKED.delta))
    assert prescriptions.erm_rounds(WORKED, batch=10) == math.ceil(private / 10)
    some = replace(WORKED, available=12.0)
    assert prescriptions.erm_rounds(some) == math.ceil(13 / 24 * private)
    assert prescriptions.erm_rounds(some, printed=True) == math.ceil(
        math.sqrt(math.sqrt(2.5) * math.sqrt(12 * private))
    )
    assert prescriptions.erm_rounds(replace(some, heterogeneity=0.0)) < 25


def test_strongly_convex_rounds_are_whole_stages_unless_printed() -> None:
    stage = math.ceil(4 * math.sqrt(2 * 2.5))
    assert prescriptions.erm_rounds(STRONG) % stage == 0
    assert prescriptions.erm_rounds(STRONG, printed=True) < prescriptions.erm_rounds(STRONG)
    pass_ = prescriptions.one_pass(STRONG)
    assert pass_.rounds % stage == 0
    assert pass_.batch == 1238 // pass_.rounds
    assert prescriptions.one_pass(STRONG, printed=True).rounds < pass_.rounds
    assert prescriptions.erm_rounds(replace(STRONG, smoothness=None)) > prescriptions.erm_rounds(STRONG)


def test_a_pass_too_short_for_the_stages_is_refused_and_one_dominated_by_noise_takes_all_records_at_once() -> None:
    drowned = replace(WORKED, epsilon=1e-4)
    assert prescriptions.one_pass(drowned) == OnePassSchedule(1238, 1, noise_dominated=True)


def test_the_one_pass_batch_balances_the_two_terms_that_depend_on_it() -> None:
    ell = math.log(1 / WORKED.delta)
    K = (1 / 2.5) ** 0.4 * 1238**0.6 * (50 * ell / 25) ** 0.2
    start = 0.25 * 100 * K**2 / 1238**2
    noise = 10 * math.sqrt(50 * ell) / math.sqrt(K * 1238 * 25)
    assert start == pytest.approx(noise)
    assert prescriptions.one_pass(WORKED).batch == math.ceil(K)
    d_log = math.sqrt(50) * math.log(50 / WORKED.delta)
    K = (1 / 2.5) ** 0.4 * 1238**0.6 * (d_log / 25) ** 0.4
    assert pytest.approx(10 * d_log / (25 * math.sqrt(K * 1238))) == 0.25 * 100 * K**2 / 1238**2
    assert prescriptions.shuffled_one_pass(WORKED).batch == math.ceil(K)


def test_the_printed_step_is_the_smallest_of_its_limits() -> None:
    assert prescriptions.minibatch_step(WORKED, rounds=1) == 4.0  # 1/β
    assert prescriptions.minibatch_step(WORKED, rounds=100) == pytest.approx(1.0)  # D/(L√R)
    long = 10**6
    assert prescriptions.minibatch_step(WORKED, rounds=long) == pytest.approx(
        0.01 * math.sqrt(1238 * 25 / long)
    )  # √(nM/R)
    assert prescriptions.minibatch_step(replace(WORKED, epsilon=0.1), rounds=long) == pytest.approx(
        0.01 * 123.8 * 5 / math.sqrt(long * 50)
    )


def test_strongly_convex_minibatch_rounds() -> None:
    log = math.log(0.25 * 100 * 0.1 * 25 * 1238**2 / 50)
    assert prescriptions.minibatch_rounds(STRONG) == max(math.ceil(5 * log), 25 * 1238)
    assert prescriptions.minibatch_growth(strong_convexity=0.1, step=2.0) == 1.25


def test_smoothing_for_minibatch_costs_as_much_as_the_theorem_s_rate() -> None:
    beta = prescriptions.smoothing_minibatch(ROUGH)
    assert 1 / beta == pytest.approx(bounds.homogeneous(ROUGH))
    strong = replace(ROUGH, strong_convexity=0.1)
    assert 1 / prescriptions.smoothing_minibatch(strong) == pytest.approx(bounds.homogeneous(strong))


def test_smoothing_lowers_the_strong_convexity() -> None:
    smooth = prescriptions.smoothed(replace(ROUGH, strong_convexity=0.1), 0.9)
    assert smooth.strong_convexity == pytest.approx(0.1 * 0.9 / 1.0)
    assert smooth.lipschitz == ROUGH.lipschitz


def test_the_theorem_s_batch_grows_with_epsilon_until_it_does_not_fit() -> None:
    assert prescriptions.theorem_batch(WORKED, rounds=35) == math.ceil(
        1238 / (4 * math.sqrt(70 * math.log(2 * 1238**2)))
    )


CROWD = replace(WORKED, silos=1000, records=10, delta=1e-6, epsilon=0.5)


def test_shuffled_minibatch_is_for_crowds() -> None:
    rounds = prescriptions.shuffled_rounds(CROWD)
    assert rounds == math.ceil(10**2 * 1000**2 * 0.25 / 1000)
    logs = math.log(rounds * 1000 / 1e-6) * math.log(rounds / 1e-6) * math.log(1e6)
    sigma = prescriptions.shuffled_noise(CROWD, rounds=rounds)
    assert sigma**2 == pytest.approx(rounds * 1000 * logs / (10 * 1000 * 0.5) ** 2)
    scale = 10 / math.sqrt(rounds)
    assert prescriptions.shuffled_step(CROWD, rounds=rounds) == pytest.approx(
        min(4.0, scale * min(1, math.sqrt(10_000 / rounds), 5000 / math.sqrt(50 * rounds * logs)))
    )
    with pytest.raises(PlanError, match=r"ln\(2/δ\)"):
        prescriptions.require_shuffle(replace(CROWD, epsilon=20.0), rounds=rounds)


def test_the_third_term_of_the_shuffled_rounds_is_corrected() -> None:
    calm = replace(CROWD, epsilon=0.05, dimension=1)  # n²N²ε²/M = 250, less than nM
    assert prescriptions.shuffled_rounds(calm) == 10_000
    assert prescriptions.shuffled_rounds(calm, printed=True) == math.ceil(2.5 * 100)
    assert prescriptions.shuffled_rounds(replace(calm, strong_convexity=0.1)) == 10_000


def same(count: int, availability: Availability) -> Unbalanced:
    return Unbalanced([1238] * count, [1.0] * count, [WORKED.delta] * count, availability)


def test_equal_silos_are_a_special_case_of_unbalanced_ones() -> None:
    rounds = 1000
    ell = math.log(2.5 * rounds / WORKED.delta) * math.log(2 / WORKED.delta)
    xi = ell / 1238**2
    silos = same(25, independent(25, 0.5))
    assert silos.privacy(rounds) == pytest.approx(xi / silos.availability.harmonic)
    assert same(25, always(25)).privacy(rounds) == pytest.approx(xi / 25)


def test_the_average_noise_counts_when_silos_differ() -> None:
    mixed = Unbalanced([100] + [10_000] * 24, [1.0] * 25, [1e-9] * 25, always(20))
    worst = mixed.privacy(50) * 20
    assert worst < same(25, always(20)).privacy(50) * 20 * (1238 / 100) ** 2 / 10  # far below ξ_max


def test_unbalanced_rounds_are_the_least_that_fit_themselves() -> None:
    silos = same(25, independent(25, 0.9))
    rounds = prescriptions.unbalanced_rounds(silos, WORKED)

    def needed(R: int) -> float:
        crowd, private = 1238 * silos.availability.harmonic, 1 / (50 * silos.privacy(R))
        return 2.5 * math.sqrt(min(crowd, private)) + min(crowd, private)

    assert needed(rounds) <= rounds
    assert needed(rounds - 1) > rounds - 1
    strong = prescriptions.unbalanced_rounds(silos, STRONG)
    assert strong > 1238 * silos.availability.harmonic
    step = prescriptions.unbalanced_step(silos, WORKED, rounds=rounds)
    assert 0 < step <= 4.0


def test_unbalanced_noise_is_the_theorem_s_for_each_silo() -> None:
    silos = Unbalanced([1000, 2000], [1.0, 0.5], [1e-6, 1e-7], always(2))
    batches = prescriptions.unbalanced_batches(silos, rounds=50)
    share = 1.0 / (4 * math.sqrt(100 * math.log(2 / 1e-6)))
    assert batches == (math.ceil(1000 * share), math.ceil(2000 * share))
    noise = prescriptions.unbalanced_noise(silos, batches=[1000, 2000], rounds=50, clip=1.0)
    assert noise[1].sigma ** 2 == pytest.approx(
        256 * 50 * math.log(125 / 1e-7) * math.log(2 / 1e-7) / (2000 * 0.5) ** 2
    )


def test_weights_scale_the_constants() -> None:
    two = replace(STRONG, silos=2, variance=0.5)
    scaled = prescriptions.weighted(two, [0.75, 0.25])
    assert (scaled.lipschitz, scaled.smoothness, scaled.strong_convexity) == (1.5, 0.375, 0.05)
    assert scaled.variance == 0.5 * 1.5**2
    assert prescriptions.weighted(ROUGH, [1 / 25] * 25).smoothness is None
    with pytest.raises(PlanError, match="add up to 1"):
        prescriptions.weighted(two, [0.5, 0.6])


@pytest.mark.parametrize(
    ("prescribe", "words"),
    [
        (lambda: prescriptions.erm_rounds(WORKED, batch=1239), "larger than the 1238 records"),
        (lambda: prescriptions.erm_rounds(WORKED, batch=0), "whole number"),
        (lambda: prescriptions.one_pass(replace(STRONG, records=20, delta=1e-3, epsilon=20.0)), "single-run schedule"),
        (lambda: prescriptions.shuffled_one_pass(replace(WORKED, epsilon=16.0)), "epsilon up to 15"),
        (lambda: prescriptions.minibatch_growth(strong_convexity=0.1, step=10.0), "below 1/μ"),
        (lambda: prescriptions.theorem_batch(replace(WORKED, epsilon=30.0), rounds=1), "more rounds"),
        (
            lambda: prescriptions.unbalanced_batches(Unbalanced([10], [25.0], [1e-6], always(1)), rounds=1),
            "more rounds",
        ),
        (lambda: Unbalanced([10, 20], [1.0], [1e-6, 1e-6], always(1)), "same length"),
        (lambda: Unbalanced([10], [1.0], [1e-6], always(2)), "only 1 exist"),
        (lambda: Unbalanced([10], [40.0], [1e-6], always(1)), r"2 ln\(2/δ\)"),
    ],
)
def test_what_no_theorem_covers_is_refused(prescribe: Callable[[], object], words: str) -> None:
    with pytest.raises((AccountingError, PlanError), match=words):
        prescribe()
