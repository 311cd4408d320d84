"""Intervals cover sampling and noise: exact where they can be computed, and infinite where curvature is hidden."""

import math

import numpy as np
import pytest

from ringfence.estimates.coefficients import (
    MomentBlocks,
    SiloMoments,
    coefficient_intervals,
    first_moment_request,
    next_moment_request,
    pooled_moments,
)
from ringfence.protocol import FloatArray, Plan, SecondMoments
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.research.experiments.looking_coefficients import DESIGNS, draw, exact_answers, summary_plan
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

NUMBERS, LABELS = summary_plan(labels=False), summary_plan(labels=True)
FEATURES, TARGETS = draw(DESIGNS[0], False, 400, np.random.default_rng(1))
EVERYTHING = MomentsArgument(np.zeros(6), 10.0, 1.0, np.eye(6) / 10.0)
"""So long axes and units that nothing is clipped."""
JUST_THE_WEIGHTS = np.eye(6), np.zeros(6)


def moments_of(
    plan: Plan, asked: MomentsArgument, features: FloatArray, targets: FloatArray, sigma: float
) -> dict[str, SiloMoments]:
    answers = exact_answers(plan, asked, features, targets)
    return {str(place): SiloMoments(0.2, sigma, answer) for place, answer in enumerate(answers)}


def test_without_noise_they_are_least_squares_with_the_usual_sandwich() -> None:
    inverse = np.linalg.inv(FEATURES.T @ FEATURES)
    best = inverse @ (FEATURES.T @ TARGETS)
    scores = FEATURES * (TARGETS - FEATURES @ best)[:, None]
    error = np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))
    at = EVERYTHING._replace(weights=best)
    found = coefficient_intervals(
        at, moments_of(NUMBERS, at, FEATURES, TARGETS, 1e-12), 2000, *JUST_THE_WEIGHTS, level=0.95
    )
    np.testing.assert_allclose([one.estimate for one in found], best, atol=1e-9)
    np.testing.assert_allclose([one.error for one in found], error, rtol=1e-6)
    np.testing.assert_allclose([one.high - one.estimate for one in found], 1.959964 * error, rtol=1e-5)
    elsewhere = coefficient_intervals(
        EVERYTHING, moments_of(NUMBERS, EVERYTHING, FEATURES, TARGETS, 1e-12), 2000, *JUST_THE_WEIGHTS, level=0.95
    )
    np.testing.assert_allclose([one.estimate for one in elsewhere], best, atol=1e-9)


def test_noise_in_a_moved_gradient_has_the_covariance_that_intervals_count_on() -> None:
    """Exactly: Eδ is linear in the answer's independent numbers, each of noise 1 (Lemma Q7)."""
    step = np.array([0.3, -1.0, 2.0, 0.0, 0.5, 1.5])
    units = np.eye(48)
    moved = np.array([MomentBlocks.of(EVERYTHING, unit).curvature @ step for unit in units])
    np.testing.assert_allclose(moved.T @ moved, step @ step * np.eye(6) + np.outer(step, step), atol=1e-12)


def test_noise_makes_them_longer_by_its_own_variance() -> None:
    best = np.asarray(np.linalg.lstsq(FEATURES, TARGETS, rcond=None)[0], dtype=np.float64)
    at, sigma = EVERYTHING._replace(weights=best), 1e-4
    quiet, noisy = (
        coefficient_intervals(at, moments_of(NUMBERS, at, FEATURES, TARGETS, s), 2000, *JUST_THE_WEIGHTS, level=0.95)
        for s in (1e-12, sigma)
    )
    mean = FEATURES.T @ FEATURES / 2000
    added = (100 * sigma / math.sqrt(5)) ** 2 * np.diag(np.linalg.inv(mean) @ np.linalg.inv(mean))
    for less, more, by in zip(quiet, noisy, added, strict=True):
        assert more.error**2 == pytest.approx(less.error**2 + by, rel=1e-6)


def test_without_curvature_a_coefficient_is_unknown() -> None:
    flat = FEATURES * np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    silos = moments_of(NUMBERS, EVERYTHING, flat, TARGETS, 1e-5)
    noise = np.random.default_rng(3).normal(scale=1e-5, size=(5, 48))
    silos = {
        name: silo._replace(answer=silo.answer + own) for (name, silo), own in zip(silos.items(), noise, strict=True)
    }
    found = coefficient_intervals(EVERYTHING, silos, 2000, *JUST_THE_WEIGHTS, level=0.95)
    assert not found[2].is_known
    assert (found[2].low, found[2].high, found[2].p_value) == (-math.inf, math.inf, 1.0)


def test_p_values_and_intervals_agree_at_every_level() -> None:
    silos = moments_of(NUMBERS, EVERYTHING, FEATURES, TARGETS, 1e-3)
    found = coefficient_intervals(EVERYTHING, silos, 2000, *JUST_THE_WEIGHTS, level=0.9)
    open_ones = {place: one for place, one in enumerate(found) if one.p_value > 1e-9}
    assert len(open_ones) >= 3
    for place, one in open_ones.items():
        (at,) = coefficient_intervals(EVERYTHING, silos, 2000, np.eye(6)[[place]], np.zeros(1), level=1 - one.p_value)
        assert min(abs(at.low), abs(at.high)) == pytest.approx(0.0, abs=1e-6)


def test_silos_as_draws_widen_intervals_by_how_far_their_own_answers_lie_apart() -> None:
    """Five equal silos of one feature each: the mean of their own estimates, and Student's t of 4 degrees."""
    silos = moments_of(NUMBERS, EVERYTHING, FEATURES, TARGETS, 1e-12)
    curvature = np.mean([MomentBlocks.of(EVERYTHING, silo.answer).curvature for silo in silos.values()], axis=0)
    best = np.linalg.lstsq(FEATURES, TARGETS, rcond=None)[0]
    found = coefficient_intervals(EVERYTHING, silos, 2000, *JUST_THE_WEIGHTS, level=0.95, by_silo=True)
    own = []
    for silo in silos.values():
        blocks = MomentBlocks.of(EVERYTHING, silo.answer)
        left = blocks.gradient * 10.0 + blocks.curvature @ (best * 10.0)
        own.append(np.linalg.solve(curvature, left) / 10.0)
    expected = np.std(own, axis=0, ddof=1) / math.sqrt(5)
    np.testing.assert_allclose([one.error for one in found], expected, rtol=1e-6)
    assert found[0].high - found[0].low > 1.9 * 2.776 * found[0].error


def test_answers_from_two_places_averaged_cancel_the_change_of_curvature_between_them() -> None:
    """Without noise, Newton's step from one place misses the logistic loss's root by more than that from both."""
    features, targets = draw(DESIGNS[0], True, 2000, np.random.default_rng(2))
    root = np.zeros(6)
    for _ in range(12):
        ask = MomentsArgument(root, 1.0, 0.25, np.eye(6) / 10.0)
        root = np.array([one.estimate for one in coefficient_intervals(
            ask, moments_of(LABELS, ask, features, targets, 1e-12), 10**4, *JUST_THE_WEIGHTS, level=0.95
        )])  # fmt: skip
    one, other = root + np.eye(6)[5], root + 0.3 * np.eye(6)[0]
    answers = [moments_of(LABELS, ask._replace(weights=place), features, targets, 1e-12) for place in (one, other)]
    both = {
        name: silo._replace(answer=(silo.answer + answers[1][name].answer) / 2) for name, silo in answers[0].items()
    }

    def off(at: FloatArray, silos: dict[str, SiloMoments]) -> float:
        found = coefficient_intervals(ask._replace(weights=at), silos, 10**4, *JUST_THE_WEIGHTS, level=0.95)
        return float(np.linalg.norm([one.estimate for one in found] - root))

    assert off((one + other) / 2, both) < 0.25 * off(one, answers[0])


@pytest.mark.parametrize("plan", [NUMBERS, LABELS], ids=["numbers", "labels"])
def test_every_round_asks_at_a_better_place(plan: Plan) -> None:
    """Without noise: the weights become the best ones, and curvature alike along all axes."""
    labels = plan is LABELS
    features, targets = draw(DESIGNS[1], labels, 2000, np.random.default_rng(4))
    query = plan.stages[0].query
    assert isinstance(query, SecondMoments)
    asked = first_moment_request(query, plan)
    for _ in range(4):
        answer, noise, _ = pooled_moments(moments_of(plan, asked, features, targets, 1e-9))
        asked = next_moment_request(plan, asked, answer, noise)
    curvature = MomentBlocks.of(asked, pooled_moments(moments_of(plan, asked, features, targets, 1e-9))[0]).curvature
    values = np.linalg.eigvalsh(curvature)
    assert values[-1] < 1.5 * values[0]
    residuals = plan.loss.residuals(features @ asked.weights[:, None], targets)
    assert np.max(np.abs(features.T @ residuals)) / len(targets) < 2e-3
    if not labels:
        assert asked.residual == pytest.approx(3 * np.std(residuals), rel=0.1)


@pytest.mark.parametrize("labels", [False, True])
def test_the_simulation_computes_what_a_silo_does(labels: bool) -> None:
    plan = LABELS if labels else NUMBERS
    query = plan.stages[0].query
    assert isinstance(query, SecondMoments)
    features, targets = draw(DESIGNS[2], labels, 50, np.random.default_rng(5))
    asked = MomentsArgument(np.full(6, 0.1), 0.3, 0.25, np.random.default_rng(6).normal(size=(6, 6)))
    for place, answer in enumerate(exact_answers(plan, asked, features, targets)):
        rows = slice(50 * place, 50 * place + 50)
        records = Records(plan.data, features[rows], targets[rows])
        exact = compute(query, plan, asked.packed(), records, np.ones(50), 50)
        np.testing.assert_allclose(answer, exact, atol=1e-8)
