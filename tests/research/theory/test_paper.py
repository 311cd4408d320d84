"""The paper's closed forms: their numbers, their preconditions, and the truth beside them."""

import math

import pytest

from ringfence.accounting import calibrate
from ringfence.errors import AccountingError, PlanError
from ringfence.research.theory import paper

N, R, DELTA = 1238, 35, 1 / 1238**2


def test_theorem_noise_is_the_printed_formula() -> None:
    noise = paper.theorem_noise(records=N, batch=443, rounds=R, clip=2.0, epsilon=1.0, delta=DELTA)
    printed = 256 * 2.0**2 * R * math.log(2.5 * R / DELTA) * math.log(2 / DELTA) / (N**2 * 1.0**2)
    assert noise.sigma**2 == pytest.approx(printed)
    assert noise.delivers
    assert noise.true_epsilon < 0.04  # about thirty times more noise than needed


def test_one_pass_noise_is_the_printed_formula_and_about_twice_too_large() -> None:
    noise = paper.one_pass_noise(records=N, batch=100, rounds=12, clip=2.0, epsilon=1.0, delta=DELTA)
    assert noise.sigma**2 == pytest.approx(32 * 2.0**2 * math.log(1.25 / DELTA) / 100**2)
    exact = calibrate.noise("one-pass", records=N, batch=100, rounds=12, clip=2.0, epsilon=1.0, delta=DELTA)
    assert noise.delivers
    assert 1.8 < noise.sigma / exact < 2.6


@pytest.mark.parametrize(("epsilon", "local_steps", "at_least"), [(0.75, 91, 20), (6.0, 256, 318), (18.0, 444, 4430)])
def test_local_sgd_noise_is_far_from_its_epsilon(epsilon: float, local_steps: int, at_least: float) -> None:
    noise = paper.local_sgd_noise(records=N, local_steps=local_steps, rounds=R, clip=1.0, epsilon=epsilon, delta=DELTA)
    assert noise.sigma**2 == pytest.approx(8 * math.log(1 / DELTA) * R * local_steps / (N * epsilon) ** 2)
    assert (noise.batch, noise.rounds) == (1, R * local_steps)
    assert noise.true_epsilon > at_least
    assert not noise.delivers


def test_the_practical_batch_stays_between_one_record_and_all() -> None:
    assert paper.practical_batch(records=10, rounds=10**6, epsilon=0.01) == 1
    assert paper.practical_batch(records=10, rounds=1, epsilon=100.0) == 10


@pytest.mark.parametrize(
    ("name", "change", "refused"),
    [
        ("theorem", {"batch": N, "epsilon": 30.0}, "holds for epsilon up to"),
        ("one-pass", {"batch": 10, "epsilon": 120.0}, "holds for epsilon up to"),
        ("theorem", {"batch": 5}, "needs a batch of at least"),
        ("theorem", {"batch": N + 1}, "larger than"),
        ("one-pass", {"batch": N // 34}, "disjoint batches"),
        ("best", {}, "Unknown noise 'best'"),
        ("practical", {"epsilon": 0.0}, "epsilon"),
        ("practical", {"delta": 0.0}, "delta"),
        ("practical", {"rounds": 0}, "rounds"),
        ("practical", {"records": 0}, "records"),
        ("practical", {"clip": math.inf}, "clip"),
    ],
)
def test_a_closed_form_refuses_what_it_does_not_cover(name: str, change: dict[str, float], refused: str) -> None:
    query = {"records": N, "batch": 91, "rounds": R, "clip": 1.0, "epsilon": 1.0, "delta": DELTA} | change
    with pytest.raises((PlanError, AccountingError), match=refused):
        paper.closed_form(name, "fixed", **query)  # type: ignore[arg-type]


def test_every_closed_form_can_be_asked_for_by_name() -> None:
    query = {"records": 1000, "batch": 100, "rounds": 10, "clip": 1.0, "epsilon": 1.0, "delta": 1e-5}
    names = ("theorem", "one-pass", "practical", "local-sgd")
    sigmas = [paper.closed_form(name, "fixed", **query).sigma for name in names]  # type: ignore[arg-type]
    assert len(set(sigmas)) == 4
