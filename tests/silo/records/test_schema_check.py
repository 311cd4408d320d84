"""A table is checked chunk by chunk, and what is found does not depend on where a chunk ends."""

from pathlib import Path

import pytest

from ringfence.silo.records.schema_check import Checked, check_schema
from ringfence.sources import csv_files

SCHEMA = """
person = "patient"
offset = "shift"
[columns.age]
type = "numeric"
lower = 0
upper = 120
[columns.weight]
type = "numeric"
lower = 30
upper = 200
missing = 80
missing_tokens = ["NA"]
[columns.seen]
type = "date"
lower = "2020-01-01"
upper = "2030-01-01"
[columns.shift]
type = "numeric"
lower = -1
upper = 1
[columns.ill]
type = "categorical"
categories = ["no", "yes"]
"""


def checked(folder: Path) -> Checked:
    rows = [
        [
            f"p{row % 50}",
            20 + row % 60,
            "NA" if row % 7 == 0 else 60 + row % 30,
            f"2024-01-{1 + row % 28:02}",
            0.5,
            "no",
        ]
        for row in range(200)
    ]
    for row in (20, 90, 190):
        rows[row][1] = 999
        rows[row][5] = "YES"
    rows[70][1], rows[150][1], rows[199][1] = "unknown", "unknown", 130
    rows[120][3], rows[180][4], rows[181][4] = "1.5.2024", 3, 4
    rows[140][0], rows[141][5] = "P3", ""
    lines = ["patient,age,weight,seen,shift,ill", *(",".join(map(str, row)) for row in rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    (found,) = check_schema(folder / "schema.toml", [folder / "table.csv"])
    return found


@pytest.mark.parametrize("size", [10, 300, 2000])
def test_a_check_finds_the_same_wherever_its_chunks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    whole = checked(tmp_path)
    monkeypatch.setattr(csv_files, "BLOCK", size)
    assert checked(tmp_path) == whole
    problems, advice = "\n".join(whole.problems), "\n".join(whole.advice)
    assert "column 'age', rows 72, 152: this is not a finite number" in problems
    assert "column 'ill', rows 22, 92, 192: this category is not" in problems
    assert "column 'ill', row 143: the cell is empty" in problems
    assert "column 'seen', row 122" in problems
    assert "Row 182, column 'shift'" in problems
    assert "column 'age': 5 cells hold '999' or 'unknown'" in advice
    assert "3 cells hold a category in other capitals" in advice
    assert "column 'patient'" in advice
