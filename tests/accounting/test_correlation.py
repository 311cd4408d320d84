"""Correlated noise: the matrices are what they claim, no record moves further than is paid for, and sums profit."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.correlation import coefficients, column_norm, inverse_coefficients
from ringfence.accounting.events import DisjointBatchRelease, Event
from ringfence.accounting.sampling import shift_of
from ringfence.errors import AccountingError

Floats = NDArray[np.float64]
THETAS = [0.0, 0.1, 0.5, 0.77, 0.999]


def lower(column: Floats) -> Floats:
    """The lower triangular Toeplitz matrix with this first column."""
    return np.asarray(toeplitz(column, np.zeros(len(column))), dtype=np.float64)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("rows", [1, 2, 12, 300])
def test_the_inverse_undoes_the_correlation(theta: float, rows: int) -> None:
    product = lower(coefficients(theta, rows)) @ lower(inverse_coefficients(theta, rows))
    assert np.abs(product - np.eye(rows)).max() < 1e-12


@pytest.mark.parametrize(("theta", "exact"), [(0.0, Fraction(0)), (0.25, Fraction(1, 4)), (0.5, Fraction(1, 2))])
def test_the_coefficients_are_those_of_a_power_of_one_minus_x(theta: float, exact: Fraction) -> None:
    for sign, computed in ((1, coefficients(theta, 60)), (-1, inverse_coefficients(theta, 60))):
        term, expected = Fraction(1), [Fraction(1)]
        for k in range(1, 60):
            term *= (k - 1 + sign * exact) / k
            expected.append(term)
        assert computed == pytest.approx([float(value) for value in expected], rel=1e-14, abs=0)


@pytest.mark.parametrize("theta", THETAS)
def test_coefficients_of_fewer_rows_are_the_first_of_more(theta: float) -> None:
    """A silo computes them row by row, the planner for all rows: both must speak of the same numbers."""
    for function in (coefficients, inverse_coefficients):
        longest = function(theta, 40)
        for rows in (1, 2, 17, 39):
            assert np.array_equal(function(theta, rows), longest[:rows])


NO_POWERS = [-0.1, 1.0, 1.5, math.nan, math.inf, True, "0.5", None]


@pytest.mark.parametrize(
    ("theta", "rows", "says"),
    [
        *((theta, 5, "theta must be") for theta in NO_POWERS),
        *((0.5, rows, "rows must be") for rows in (0, -1, 2.0, True)),
    ],
)
def test_powers_outside_zero_to_one_and_rows_that_cannot_be_counted_are_refused(
    theta: object, rows: object, says: str
) -> None:
    for function in (coefficients, inverse_coefficients, column_norm):
        with pytest.raises(AccountingError, match=says):
            function(theta, rows)  # type: ignore[arg-type]


# What a silo does, by the definition: row k of a block is Σ_j c_{k−j} G_j, before rounding and noise.

CLIP, BATCH, FEATURES = 1.0, 4, 3
Data = Floats  # one record per line


def mean_gradient(batch: Data, weights: Floats) -> Floats:
    """A clipped mean of gradients that depend on the weights in a way that is far from linear."""
    gradients = batch * np.cos(3 * batch @ weights)[:, None] * 5
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.asarray(np.sum(gradients * np.minimum(1, CLIP / np.maximum(lengths, 1e-30)), axis=0) / BATCH)


def means_of_rows(data: Data, transcript: Floats, theta: float, blocks: Sequence[int]) -> Floats:
    """The mean of every row of M, given all rows before it: the weights are chosen after seeing those."""
    means, row = [], 0
    for length in blocks:
        c, gradients = coefficients(theta, length), []
        for k in range(length):
            # The adversary sees every M so far, which is more than the y that it is sent.
            weights = np.tanh(transcript[:row].sum(axis=0)) - 0.3 * row
            gradients.append(mean_gradient(data[row * BATCH : (row + 1) * BATCH], weights))
            means.append(c[k::-1] @ np.array(gradients))
            row += 1
    return np.array(means)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    theta=st.floats(0, 0.999),
    blocks=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_whatever_the_server_asks_no_record_moves_the_rows_further_than_the_column_norm(
    seed: int, theta: float, blocks: list[int], scale: float
) -> None:
    """Given the same transcript both neighbours get the same weights; Gaussian rows then differ in their means only.

    A list of blocks is a run whose silo restarted between them.
    """
    generator, rows = np.random.default_rng(seed), sum(blocks)
    data = scale * generator.normal(size=(rows * BATCH, FEATURES))
    transcript = generator.normal(size=(rows, FEATURES))
    means = means_of_rows(data, transcript, theta, blocks)
    for row in range(rows):
        neighbour = data.copy()
        neighbour[row * BATCH] = scale * generator.normal(size=FEATURES)
        moved = np.linalg.norm(means_of_rows(neighbour, transcript, theta, blocks) - means, axis=1)
        assert not moved[:row].any()  # nothing before it took part
        assert np.linalg.norm(moved) <= 2 * CLIP / BATCH * column_norm(theta, rows) * (1 + 1e-12)


@pytest.mark.parametrize("theta", THETAS)
def test_the_first_record_of_an_unbroken_run_can_move_the_rows_just_as_far(theta: float) -> None:
    rows, transcript = 9, np.zeros((9, FEATURES))
    data = np.zeros((rows * BATCH, FEATURES))
    data[0, 0] = 1000 * math.pi  # cos(0) = 1: cut to the clip
    neighbour = data.copy()
    neighbour[0, 0] *= -1
    moves = [means_of_rows(neighbour, transcript, theta, [rows]) - means_of_rows(data, transcript, theta, [rows])]
    assert np.linalg.norm(moves) == pytest.approx(2 * CLIP / BATCH * column_norm(theta, rows), rel=1e-12)


def test_a_record_that_took_part_twice_would_move_the_rows_further() -> None:
    """The bound is for one pass: this is why correlated noise must be refused with any other sampling."""
    c, rows = coefficients(0.5, 9), 9
    twice = c + np.concatenate([[0.0], c[:-1]])
    assert np.linalg.norm(twice) > math.sqrt(2) * column_norm(0.5, rows)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), theta=st.floats(0, 0.999), rows=st.integers(1, 12), width=st.floats(0.1, 10))
def test_the_shift_covers_the_rounding_of_every_row_to_the_grid(
    seed: int, theta: float, rows: int, width: float
) -> None:
    """Gradients of the grid's own size, where rounding matters most."""
    generator, grid, d = np.random.default_rng(seed), 2.0**-30, 5
    sensitivity = width * grid
    change = generator.normal(size=d)
    change *= sensitivity / np.linalg.norm(change)
    gradients = generator.normal(size=(rows, d)) * grid
    neighbours = gradients.copy()
    neighbours[0] += change
    correlation = lower(coefficients(theta, rows))
    moved = grid * (np.round(correlation @ neighbours / grid) - np.round(correlation @ gradients / grid))
    total = sensitivity * column_norm(theta, rows)
    shift = shift_of(sensitivity=total, sigma=1.0, summed=100, dimension=d, rows=rows)
    assert np.linalg.norm(moved) <= shift


def test_a_record_can_tip_the_rounding_of_every_row() -> None:
    """So that an allowance per row is needed: here every row lies just below the edge of its grid cell."""
    rows, theta = 16, 0.9
    correlation = lower(coefficients(theta, rows))
    gradients = np.linalg.solve(correlation, np.full(rows, 0.499))
    neighbours = gradients + 0.01 * np.eye(rows)[0]
    moved = np.round(correlation @ neighbours) - np.round(correlation @ gradients)
    assert np.linalg.norm(moved) == math.sqrt(rows)
    sensitivity = 0.01 * column_norm(theta, rows) * 2.0**-30
    assert shift_of(sensitivity=sensitivity, sigma=1.0, summed=100, rows=rows) >= math.sqrt(rows) * 2.0**-30


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("blocks", [[12], [5, 7], [1, 1, 10]])
def test_what_is_sent_is_the_gradient_plus_noise_of_mean_zero(theta: float, blocks: list[int]) -> None:
    generator = np.random.default_rng(3)
    data, weights_from = generator.normal(size=(12 * BATCH, FEATURES)), generator.normal(size=(12, FEATURES))
    means, row = means_of_rows(data, weights_from, theta, blocks), 0
    independent = means_of_rows(data, weights_from, 0.0, [12])
    for length in blocks:
        sent = lower(inverse_coefficients(theta, length)) @ means[row : row + length]
        assert np.allclose(sent, independent[row : row + length], rtol=0, atol=1e-13)
        row += length


@pytest.mark.parametrize("theta", [0.0, 0.5, 0.9])
def test_a_correlated_pass_needs_as_many_times_the_noise_as_the_column_norm(theta: float) -> None:
    rows, records, batch, clip = 25, 500, 20, 3.0

    def run(sigma: float) -> list[tuple[Event, int]]:
        sensitivity = 2 * clip / batch * column_norm(theta, rows)
        shift = shift_of(sensitivity=sensitivity, sigma=sigma, summed=records, dimension=50, rows=rows)
        return [(DisjointBatchRelease("pass", part, shift), 1) for part in range(rows)]

    sigma = calibrate.least_noise(run, epsilon=1.0, delta=1e-6, start=1.0)
    independent = calibrate.noise(
        "one-pass", records=records, batch=batch, rounds=rows, clip=clip, epsilon=1.0, delta=1e-6
    )
    assert sigma == pytest.approx(independent * column_norm(theta, rows), rel=1e-6)
    assert accountant.epsilon(run(sigma), 1e-6) <= 1.0
