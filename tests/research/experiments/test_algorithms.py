"""`ringfence reproduce algorithms` runs from the plans to the page, and a violated bound stops it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringfence.protocol import FloatArray
from ringfence.research.experiments import algorithm_page, conditioning, excess, methods, synthetic
from ringfence.research.experiments.conditioning import ALGORITHMS, CONVEX, FAMILIES, STRONG, Quadratic
from ringfence.research.experiments.excess import BoundViolatedError
from ringfence.research.experiments.reproduce import reproduce
from ringfence.server.algorithms import accelerated, minibatch, preconditioned
from ringfence.simulation.cells import Row
from tests.research.rehearsals import DATA, needs_data, rehearse


def row(**changes: float | str) -> Row:
    """A run of minibatch SGD on a synthetic problem."""
    usual: Row = {
        "problem": synthetic.IDENTICAL,
        "method": "minibatch SGD",
        "epsilon": 2.0,
        "seed": 0,
        "trial": 0,
        "population": 0.04,
        "empirical": 0.03,
        "rounds": 200,
        "population_bound": 0.05,
        "empirical_bound": 0.05,
        "remark": "",
    }
    return usual | changes


@needs_data
def test_a_rehearsal_writes_the_page_its_figures_and_every_cell_and_then_has_nothing_left_to_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "cells.csv").write_text(
        "panel,curve,epsilon,error\nM = 25,untuned,1.5,0.15\nM = 25,untuned,1.5,0.17\nM = 25,ringfence,1.5,0.13\n"
        "M = 12,untuned,1.5,0.9\n"
    )
    out = tmp_path / "algorithms"
    page = rehearse("algorithms", out, *algorithm_page.FIGURES, data_dir=DATA)
    assert all(f"| {method} |" in page for method in methods.METHODS)
    assert all(f"]({name}.svg)" in page for name in algorithm_page.FIGURES)
    assert "No bound was violated" in page
    assert "| 1.5 | 0.1600 | 0.1300 | +3.00 points |" in page
    assert "Goal, at most 2 points: missed at ε = 1.5." in page
    assert "has not been run" in page  # insurance is not there
    lines = (out / "cells.csv").read_text().splitlines()
    runs = 2 * len(methods.METHODS) * excess.QUICK_SEEDS * excess.QUICK_DATASETS
    assert sum(line.startswith("synthetic,") for line in lines) == runs

    # The same cells with one bound below what was measured: an error, and the page stays as it was.
    cells = out / "cells-quick-synthetic.jsonl"
    kept = cells.read_text().splitlines()
    place = next(i for i, line in enumerate(kept) if '"minibatch SGD"' in line)
    wrong = [line.replace('"population": 0.', '"population": 9.') for line in kept]
    assert wrong[place] != kept[place]
    cells.write_text("\n".join(wrong) + "\n")
    with pytest.raises(BoundViolatedError, match="above its bound"):
        reproduce("algorithms", out, data_dir=DATA, quick=True)
    assert (out / "index.md").read_text() == page


def test_a_mean_three_standard_errors_above_its_bound_is_an_error_and_one_that_luck_explains_is_not() -> None:
    runs = [row(seed=seed, population=value) for seed, value in enumerate((0.058, 0.060, 0.062))]
    with pytest.raises(BoundViolatedError, match=r"population risk of 'minibatch SGD' on identical silos at epsilon 2"):
        excess.require_means_bounded(runs)
    excess.require_means_bounded([row(seed=seed, population=value) for seed, value in enumerate((0.03, 0.06, 0.09))])


def test_an_empirical_bound_must_hold_on_every_data_set_and_none_is_no_bound() -> None:
    bad = [row(trial=1, seed=seed, empirical=0.06) for seed in range(2)]
    good = [row(trial=0, seed=seed, empirical=0.0) for seed in range(2)]
    with pytest.raises(BoundViolatedError, match="empirical risk of data set 1"):
        excess.require_means_bounded([*good, *bad])
    excess.require_means_bounded([own | {"empirical_bound": math.nan} for own in (*good, *bad)])


def test_an_exact_excess_above_its_bound_is_an_error() -> None:
    exact: Row = {"family": STRONG, "ratio": 10.0, "algorithm": "accelerated", "rounds": 5, "excess": 0.2}
    excess.require_bounded([exact | {"bound": 0.3}, exact | {"bound": math.nan}])
    with pytest.raises(BoundViolatedError, match="in 5 rounds"):
        excess.require_bounded([exact | {"bound": 0.1}])


def test_features_lie_in_the_unit_ball_and_silos_differ_only_where_they_should() -> None:
    size = replace(synthetic.QUICK, fresh=400)
    for problem, differ in ((synthetic.IDENTICAL, False), (synthetic.DIFFERENT, True)):
        world = synthetic.world(problem, size)
        assert bool(np.ptp(world.weights, axis=0).max() > 0) is differ
        for features, likely in world.draw(50, np.random.default_rng(0)):
            assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-12
            assert likely.min() > 0
            assert likely.max() < 1


def test_the_population_optimum_of_identical_silos_is_the_true_model_and_nothing_beats_it() -> None:
    sample = synthetic.population(synthetic.IDENTICAL, synthetic.QUICK)
    truth = synthetic.world(synthetic.IDENTICAL, synthetic.QUICK).weights[:1]
    assert np.linalg.norm(truth) == pytest.approx(synthetic.TRUE_NORM)
    assert sample.excess(truth) == pytest.approx(0.0, abs=1e-12)
    others = truth + np.random.default_rng(1).standard_normal((100, truth.shape[1]))
    assert sample.excess(others).min() > 0


def answered_rounds(
    algorithm: str, quadratic: Quadratic, rounds: int
) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """The algorithm as a plain loop from a start, with given noise in every round: what the recursion must equal."""
    if algorithm == conditioning.PRECONDITIONED:
        return preconditioned_rounds(quadratic, rounds)
    module = minibatch if algorithm.startswith("minibatch") else accelerated
    h, mu = quadratic.eigenvalues, quadratic.convexity
    settings = conditioning.settings(quadratic, algorithm, rounds)

    def run(start: FloatArray, noise: FloatArray) -> FloatArray:
        state = module.init(start)
        for round, own in enumerate(noise):
            gradient = (h - mu) * module.query_weights(settings, state, round) + own
            state = module.step(settings, lambda point, _: point, state, gradient, round)
        model: FloatArray = module.output(settings, state)
        return model

    return run


def preconditioned_rounds(quadratic: Quadratic, rounds: int) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """The same along axes, where the noise is as much louder as gradients are longer."""
    settings = conditioning.preconditioned_settings(quadratic, rounds)
    louder = math.sqrt(quadratic.whitened_variance(rounds) / quadratic.variance(rounds))

    def run(start: FloatArray, noise: FloatArray) -> FloatArray:
        state = preconditioned.init(start)
        for round, own in enumerate(noise):
            slope = quadratic.eigenvalues * preconditioned.query_weights(settings, state, round)
            gradient = settings.axes.turned(slope) + louder * own
            state = preconditioned.step(settings, lambda point, _: point, state, gradient, round)
        return preconditioned.output(settings, state)

    return run


@pytest.mark.parametrize(("family", "algorithm"), [(f, a) for f in FAMILIES for a in ALGORITHMS[f]], ids=str)
def test_bias_and_variance_of_the_recursion_are_those_of_the_plain_loop(family: str, algorithm: str) -> None:
    quadratic = conditioning.problem(family, 10.0)
    h = quadratic.eigenvalues
    for rounds in (19, 64):
        run = answered_rounds(algorithm, quadratic, rounds)
        nothing = np.zeros((rounds, len(h)))
        bias, variance = conditioning.excess(quadratic, algorithm, rounds)
        end = run(np.full(len(h), 1 / math.sqrt(len(h))), nothing)
        assert bias == pytest.approx(np.sum(h * end**2) / 2, rel=1e-9)
        # The output is linear in independent noises, so its variance is the sum of its squared answers to each.
        impulses = [run(np.zeros(len(h)), nothing + (np.arange(rounds) == r)[:, None]) for r in range(rounds)]
        each = quadratic.variance(rounds) / len(h)
        assert variance == pytest.approx(np.sum(h * np.square(impulses)) * each / 2, rel=1e-9)


def test_acceleration_needs_the_square_root_of_the_condition_number() -> None:
    rows = [dict(cell) | conditioning.task([cell])[0] for cell in conditioning.wanted(quick=True)]
    excess.require_bounded(rows)
    slopes = conditioning.slopes(conditioning.floors(rows))
    # Rounds are known to one step of the ladder, 1.3, at either end.
    slack = 2 * math.log(1.3) / math.log(conditioning.QUICK_RATIOS[1] / conditioning.QUICK_RATIOS[0])
    assert slopes[STRONG, "minibatch SGD"] == pytest.approx(1.0, abs=slack)
    assert slopes[STRONG, "accelerated"] == pytest.approx(0.5, abs=slack)
    assert slopes[CONVEX, "accelerated"] == pytest.approx(0.5, abs=slack)


def test_preconditioned_rounds_grow_with_the_logarithm_of_the_condition_number() -> None:
    asked = [cell for cell in conditioning.wanted(quick=False) if cell["algorithm"] == conditioning.PRECONDITIONED]
    found = conditioning.floors([dict(cell) | conditioning.task([cell])[0] for cell in asked])
    rounds = {floor.ratio: floor.rounds for floor in found}
    # A power of κ would add ever more rounds for ten times the κ. Each number is known to one step of the ladder.
    unsure = 3 * (conditioning.FINENESS - 1) * rounds[1000.0]
    assert 0 < rounds[1000.0] - rounds[100.0] <= rounds[100.0] - rounds[10.0] + unsure
