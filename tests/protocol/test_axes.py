"""Axes of any form do what the matrix that they stand for does."""

import numpy as np
import pytest

from ringfence.protocol import Axes, MatrixAxes, RankOneAxes
from ringfence.protocol.axes import AxesForm, axes_length, unpacked

WIDTH = 7


def drawn(seed: int) -> list[tuple[Axes, np.ndarray]]:
    random = np.random.default_rng(seed)
    matrix, direction, scale = random.normal(size=(WIDTH, WIDTH)), random.normal(size=WIDTH) / 4, random.uniform(1, 3)
    rank_one = scale * (np.eye(WIDTH) - np.outer(direction, direction))
    return [
        (MatrixAxes(matrix), matrix),
        (RankOneAxes(scale, direction), rank_one),
        (RankOneAxes(scale, np.zeros(WIDTH)), scale * np.eye(WIDTH)),
        (
            RankOneAxes(1.0, direction / np.linalg.norm(direction)),
            np.eye(WIDTH) - np.outer(direction, direction) / np.linalg.norm(direction) ** 2,
        ),
    ]


@pytest.mark.parametrize(("axes", "matrix"), drawn(1), ids=["matrix", "rank one", "no direction", "left out"])
def test_they_turn_rows_and_columns_as_their_matrix_does_and_a_request_carries_them(
    axes: Axes, matrix: np.ndarray
) -> None:
    random = np.random.default_rng(2)
    rows, columns = random.normal(size=(5, WIDTH)), random.normal(size=(WIDTH, 3))
    assert np.allclose(axes.along(rows, np.matmul), rows @ matrix.T)
    assert np.allclose(axes.turned(columns), matrix @ columns)
    assert np.allclose(axes.back(columns), matrix.T @ columns)
    assert np.allclose(axes.scaled(3.0).turned(columns), 3 * matrix @ columns)
    for pull in (0.0, 0.1, 50.0):
        solved = np.linalg.solve(np.eye(WIDTH) + pull * matrix.T @ matrix, columns)
        assert np.allclose(axes.shrunk(columns, pull), solved)
    form: AxesForm | None = None if isinstance(axes, MatrixAxes) else "rank-one"
    assert len(axes.packed()) == axes_length(form, WIDTH)
    assert axes.width == WIDTH
    assert np.allclose(unpacked(form, axes.packed()).turned(columns), matrix @ columns)


def test_a_direction_whose_products_would_be_too_small_for_all_digits_is_read_as_none() -> None:
    """Such products take a processor many times as long, and whether there are any depends on the record."""
    numbers = np.concatenate([[1.0], 2.0 ** np.array([0.0, -200.0, -249.0, -251.0, -499.0, -1000.0, 100.0])])
    axes = unpacked("rank-one", numbers)
    assert isinstance(axes, RankOneAxes)
    assert np.array_equal(axes.direction, np.where(numbers[1:] < 2.0**-250, 0.0, numbers[1:]))
