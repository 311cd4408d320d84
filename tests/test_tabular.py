"""Files of predictions: CSV and Parquet say the same."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from ringfence.errors import OutputError
from ringfence.sources import read_table
from ringfence.sources.cells import as_cells
from ringfence.tabular import csv_text, write_table

COLUMNS: dict[str, list[Any]] = {"patient": ["7", "8"], "cost": [0.1, 1 / 3]}


def test_what_is_written_is_read_again_to_the_last_digit(tmp_path: Path) -> None:
    for name in ("out.csv", "out.parquet"):
        write_table(tmp_path / name, COLUMNS)
        found = read_table(tmp_path / name)
        assert as_cells(found["patient"]).texts() == COLUMNS["patient"]
        assert as_cells(found["cost"]).numbers().tolist() == COLUMNS["cost"]
    assert parquet.read_table(tmp_path / "out.parquet").to_pydict() == COLUMNS


def test_a_cell_with_a_comma_is_quoted() -> None:
    assert csv_text({"name": ["a,b"], "ill": ["yes"]}) == 'name,ill\n"a,b",yes\n'


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for name in ("out.csv", "out.parquet"):
        with pytest.raises(OutputError, match="could not be written"):
            write_table(tmp_path / "nowhere" / name, COLUMNS)
