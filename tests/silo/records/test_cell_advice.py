"""Advice on cells rests on a few of them, and is the same as if all were kept."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ringfence.protocol.schema.codes import NUMBERS
from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.silo.records.cell_advice import Advice, NotableCells, advice_on
from ringfence.sources.cells import ArrayCells, Cells, TextCells


class EveryCell(NotableCells):
    """Keeps all cells that hold something."""

    def _notable(self, column: Any, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.ones(len(values), dtype=bool)


def column(**fields: Any) -> ReadColumn:
    made = TYPES[fields["type"]].model_validate(fields, strict=False)
    assert isinstance(made, ReadColumn)
    return made


def advised(kept: NotableCells, cells: Cells, size: int) -> list[Advice]:
    for begin in range(0, len(cells), size):
        kept.add(cells.take(slice(begin, begin + size)))
    return list(advice_on("x", kept, False))


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_of_numbers_gives_the_advice_that_all_of_them_give(seed: int) -> None:
    random = np.random.default_rng(seed)
    advice = sum(bool(found) for found in (same_advice(random) for _ in range(30)))
    assert advice > 10


def same_advice(random: np.random.Generator) -> list[Advice]:
    """Compare the advice on a made-up column, read in chunks of several sizes, with that on all of its cells."""
    count, few = int(random.integers(1, 60)), int(random.integers(1, 8))
    low, high = sorted(random.choice([-1000.0, -10.0, 0.0, 1.0, 6.0, 50.0, 120.0, 900.0], 2, replace=False))
    distinct = np.concatenate([random.integers(-12, 130, few), random.choice(sorted(NUMBERS), 2), [7.0, 9.0]])
    values = random.choice(distinct[: random.integers(1, len(distinct) + 1)], count)
    values[random.random(count) < 0.1] = np.nan
    x = column(
        type="numeric",
        lower=low,
        upper=high,
        missing=low,
        missing_tokens=("-1", "9") if random.random() < 0.5 else None,
    )
    expected: list[Advice] = []
    as_texts = TextCells(["" if np.isnan(value) else repr(value) for value in values.tolist()])
    for cells in (ArrayCells(values), as_texts):
        expected = advised(EveryCell(x), cells, count)
        for size in (1, 7, count):
            assert advised(NotableCells(x), cells, size) == expected
    return expected


def test_a_number_that_marks_a_missing_value_far_from_all_others_is_found_in_whichever_chunk() -> None:
    x = column(type="numeric", lower=-1e6, upper=1e6)
    values = np.random.default_rng(0).uniform(20, 30, 1000)
    values[[3, 990]] = 999.0
    (found,) = advised(NotableCells(x), ArrayCells(values), 100)
    assert found.codes == ["999"]
    assert found.what.startswith("2 cells hold '999'")


def test_of_categories_and_dates_the_advice_is_the_same_in_chunks() -> None:
    label = column(type="categorical", categories=["yes", "no"])
    texts = ["yes", "Yes", "no", "NO", "unknown", "no", "k.A.", "99"] * 3
    day = column(type="date", lower="2020-01-01", upper="2025-01-01")
    dates = ["2021-05-01", "2022-05-01", "9999-12-31", "unknown", "2023-01-01", "9999-12-31", "2030-01-01"] * 3
    for own, cells in ((label, texts), (day, dates)):
        expected = advised(EveryCell(own), TextCells(cells), 100)
        assert expected
        assert advised(NotableCells(own), TextCells(cells), 5) == expected
