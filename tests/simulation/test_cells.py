"""A sweep's cells are known by their values, and a grid has every combination of them."""

import json
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import SweepError
from ringfence.simulation.cells import Cell, Value, cells
from tests.simulation.sweeping import GRID

VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())


@settings(max_examples=40)
@given(st.dictionaries(st.text(), VALUES), st.integers(0, 9), st.randoms())
def test_a_cells_id_does_not_depend_on_the_order_of_its_parameters(
    parameters: dict[str, Value], trial: int, order: random.Random
) -> None:
    parameters.pop("trial", None)
    shuffled = dict(order.sample(list(parameters.items()), len(parameters)))
    assert Cell(parameters, trial) == Cell(shuffled, trial)
    assert Cell(parameters, trial) != Cell(parameters, trial + 1)
    assert dict(Cell(parameters, trial)) == {**parameters, "trial": trial}


@settings(max_examples=40)
@given(st.dictionaries(st.text().filter(lambda name: name != "trial"), VALUES))
def test_a_cell_read_back_from_a_file_is_the_same_cell(parameters: dict[str, Value]) -> None:
    assert Cell(json.loads(json.dumps(parameters)), 0) == Cell(parameters, 0)


def test_equal_numbers_are_one_value_and_everything_else_is_another() -> None:
    assert len({Cell({"a": one}, 0).id for one in (1, 1.0, np.float32(1), np.int64(1))}) == 1
    assert len({Cell({"a": value}, 0) for value in (1, True, "1", 1.5, math.inf, "", 2**53 + 1, 2.0**53)}) == 8


def test_a_cells_id_never_changes() -> None:
    assert Cell({"loss": "logistic", "epsilon": 0.5}, 3).id == "5ad74ea473dd1349456bbe5e6a05e897"


def test_a_cell_is_frozen() -> None:
    cell = Cell({"a": 1}, 0)
    with pytest.raises(AttributeError):
        cell.trial = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        cell["a"] = 2  # type: ignore[index]


def test_a_grid_gives_every_combination_in_every_trial_and_can_be_gone_through_twice() -> None:
    grid = cells(GRID, 2)
    assert len(grid) == 12 == len(set(grid)) == len(set(grid))
    assert [dict(cell) for cell in cells({}, 2)] == [{"trial": 0}, {"trial": 1}]


@pytest.mark.parametrize(
    ("grid", "trials", "sentence"),
    [
        ({"a": []}, 1, "at least one value"),
        ({"loss": "hinge"}, 1, "needs a list"),
        ({"a": [1, 1.0]}, 1, "same value twice"),
        ({"a": [math.nan]}, 1, "cannot be nan"),
        ({"a": [None]}, 1, "cannot be None"),
        ({"a": [np.zeros(2)]}, 1, "give a number"),
        ({"a": [1]}, 0, "at least 1"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(grid: dict[str, Any], trials: int, sentence: str) -> None:
    with pytest.raises(SweepError, match=sentence):
        cells(grid, trials)


def test_no_parameter_is_named_trial() -> None:
    with pytest.raises(SweepError, match="rename it"):
        list(cells({"trial": [1]}, 1))
