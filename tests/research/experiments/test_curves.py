"""Each curve is what its label says: its noise, its sampling, its true epsilon, its choice by training loss."""

import math
from typing import Any

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.runs import run_events
from ringfence.protocol import Logistic, Squared
from ringfence.research.experiments import curves
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.curves import Candidate, Grid, TrialData
from ringfence.research.theory import paper

GRID = Grid(steps=(0.3, 1.0, 3.0), clips=(0.5,), momenta=(0.0, 0.8))


def problem(records: int = 300, *, asked: int = 3, numeric: bool = False) -> TrialData:
    random = np.random.default_rng(3)

    def part(size: int) -> tuple[Any, Any]:
        features = np.concatenate([random.uniform(-0.5, 0.5, (size, 3)), np.ones((size, 1))], axis=1)
        scores = features @ [2.0, -1.0, 0.5, 0.1]
        targets = np.clip(scores / 2, -1, 1) if numeric else np.where(scores > 0, 1.0, -1.0)
        return features, targets

    test = part(500)
    return TrialData(
        geometry=Geometry(4, math.hypot(1.0, math.sqrt(0.75)), 1.0),
        loss=Squared() if numeric else Logistic(),
        silos=[part(records) for _ in range(3)],
        test=test,
        rounds=20,
        asked=asked,
        delta=1e-5,
        error_unit=float(np.var(test[1])) if numeric else 1.0,
    )


@pytest.mark.parametrize("numeric", [False, True])
def test_the_tuned_curve_falls_with_epsilon_towards_the_optimum(numeric: bool) -> None:
    setting = problem(numeric=numeric)
    weak, strong = curves.ringfence_tuned(setting, [0.05, 20.0], GRID, seed=0, repeats=2)
    best = curves.optimum(setting)
    assert strong.error < weak.error
    assert strong.error < best.error + 0.1
    assert strong.training_loss >= best.training_loss - 1e-5
    assert (weak.true_epsilon, strong.true_epsilon) == (0.05, 20.0)


def test_the_paper_s_curve_is_labelled_with_the_epsilon_that_its_noise_truly_gives() -> None:
    setting = problem()
    clip = 2 * setting.lipschitz  # the paper doubles the constant
    (point,) = curves.paper_recipe(setting, [6.0], [0.1, 1.0], [clip], seed=0, repeats=1)
    batch = paper.practical_batch(records=300, rounds=20, epsilon=6.0)
    shape: Any = {"records": 300, "batch": batch, "dimension": 4}
    sigma = paper.practical_noise(**shape, rounds=20, clip=clip, epsilon=6.0, delta=1e-5).sigma
    events = run_events("fixed", 20, clip=setting.lipschitz, sigma=sigma, **shape)
    assert point.epsilon == 6.0
    assert point.true_epsilon == pytest.approx(accountant.epsilon(events, 1e-5))


def test_settings_are_chosen_by_training_loss_and_never_by_test_error() -> None:
    setting = problem()
    flipped = TrialData(**{**vars(setting), "test": (setting.test[0], -setting.test[1])})
    chosen = [curves.ringfence_tuned(version, [2.0], GRID, seed=1, repeats=1)[0] for version in (setting, flipped)]
    assert chosen[0].chosen == chosen[1].chosen
    assert chosen[0].error == pytest.approx(1.0 - chosen[1].error, abs=1e-6)


def test_local_sgd_with_noise_is_worse_than_without_and_both_learn() -> None:
    setting = problem()
    candidates = [Candidate(step, 0.7) for step in (0.03, 0.1, 0.3)]
    noisy, silent = curves.local(setting, [1.0, None], candidates, local_steps=lambda _: 10, seed=0, repeats=1)
    assert silent.error < 0.15
    assert silent.error < noisy.error < 0.6
    assert (noisy.true_epsilon, silent.true_epsilon) == (1.0, math.inf)


def test_fewer_silos_in_a_round_mean_more_noise() -> None:
    everybody, one = (
        np.mean([curves.ringfence_untuned(problem(asked=asked), [0.3], seed=s, repeats=3)[0].error for s in range(4)])
        for asked in (3, 1)
    )
    assert everybody < one
