"""The tails that losses are discretised by err by less than the code allows for: Lemma A13 of docs/proofs.md."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from flint import arb, ctx
from scipy.special import erfcx, ndtr

from ringfence.accounting import accountant, pld
from ringfence.accounting.profiles import FixedSizeProfile, GaussianProfile, PoissonProfile, Profile
from ringfence.protocol import FloatArray
from tests.accounting.tail_bounds import (
    ERFCX,
    FEW,
    FURTHEST,
    LARGEST,
    LOG_ODDS,
    MANY,
    MATH,
    NUMPY,
    Bound,
    Interval,
    first_uncovered,
    fixed_size,
    gaussian,
    ndtr_error,
    poisson,
    poisson_near_zero,
)

BOXES = [
    (gaussian, ((-LARGEST / 2, FURTHEST), (0.0, LARGEST))),
    (fixed_size, ((-LARGEST / 2, FURTHEST), (0.0, LARGEST), LOG_ODDS)),
    (poisson, ((-MANY, FURTHEST), (0.0, MANY), LOG_ODDS)),
    (poisson, ((-LARGEST / 2, FURTHEST), (MANY, LARGEST / 2), LOG_ODDS)),
    (poisson_near_zero, ((0.0, FEW), (MANY, LARGEST / 2), LOG_ODDS)),
]
SHIFTS = [1e-4, 1e-2, 0.3, 3.0, 20.0, 300.0]
PROFILES = [
    *(GaussianProfile(shift) for shift in SHIFTS),
    *(
        kind(rate, shift)
        for kind in (FixedSizeProfile, PoissonProfile)
        for rate in (1e-12, 1e-8, 0.1, 0.99)
        for shift in SHIFTS
    ),
]


def above(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


@pytest.mark.parametrize(("bound", "box"), BOXES)
def test_the_allowance_covers_the_errors_of_every_profile_at_every_loss(
    bound: Callable[[tuple[Interval, ...]], Bound | None], box: tuple[Interval, ...]
) -> None:
    assert first_uncovered(bound, box) is None


def test_every_rate_and_shift_that_the_accountant_takes_lies_in_the_boxes() -> None:
    assert LARGEST == accountant.LARGEST_SHIFT
    rates = [accountant.SMALLEST_RATE, 1 - 2.0**-53]
    assert all(LOG_ODDS[0] < math.log((1 - rate) / rate) < LOG_ODDS[1] for rate in rates)
    assert above(arb(FURTHEST)) < 1e-148


def uniform(low: float, high: float) -> FloatArray:
    return np.random.default_rng(7).uniform(low, high, 4000)


def of_any_size(low: float, high: float) -> FloatArray:
    return np.exp(uniform(low, high))


LIBRARY: list[tuple[str, Callable[[FloatArray], FloatArray], Callable[[arb], arb], FloatArray, float]] = [
    ("exp", np.exp, arb.exp, -of_any_size(-40, 6.5), NUMPY),
    ("log", np.log, arb.log, of_any_size(-700, 0), NUMPY),
    ("expm1", np.expm1, arb.expm1, of_any_size(-40, 0), NUMPY),
    ("expm1 below 0", np.expm1, arb.expm1, -of_any_size(-40, 14), NUMPY),
    ("log1p", np.log1p, arb.log1p, of_any_size(-40, 40), NUMPY),
    ("log1p below 0", np.log1p, arb.log1p, -uniform(1e-16, 0.37), NUMPY),
    ("sinh", np.sinh, arb.sinh, of_any_size(-700, 6), NUMPY),
    ("arcsinh", np.arcsinh, arb.asinh, of_any_size(-700, 0), NUMPY),
    ("math.log", np.vectorize(math.log), arb.log, of_any_size(-28, 37), MATH),
    ("math.exp", np.vectorize(math.exp), arb.exp, uniform(-40, 700), MATH),
    ("erfcx", erfcx, lambda x: (x * x).exp() * x.erfc(), of_any_size(-40, 6), ERFCX),
    ("erfcx near 0", erfcx, lambda x: (x * x).exp() * x.erfc(), uniform(0, 20), ERFCX),
]


def require_accuracy(
    values: FloatArray, found: FloatArray, exact: Callable[[arb], arb], units: Callable[[arb], arb | float]
) -> None:
    """Fail unless each number found is within so many u of the exact one, relatively."""
    with ctx.workprec(128):
        for value, number in zip(map(arb, values.tolist()), map(arb, found.tolist()), strict=True):
            truth = exact(value)
            assert abs(number - truth) <= units(value) * 2.0**-53 * abs(truth)


@pytest.mark.parametrize(
    ("function", "exact", "values", "units"), [row[1:] for row in LIBRARY], ids=[row[0] for row in LIBRARY]
)
def test_the_libraries_functions_err_by_no_more_than_the_lemma_s_premise(
    function: Callable[[FloatArray], FloatArray], exact: Callable[[arb], arb], values: FloatArray, units: float
) -> None:
    require_accuracy(values, function(values), exact, lambda _: units)


def test_the_normal_tail_errs_by_no_more_than_the_lemma_s_premise() -> None:
    values = np.concatenate([uniform(-40, 0), uniform(0, 3), uniform(0, FURTHEST)])
    require_accuracy(values, ndtr(-values), above, ndtr_error)


def exact_tails(profile: Profile, loss: float) -> tuple[arb, arb, tuple[arb, ...]]:
    """Return P(loss > e), e^e Q(loss > e), and the parameters that the lemma states its bound in."""
    e, s = arb(loss), arb(profile.shift)
    if isinstance(profile, PoissonProfile):
        q, h = arb(profile.rate), s / 2
        x = (e / 2 + ((1 - q) / q * (h * h / 2).exp() * (e / 2).sinh()).asinh()) / h
        tails = (1 - q) * above(x) + q * above(x - h), e.exp() * ((1 - q) * above(x) + q * above(x + h))
        return *tails, (x - h, h, ((1 - q) / q).log())
    q = arb(profile.rate) if isinstance(profile, FixedSizeProfile) else arb(1)
    x = (1 + e.expm1() / q).log() / s + s / 2
    given = (x - s, s) if isinstance(profile, GaussianProfile) else (x - s, s, ((1 - q) / q).log())
    return (1 - q) * above(x) + q * above(x - s), e.exp() * above(x), given


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_what_tails_err_by_is_within_the_bound_that_the_lemma_derives(profile: Profile) -> None:
    """The bound is derived by hand, and here it meets the code, at points: no error may exceed it."""
    bounds: dict[type[Profile], Callable[[tuple[Interval, ...]], Bound | None]]
    bounds = {GaussianProfile: gaussian, FixedSizeProfile: fixed_size, PoissonProfile: poisson}
    grid = pld.thresholds(profile, 10)
    grid = grid[:: max(1, len(grid) // 40)]
    tails = profile.tails(grid)
    for loss, above_p, scaled_above_q in zip(grid.tolist(), *(tail.tolist() for tail in tails), strict=True):
        with ctx.workprec(400):
            p, q, given = exact_tails(profile, loss)
            errors = abs((arb(above_p) - arb(scaled_above_q)) - (p - q)), abs(arb(above_p) - p)
        point = tuple((float(value.mid()), float(value.mid())) for value in given)
        bound = bounds[type(profile)]
        if bound is poisson and point[1][0] >= MANY and point[0][0] + point[1][0] < FEW:
            bound, point = poisson_near_zero, ((point[0][0] + point[1][0],) * 2, *point[1:])
        found = bound(point)
        assert found is not None
        for error, derived in zip(errors, found[:2], strict=True):
            assert error / p <= derived * 1.01 * 2.0**-53


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_on_a_grid_a_profile_is_nowhere_lower_however_close_or_far_apart_its_losses_are(profile: Profile) -> None:
    rng = np.random.default_rng(11)
    likely = pld.thresholds(profile, 10)[1:]
    for spread in (1e-15, 1e-9, 1e-5):
        some = rng.choice(likely, 8, replace=False)
        grid = np.unique(np.concatenate([[0.0], some, some * (1 + spread), some * (1 + 3 * spread)]))
        rounded = pld.discretise(profile, grid)
        masses = list(map(arb, rounded.masses[len(grid) :].tolist()))  # of the losses above 0
        with ctx.workprec(200):
            for place, loss in enumerate(grid.tolist()):
                higher = zip(masses[place:], grid[place + 1 :].tolist(), strict=True)
                delta = arb(rounded.infinite) + sum(
                    (mass * -(arb(loss) - other).expm1() for mass, other in higher), arb(0)
                )
                p, q, _ = exact_tails(profile, loss)
                assert delta >= p - q


def test_more_sampling_never_costs_less_so_rates_may_be_rounded_up() -> None:
    losses = np.array([0.0, 0.01, 0.3, 2.0])
    for kind in (FixedSizeProfile, PoissonProfile):
        deltas = [np.subtract(*kind(rate, 1.0).tails(losses)) for rate in (1e-3, 1.001e-3, 0.1, 0.5, 0.9)]
        assert (np.diff(deltas, axis=0) > 0).all()
