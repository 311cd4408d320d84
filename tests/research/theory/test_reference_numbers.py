"""The measured tables that the design rests on: n = 1238, R = 35, δ = 1/n², K = n√ε/(2√R), L at face value."""

import math

import pytest

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.runs import run_events
from ringfence.research.theory import paper

N, R, DELTA = 1238, 35, 1 / 1238**2


def three_digits(value: float) -> object:
    return pytest.approx(value, abs=0.51 * 10 ** (math.floor(math.log10(value)) - 2))


def true_epsilon(sampling: str, batch: int, sigma: float) -> float:
    return accountant.epsilon(run_events(sampling, R, records=N, batch=batch, clip=1.0, sigma=sigma), DELTA)


@pytest.mark.parametrize(
    ("nominal", "batch", "full", "fixed_low", "fixed_high", "poisson", "theorem"),
    [
        (0.75, 91, 0.585, 0.671, 0.698, 0.585, 0.0187),
        (1.5, 128, 1.230, 1.53, 1.60, 1.231, 0.0393),
        (3, 181, 2.615, 3.63, 3.81, 2.617, 0.0826),
        (6, 256, 5.686, 8.89, 9.35, 5.662, 0.173),
        (12, 362, 12.88, 22.0, 23.2, 12.57, 0.362),
        (18, 444, 21.39, 37.3, 39.1, 20.27, 0.558),
    ],
)
def test_true_epsilon_of_the_papers_noise(
    nominal: float, batch: int, full: float, fixed_low: float, fixed_high: float, poisson: float, theorem: float
) -> None:
    assert paper.practical_batch(records=N, rounds=R, epsilon=nominal) == batch
    practical = paper.practical_noise(records=N, batch=batch, rounds=R, clip=1.0, epsilon=nominal, delta=DELTA)
    assert true_epsilon("full", N, practical.sigma) == three_digits(full)
    assert true_epsilon("poisson", batch, practical.sigma) == three_digits(poisson)
    assert fixed_low < practical.true_epsilon == three_digits(fixed_high)
    of_theorem = paper.theorem_noise(records=N, batch=N, rounds=R, clip=1.0, epsilon=nominal, delta=DELTA)
    assert of_theorem.true_epsilon == three_digits(theorem)


@pytest.mark.parametrize(
    ("epsilon", "batch", "practical", "theorem", "full", "fixed", "poisson"),
    [
        (0.75, 91, 68.0, 1704, 53.9, 64.3, 54.0),
        (1.5, 128, 34.0, 852, 28.3, 35.6, 28.3),
        (3, 181, 17.0, 426, 15.0, 19.9, 15.0),
        (6, 256, 8.50, 213, 8.11, 11.2, 8.08),
        (12, 362, 4.25, 107, 4.50, 6.29, 4.42),
        (18, 444, 2.83, 71.0, 3.25, 4.48, 3.13),
    ],
)
def test_noise_that_gives_exactly_epsilon_in_thousandths_of_the_clip(
    epsilon: float, batch: int, practical: float, theorem: float, full: float, fixed: float, poisson: float
) -> None:
    def exact(sampling: str, records_in_batch: int) -> float:
        return 1000 * calibrate.noise(
            sampling, records=N, batch=records_in_batch, rounds=R, clip=1.0, epsilon=epsilon, delta=DELTA
        )

    query = {"records": N, "rounds": R, "clip": 1.0, "epsilon": epsilon, "delta": DELTA}
    assert 1000 * paper.practical_noise(batch=batch, **query).sigma == three_digits(practical)  # type: ignore[arg-type]
    assert 1000 * paper.theorem_noise(batch=N, **query).sigma == three_digits(theorem)  # type: ignore[arg-type]
    assert exact("full", N) == three_digits(full)
    assert exact("fixed", batch) == three_digits(fixed)
    assert exact("poisson", batch) == three_digits(poisson)
