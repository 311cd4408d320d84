"""Small cases by brute force: what the accountant reports is never below the exact divergence, and close to it."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from ringfence.accounting import accountant, pld
from ringfence.accounting.correlation import coefficients, column_norm
from ringfence.accounting.events import DisjointBatchRelease, Event, FixedSizeRelease, GaussianRelease, PoissonRelease
from ringfence.accounting.profiles import (
    FixedSizeProfile,
    GaussianProfile,
    PoissonProfile,
    Profile,
    gaussian_delta,
    gaussian_epsilon,
)

Floats = NDArray[np.float64]
EDGES = np.linspace(-12.0, 14.0, 801)


def cells(*components: tuple[float, float]) -> Floats:
    """Probabilities of the cells between EDGES under a mixture of unit normals, given as (weight, mean)."""
    below = np.sum([weight * ndtr(EDGES - mean) for weight, mean in components], axis=0)
    above = np.sum([weight * ndtr(mean - EDGES) for weight, mean in components], axis=0)
    from_below, from_above = np.diff(below), -np.diff(above)  # whichever side is small keeps its digits
    between: Floats = np.where(below[1:] < 0.5, from_below, from_above)
    return np.concatenate([below[:1], between, above[-1:]])


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    """The divergence after rounding to cells: at most the exact one (post-processing), and close to it."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def squared(p: Floats, other: Floats) -> Floats:
    return np.outer(p, other).ravel()


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize(("rate", "shift"), [(0.1, 1.0), (0.5, 3.0), (0.9, 0.4)])
def test_poisson_delta_is_the_exact_divergence_for_one_and_two_rounds(
    epsilon: float, rate: float, shift: float
) -> None:
    p = cells((1 - rate, 0.0), (rate, shift / 2))
    q = cells((1 - rate, 0.0), (rate, -shift / 2))
    one = hockey_stick(p, q, epsilon)
    two = hockey_stick(squared(p, p), squared(q, q), epsilon)
    release = PoissonRelease(rate, shift)
    assert one <= accountant.delta([(release, 1)], epsilon) <= 1.01 * one + 1e-9
    assert two <= accountant.delta([(release, 2)], epsilon) <= 1.01 * two + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize(("batch", "shift"), [(1, 1.0), (5, 3.0), (9, 0.4)])
def test_fixed_size_delta_bounds_every_neighbouring_pair_for_one_and_two_rounds(
    epsilon: float, batch: int, shift: float
) -> None:
    rate = batch / 10
    q = cells((1.0, 0.0))
    p = cells((1 - rate, 0.0), (rate, shift))
    release = FixedSizeRelease(10, batch, shift)
    one, two = accountant.delta([(release, 1)], epsilon), accountant.delta([(release, 2)], epsilon)
    assert hockey_stick(p, q, epsilon) <= one <= 1.01 * hockey_stick(p, q, epsilon) + 1e-9
    # All other records 0, the replaced one at ±L; and all others at -L, the replaced one at ±L, in either direction.
    plus, minus = cells((1 - rate, 0.0), (rate, shift / 2)), cells((1 - rate, 0.0), (rate, -shift / 2))
    for first, other in ((p, q), (q, p), (plus, minus)):
        assert hockey_stick(first, other, epsilon) <= one
        for second, another in ((p, q), (q, p), (plus, minus)):
            assert hockey_stick(squared(first, second), squared(other, another), epsilon) <= two


@pytest.mark.parametrize(("records", "batch"), [(2, 1), (5, 2), (5, 4)])
def test_no_data_set_beats_the_profile_of_fixed_batches_drawn_in_every_way(records: int, batch: int) -> None:
    """Sums over all batches of random records in [-1, 1], of which the first is replaced; and over all corners."""
    generator, shift = np.random.default_rng(records), 1.2
    batches = list(itertools.combinations(range(records), batch))

    def release(data: Floats) -> Floats:
        return cells(*((1 / len(batches), shift / 2 * float(data[list(drawn)].sum())) for drawn in batches))

    epsilons = [0.0, 0.2, 0.7, 1.5]
    bounds = [accountant.delta([(FixedSizeRelease(records, batch, shift), 1)], epsilon) for epsilon in epsilons]
    largest = np.zeros(len(epsilons))
    corners = [np.array(corner) for corner in itertools.product((-1.0, 1.0), repeat=records - 1)]
    for others in [*corners, *generator.uniform(-1, 1, (10, records - 1))]:
        one, other = generator.uniform(-1, 1, 2) if abs(others).max() < 1 else (1.0, -1.0)
        p, q = release(np.append(one, others)), release(np.append(other, others))
        for first, second in ((p, q), (q, p)):
            largest = np.maximum(largest, [hockey_stick(first, second, epsilon) for epsilon in epsilons])
    assert np.all(largest <= bounds)
    np.testing.assert_allclose(largest, bounds, rtol=0.01)  # all others at one end reach it


@pytest.mark.parametrize(
    "profile", [GaussianProfile(0.5), FixedSizeProfile(0.2, 1.5), PoissonProfile(0.2, 1.5), FixedSizeProfile(1e-3, 4.0)]
)
@pytest.mark.parametrize("points", [3, 7, 40])
def test_losses_on_a_grid_dominate_the_profile_at_every_epsilon_of_either_sign(profile: Profile, points: int) -> None:
    found = pld.discretise(profile, np.linspace(0.0, 3.0, points))
    assert math.fsum([*found.masses, found.infinite]) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(found.masses[::-1], found.masses * np.exp(-found.losses), rtol=1e-12)  # symmetric
    for epsilon in np.linspace(0.0, 4.0, 81):
        above_p, scaled_above_q = (float(tail[0]) for tail in profile.tails(np.array([epsilon])))
        exact = above_p - scaled_above_q
        mirrored = -math.expm1(-epsilon) + math.exp(-epsilon) * exact  # δ(-ε), by exchanging P and Q
        for at, truth in ((epsilon, exact), (-epsilon, mirrored)):
            kept = found.infinite + float(np.sum(found.masses * np.maximum(0.0, -np.expm1(at - found.losses))))
            assert kept >= truth - 1e-15


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_parts_beside_a_sampled_release_cost_what_the_worst_placed_record_loses(epsilon: float) -> None:
    rate, shift, by_part = 0.3, 1.0, {0: 0.4, 1: 0.9, 2: 0.2}
    sampled = cells((1 - rate, 0.0), (rate, shift / 2)), cells((1 - rate, 0.0), (rate, -shift / 2))
    lost = [
        hockey_stick(squared(sampled[0], cells((1.0, own))), squared(sampled[1], cells((1.0, 0.0))), epsilon)
        for own in by_part.values()
    ]
    events: list[tuple[Event, int]] = [(DisjointBatchRelease("pass", part, own), 1) for part, own in by_part.items()]
    reported = accountant.delta([*events, (PoissonRelease(rate, shift), 1)], epsilon)
    assert max(lost) <= reported <= 1.01 * max(lost) + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("theta", [0.0, 0.5, 0.9])
def test_two_correlated_rows_lose_what_the_column_norm_says_even_if_the_server_turns_the_second(
    epsilon: float, theta: float
) -> None:
    shift, (first, second) = 0.8, coefficients(theta, 2)
    reported = accountant.delta([(DisjointBatchRelease("pass", 0, shift * column_norm(theta, 2)), 1)], epsilon)
    noise = cells((1.0, 0.0))
    ahead, back = cells((1.0, shift * second)), cells((1.0, -shift * second))
    turned = np.arange(len(noise)) % 3 == 0  # some answers of the first row make the server reverse the direction
    rows = np.where(turned[:, None], back[None, :], ahead[None, :])
    exact = hockey_stick((cells((1.0, shift * first))[:, None] * rows).ravel(), squared(noise, noise), epsilon)
    assert exact <= reported <= 1.01 * exact + 1e-9


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5, 2.0])
def test_opposite_gradients_of_full_length_are_the_worst_case_of_poisson_sampling(rate: float, epsilon: float) -> None:
    length, generator = 1.5, np.random.default_rng(1)
    axis = np.linspace(-9.0, 9.0, 301)
    x, y = np.meshgrid(axis, axis)

    def density(vector: Floats) -> Floats:
        moved = np.exp(-((x - vector[0]) ** 2 + (y - vector[1]) ** 2) / 2)
        mixture: Floats = (1 - rate) * np.exp(-(x**2 + y**2) / 2) + rate * moved
        mixture *= (axis[1] - axis[0]) ** 2 / (2 * math.pi)
        return mixture

    worst = accountant.delta([(PoissonRelease(rate, 2 * length), 1)], epsilon)
    direction = np.array([1.0, 0.0])
    pairs = [(length * direction, -length * direction), (length * direction, -0.5 * length * direction)]
    for _ in range(12):
        u, v = generator.normal(size=2), generator.normal(size=2)
        pairs.append((length * u / np.linalg.norm(u), length * generator.uniform() * v / np.linalg.norm(v)))
    divergences = [hockey_stick(density(u), density(v), epsilon) for u, v in pairs]
    assert divergences[0] == pytest.approx(worst, rel=2e-3, abs=1e-6)
    assert max(divergences) <= worst * (1 + 2e-3) + 1e-6  # quadrature error


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.2, 1.0, 4.0])
@pytest.mark.parametrize(
    "profile", [GaussianProfile(0.5), FixedSizeProfile(0.2, 1.5), PoissonProfile(0.2, 1.5), PoissonProfile(0.01, 5.0)]
)
def test_a_profiles_two_tails_are_the_integrals_of_its_densities(profile: Profile, epsilon: float) -> None:
    p: Callable[[float], float]
    q: Callable[[float], float] = norm.pdf
    match profile:
        case GaussianProfile(shift):
            p = norm(shift).pdf
        case FixedSizeProfile(rate, shift):
            p = lambda x: (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - shift)  # noqa: E731
        case PoissonProfile(rate, shift):
            p = lambda x: (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - shift / 2)  # noqa: E731
            q = lambda x: (1 - rate) * norm.pdf(x) + rate * norm.pdf(x + shift / 2)  # noqa: E731
    above_p, scaled_above_q = profile.tails(np.array([epsilon]))
    start = float(np.interp(epsilon, profile.loss(np.linspace(-9, 20, 200_001)), np.linspace(-9, 20, 200_001)))
    assert p(start) / q(start) == pytest.approx(math.exp(epsilon), rel=1e-4)
    assert above_p[0] == pytest.approx(quad(p, start, 20, epsabs=1e-14)[0], rel=1e-3)
    assert scaled_above_q[0] == pytest.approx(math.exp(epsilon) * quad(q, start, 20, epsabs=1e-14)[0], rel=1e-3)


@pytest.mark.parametrize("shift", [1e-7, 1e-4, 0.99e-4, 0.01, 1.0, 20.0, 300.0])
@pytest.mark.parametrize("deviations", [0.0, 0.5, 3.0, 6.0, 20.0])
def test_gaussian_delta_is_exact_at_any_scale(shift: float, deviations: float) -> None:
    epsilon = max(0.0, shift**2 / 2 + (deviations - 1) * shift)

    def log_integrand(y: float) -> float:  # δ(ε) = ∫ e^{-y} P(loss > ε + y) dy: a sum of positive terms
        return float(log_ndtr(shift / 2 - (epsilon + y) / shift)) - y

    peak = log_integrand(0.0)
    width = min(1.0, shift)
    scaled = quad(lambda y: math.exp(log_integrand(y * width) - peak), 0, 45, epsrel=1e-10, limit=200)[0]
    exact = scaled * width * math.exp(peak)
    ours = gaussian_delta(shift, epsilon)
    assert ours == pytest.approx(exact, rel=5e-9)
    assert ours >= exact * (1 - 1e-10)


def test_gaussian_epsilon_is_the_least_that_meets_delta() -> None:
    for shift, delta in ((0.1, 1e-6), (1.0, 1e-3), (40.0, 1e-9), (1e-3, 1e-5)):
        epsilon = gaussian_epsilon(shift, delta)
        assert gaussian_delta(shift, epsilon) <= delta < gaussian_delta(shift, epsilon * (1 - 1e-9))


@pytest.mark.parametrize("negligible", [0.0, 1e-8])
@pytest.mark.parametrize(
    ("profile", "count", "exact"),
    [
        (GaussianProfile(0.3), 12, lambda epsilon: gaussian_delta(0.3 * math.sqrt(12), epsilon)),
        (GaussianProfile(0.01), 200, lambda epsilon: gaussian_delta(0.01 * math.sqrt(200), epsilon)),
        (PoissonProfile(0.05, 1.0), 5, lambda epsilon: accountant.delta([(PoissonRelease(0.05, 1.0), 5)], epsilon)),
    ],
)
def test_whatever_the_tilt_a_composition_never_reports_less_than_the_exact_delta(
    profile: Profile, count: int, exact: Callable[[float], float], negligible: float
) -> None:
    parts: list[pld.Part] = [(profile, count)]
    moments = pld.CumulantSketch.of(parts, negligible)
    epsilons = [0.0, *moments.deviation * np.array([0.05, 0.2, 1.0, 3.0, 6.0])]
    truth = [exact(epsilon) for epsilon in epsilons]
    for order in moments.orders()[::3]:
        composed = pld.compose(parts, moments, float(order))
        for epsilon, delta in zip(epsilons, truth, strict=True):
            assert composed.delta(epsilon) >= delta * (1 - 1e-4)  # the sampled reference is itself an upper bound


def test_a_window_that_is_too_narrow_only_raises_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pld, "OUTSIDE", 0.9)
    parts: list[pld.Part] = [(GaussianProfile(1.0), 4)]
    moments = pld.CumulantSketch.of(parts, 0.0)
    for order in moments.orders()[::3]:
        composed = pld.compose(parts, moments, float(order))
        for epsilon in (0.0, 1.0, 3.0, 6.0, 12.0):
            assert composed.delta(epsilon) >= gaussian_delta(2.0, epsilon) * (1 - 1e-8)


def test_a_coarse_grid_only_raises_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for release in (FixedSizeRelease(100, 10, 1.0), PoissonRelease(0.1, 2.0)):
        fine = accountant.epsilon([(release, 50)], 1e-6)
        with monkeypatch.context() as patch:
            patch.setattr(pld, "MOST_POINTS", 2**8)
            patch.setattr(pld, "FEWEST_POINTS", 2**6)
            patch.setattr(pld, "epsilon_bound", pld.epsilon_bound.__wrapped__)  # which remembers no answers
            assert fine < accountant.epsilon([(release, 50)], 1e-6) < math.inf


def test_the_general_composition_reproduces_the_gaussian_closed_form() -> None:
    sampled_part: tuple[pld.Part] = ((GaussianProfile(0.2), 30),)
    exact = accountant.epsilon([(GaussianRelease(0.2), 30)], 1e-6)
    assert exact <= pld.epsilon_bound(sampled_part, 1e-6) <= exact * (1 + 1e-4)
