"""Amplification by shuffling against exact small cases: no claim is below them, and the recorded values hold."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.errors import AccountingError
from ringfence.research.theory.amplification import (
    clones_delta,
    clones_epsilon,
    gaussian_local,
    repeated_delta,
    shuffled_gaussian_delta,
    shuffled_gaussian_noise,
)
from ringfence.research.theory.conversions import shuffled_round

Floats = NDArray[np.float64]


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def responses(bits: Sequence[int], epsilon0: float) -> Floats:
    """How many ones there are among randomized responses: all that a shuffler leaves of them."""
    honest = 1 / (1 + math.exp(-epsilon0))
    mass = np.ones(1)
    for bit in bits:
        one = honest if bit else 1 - honest
        mass = np.convolve(mass, [1 - one, one])
    return mass


@pytest.mark.parametrize("epsilon0", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("others", [(), (0,), (0,) * 20, (0, 1) * 15, (1,) * 200])
def test_shuffled_randomized_responses_are_no_easier_to_tell_apart_than_the_clones(
    epsilon0: float, others: Sequence[int]
) -> None:
    p, q = responses([0, *others], epsilon0), responses([1, *others], epsilon0)
    for epsilon in np.linspace(0, 1.1 * epsilon0, 15):
        bound = clones_delta(epsilon0, 1 + len(others), float(epsilon)) + 1e-15
        assert hockey_stick(p, q, float(epsilon)) <= bound
        assert hockey_stick(q, p, float(epsilon)) <= bound
    assert clones_delta(epsilon0, 1 + len(others), 0.0) <= 3 * hockey_stick(p, q, 0.0)  # and not by far


@pytest.mark.parametrize(("messages", "epsilon0"), [(1, 1.0), (2, 0.5), (12, 1.0), (40, 2.0), (40, 5.0)])
def test_the_clones_divergence_is_that_of_their_counts(messages: int, epsilon0: float) -> None:
    honest = 1 / (1 + math.exp(-epsilon0))
    p, q = np.zeros((messages + 1, messages + 1)), np.zeros((messages + 1, messages + 1))
    for clones in range(messages):
        for first in range(clones + 1):
            mass = binom.pmf(clones, messages - 1, math.exp(-epsilon0)) * binom.pmf(first, clones, 0.5)
            for joint, own in ((p, honest), (q, 1 - honest)):
                joint[first + 1, clones - first] += mass * own
                joint[first, clones - first + 1] += mass * (1 - own)
    for epsilon in np.linspace(0, epsilon0, 9):
        assert clones_delta(epsilon0, messages, float(epsilon)) == pytest.approx(
            hockey_stick(p, q, float(epsilon)), rel=1e-7, abs=1e-10
        )


def test_blocks_of_clones_bound_all_of_them_closely() -> None:
    epsilon0, messages, epsilon = 1.5, 5000, 0.15
    honest = 1 / (1 + math.exp(-epsilon0))
    exact = 0.0
    for clones in range(800, 1450):  # all but 1e-20 of the mass
        half = binom.pmf(np.arange(clones + 1), clones, 0.5)
        p, q = np.convolve(half, [1 - honest, honest]), np.convolve(half, [honest, 1 - honest])
        exact += binom.pmf(clones, messages - 1, math.exp(-epsilon0)) * hockey_stick(p, q, epsilon)
    assert exact < clones_delta(epsilon0, messages, epsilon) < 1.01 * exact


def closed_form(epsilon0: float, messages: int, delta: float) -> float:
    return shuffled_round(epsilon0, 0.0, records=1, silos=messages, slack=delta).epsilon


def test_the_recorded_values_hold() -> None:
    """1500 messages of epsilon 1, delta 1e-6: 0.483 in closed form and 0.147 numerically."""
    assert closed_form(1.0, 1500, 1e-6) == pytest.approx(0.483, abs=5e-4)
    assert clones_epsilon(1.0, 1500, 1e-6) == pytest.approx(0.147, abs=5e-4)
    assert clones_delta(1.0, 1500, clones_epsilon(1.0, 1500, 1e-6)) <= 1e-6


def test_more_messages_and_less_local_privacy_have_their_price() -> None:
    by_messages = [clones_epsilon(1.0, m, 1e-6) for m in (1, 10, 100, 1000, 10_000, 10**6)]
    by_epsilon0 = [clones_epsilon(e0, 1000, 1e-6) for e0 in (4.0, 2.0, 1.0, 0.5, 0.1)]
    by_delta = [clones_epsilon(1.0, 1000, delta) for delta in (1e-9, 1e-6, 1e-3)]
    by_shift = [shuffled_gaussian_delta(shift=s, messages=500, epsilon=0.5) for s in (0.8, 0.4, 0.2)]
    for values in (by_messages, by_epsilon0, by_delta, by_shift):
        assert all(0 < after < before for before, after in itertools.pairwise(values))
    assert clones_delta(1.0, 1000, 1.0) == 0.0


@pytest.mark.parametrize(("shift", "epsilon"), [(0.3, 0.2), (0.8, 0.5), (1.0, 1.0)])
def test_three_shuffled_gaussians_are_no_easier_to_tell_apart_than_claimed(shift: float, epsilon: float) -> None:
    """In cells, which can only hide: the sum over all orders of three messages' cells."""
    edges = np.linspace(-5, 6, 45)
    cells = [np.diff(ndtr(edges - mean), prepend=0.0, append=1.0) for mean in (0.0, shift, shift / 2)]

    def shuffled(*means: int) -> Floats:
        orders = [np.einsum("i,j,k->ijk", *(cells[mean] for mean in order)) for order in itertools.permutations(means)]
        joint: Floats = np.sum(orders, axis=0) / len(orders)
        return joint

    bound = shuffled_gaussian_delta(shift=shift, messages=3, epsilon=epsilon)
    for others in itertools.combinations_with_replacement(range(3), 2):
        exact = hockey_stick(shuffled(0, *others), shuffled(1, *others), epsilon)
        assert 0 < exact <= bound


def test_messages_that_are_not_pure_cost_what_is_proved_which_is_no_more_than_was_published() -> None:
    shift, messages, epsilon = 0.5, 2000, 0.4
    proved, published = [], []
    for epsilon0 in map(float, np.linspace(0.5, 5.0, 1000)):
        pure, delta0 = clones_delta(epsilon0, messages, epsilon), gaussian_local(shift, epsilon0)
        first = delta0 / (math.exp(epsilon0) + 1)
        others = (messages - 1) * math.exp(-epsilon0) * (delta0 + first)
        proved.append(pure + (1 + math.exp(epsilon)) * (first + others))
        published.append(pure + (1 + math.exp(epsilon)) * (1 + math.exp(-epsilon0) / 2) * messages * delta0)
    delta = shuffled_gaussian_delta(shift=shift, messages=messages, epsilon=epsilon)
    assert delta == pytest.approx(min(proved), rel=1e-3)
    assert delta < min(published)


@pytest.mark.parametrize(("rounds", "each", "delta"), [(1, 0.7, 0.01), (2, 0.5, 0.0), (4, 0.3, 1e-3), (6, 1.0, 0.05)])
def test_repeated_rounds_compose_exactly(rounds: int, each: float, delta: float) -> None:
    honest = (1 - delta) / (1 + math.exp(-each))
    p = np.array([delta, honest, 1 - delta - honest, 0.0])
    joint_p, joint_q = np.ones(1), np.ones(1)
    for _ in range(rounds):
        joint_p, joint_q = np.outer(joint_p, p).ravel(), np.outer(joint_q, p[::-1]).ravel()
    for epsilon in (0.0, 0.2, 0.9, 2.0, 8.0):
        claimed = repeated_delta(epsilon_each=each, delta_each=delta, rounds=rounds, epsilon=epsilon)
        exact = hockey_stick(joint_p, joint_q, epsilon)
        assert exact - 1e-15 <= claimed <= exact * (1 + 1e-7) + 1e-15


def most_each(rounds: int, epsilon: float, delta: float) -> float:
    low, high = 0.0, epsilon
    while high - low > 1e-12:
        middle = (low + high) / 2
        enough = repeated_delta(epsilon_each=middle, delta_each=0.0, rounds=rounds, epsilon=epsilon) <= delta
        low, high = (middle, high) if enough else (low, middle)
    return low


@pytest.mark.parametrize(("messages", "rounds", "epsilon"), [(400, 1, 1.0), (1500, 1, 1.0), (20_000, 5, 0.5)])
def test_the_noise_keeps_the_budget_and_is_less_than_without_a_shuffler(
    messages: int, rounds: int, epsilon: float
) -> None:
    delta, clip = 1e-6, 3.0
    sigma = shuffled_gaussian_noise(messages=messages, rounds=rounds, epsilon=epsilon, delta=delta, clip=clip)
    assert sigma < 2 * clip * math.sqrt(rounds) / gaussian_shift(epsilon, delta)

    def found(noise: float, each: float) -> float:
        """Return the delta that is proved if each round is accounted for at the epsilon ``each``."""
        one = shuffled_gaussian_delta(shift=2 * clip / noise, messages=messages, epsilon=each)
        return repeated_delta(epsilon_each=each, delta_each=one, rounds=rounds, epsilon=epsilon)

    # One round has the whole epsilon; of several, each has what their composition allows for a part of delta.
    by_parts = np.linspace(0.1, 0.9, 9) * delta
    choices = [epsilon] if rounds == 1 else [most_each(rounds, epsilon, float(part)) for part in by_parts]
    assert min(found(sigma, each) for each in choices) <= delta
    assert min(found(0.97 * sigma, each) for each in choices) > delta


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_cross_silo_number_of_messages_is_refused_with_the_reason(rounds: int) -> None:
    given = {"rounds": rounds, "epsilon": 1.0, "delta": 1e-6, "clip": 1.0}
    with pytest.raises(AccountingError, match=r"without a shuffler.*vector sum") as refusal:
        shuffled_gaussian_noise(messages=25, **given)  # type: ignore[arg-type]
    enough = int(str(refusal.value).split("About ")[1].split()[0])
    local = 2 * math.sqrt(rounds) / gaussian_shift(1.0, 1e-6)
    assert shuffled_gaussian_noise(messages=enough, **given) < local  # type: ignore[arg-type]


def test_nonsense_is_refused() -> None:
    for epsilon0, messages, epsilon in (
        (0.0, 10, 1.0),
        (1.0, 0, 1.0),
        (1.0, 10, -0.1),
        (1.0, 10, math.inf),
        (501.0, 10, 1.0),
        (1.0, 10**9 + 1, 1.0),
    ):
        with pytest.raises(AccountingError):
            clones_delta(epsilon0, messages, epsilon)
    with pytest.raises(AccountingError, match="delta_each"):
        repeated_delta(epsilon_each=0.1, delta_each=1.5, rounds=2, epsilon=1.0)
    with pytest.raises(AccountingError, match="clip"):
        shuffled_gaussian_noise(messages=1000, rounds=1, epsilon=1.0, delta=1e-6, clip=0.0)
    with pytest.raises(AccountingError, match="epsilon must lie"):
        shuffled_gaussian_delta(shift=1.0, messages=10, epsilon=1000.0)
    assert shuffled_gaussian_delta(shift=1000.0, messages=10, epsilon=400.0) == 1.0
    assert repeated_delta(epsilon_each=0.1, delta_each=1.0, rounds=2, epsilon=1.0) == 1.0
