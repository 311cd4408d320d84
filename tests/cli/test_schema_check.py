"""From a file as people have it to a model: one draft, one check."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from ringfence.silo.records.schema_check import check_schema
from tests.cli.conftest import ringfence

SECRET = "ZX4711Quilliam"
NOTES = ("hat seit Tagen starken Husten", "klagt über Schmerzen im Arm", "fühlt sich müde und schläft schlecht")


def eight_columns(folder: Path) -> Path:
    """Semicolons, Latin-1, N/A, dates, an identifier, a free text, a boolean and decimal commas."""
    random = np.random.default_rng(5)
    lines = ["Fallnummer;Größe;Alter;Aufnahme;Stadtteil;Anmerkung;Raucher;krank"]
    for row in range(400):
        height = f"{random.uniform(1.5, 2):.2f}".replace(".", ",")
        age = "N/A" if row % 40 == 7 else str(random.integers(20, 90))
        day = f"{random.integers(1, 29):02d}.{random.integers(1, 13):02d}.2023"
        smokes = random.uniform() < 0.4
        ill = random.uniform() < (0.85 if smokes else 0.15)
        ward = random.choice(["Süd", "Nord", "Höhe"])
        note = f"{NOTES[random.integers(3)]}, zuletzt vor {random.integers(30)} Tagen"
        lines.append(f"F{row:05d}x;{height};{age};{day};{ward};{note};{str(smokes).lower()};{'yes' if ill else 'no'}")
    file = folder / "klinik.csv"
    file.write_bytes("\r\n".join([*lines, ""]).encode("latin-1"))
    return file


def test_an_eight_column_file_trains_after_one_draft_and_one_check(tmp_path: Path) -> None:
    file, schema = eight_columns(tmp_path), tmp_path / "schema.toml"
    ringfence("schema", "draft", file, "--out", schema)
    text = schema.read_text(encoding="utf-8")
    drafted = tomllib.loads(text)
    assert {name: column["type"] for name, column in drafted["columns"].items()} == {
        "Fallnummer": "identifier",
        "Größe": "numeric",
        "Alter": "numeric",
        "Aufnahme": "date",
        "Stadtteil": "categorical",
        "Anmerkung": "ignore",
        "Raucher": "boolean",
        "krank": "boolean",
    }
    assert drafted["columns"]["Aufnahme"]["format"] == "%d.%m.%Y"
    assert "N/A" in drafted["missing_tokens"]
    for value in ("F00", "Süd", "Husten", "2023", "1,7"):
        assert value not in text
    filled = {
        '"Größe"]\ntype = "numeric"\nlower = "?"\nupper = "?"': '"Größe"]\ntype = "numeric"\nlower = 1\nupper = 2.5',
        '[columns.Alter]\ntype = "numeric"\nlower = "?"\nupper = "?"': '[columns.Alter]\ntype = "numeric"\nlower = 0\n'
        "upper = 120\nmissing = 50",
        'type = "date"\nlower = "?"\nupper = "?"': 'type = "date"\nlower = 2023-01-01\nupper = 2023-12-31',
        'categories = [\n    "?",\n]': 'categories = ["Süd", "Nord", "Höhe"]',
    }
    for before, after in filled.items():
        assert before in text
        text = text.replace(before, after)
    schema.write_text(text, encoding="utf-8")
    checked = ringfence("schema", "check", schema, file)
    assert checked.stderr == ""
    assert "fits" in checked.stdout
    ringfence("train", file, "--schema", schema, "--target", "krank", "--epsilon", "4")


SCHEMA = """
columns.id = {type = "identifier"}
columns.age = {type = "numeric", lower = 0, upper = 120}
columns.town = {type = "categorical", categories = ["a", "b"]}
columns.seen = {type = "date", lower = 2020-01-01, upper = 2021-01-01}
columns.height = {type = "numeric", lower = 1, upper = 2}
"""


def test_a_check_tells_all_problems_at_once_by_row_and_column_and_shows_no_value(tmp_path: Path) -> None:
    schema, file = tmp_path / "schema.toml", tmp_path / "data.csv"
    schema.write_text(SCHEMA)
    rows = [f"1,{SECRET},a,2020-05-01", "2,,b,2020-05-01", f"3,{SECRET},{SECRET},{SECRET}"]
    rows += [f"4,5,{SECRET},2020-05-01"] * 5
    file.write_text("\n".join(["id,age,town,seen", *rows, ""]))
    done = ringfence("schema", "check", schema, file, status=1)
    assert SECRET not in done.stdout + done.stderr
    report = " ".join(done.stdout.split())
    for sentence in (
        "column 'height' is not in data.csv; correct its name",
        "column 'age', row 3: the cell is empty; give the column a public `missing` value",
        "column 'age', rows 2, 4: this is not a finite number",
        "column 'town', rows 4, 5, 6 and 3 more: this category is not in the schema's public list",
        "column 'seen', row 4: this is not an ISO 8601 date",
    ):
        assert sentence in report
    assert "5 problems" in done.stderr
    ringfence("schema", "check", schema, file, "--json", status=1)


def test_the_maps_that_a_draft_shows_train_once_their_columns_are_the_table_s(tmp_path: Path) -> None:
    file, schema = tmp_path / "data.csv", tmp_path / "schema.toml"
    random = np.random.default_rng(4)
    rows = [f"{age:.1f},{hour:.1f},{age / 100:.2f}" for age, hour in random.uniform((20, 0), (90, 24), (300, 2))]
    file.write_text("\n".join(["age,hour,cost", *rows, ""]))
    text = ringfence("schema", "draft", file).stdout
    shown = text[text.index("# maps = [") : text.index("# ]") + 3].replace("# ", "", 1).replace("\n# ", "\n")
    maps = shown.replace("AGE", "age").replace("BMI", "hour").replace("HOUR", "hour")
    bounds = {"age": "lower = 0, upper = 120", "hour": "lower = 0, upper = 24", "cost": "lower = 0, upper = 1"}
    columns = [f'columns.{name} = {{type = "numeric", {own}}}' for name, own in bounds.items()]
    schema.write_text("\n".join([maps, *columns, ""]))
    checked = ringfence("schema", "check", schema, file)
    assert checked.stderr == ""
    out = tmp_path / "model.json"
    asked = ["train", file, "--schema", schema, "--target", "cost", "--epsilon", "0.1", "--out", out, "--anyway"]
    done = ringfence(*asked)
    assert "The maps are wide for this budget" in " ".join((done.stdout + done.stderr).split())
    predicted = ringfence("predict", out, file)
    assert len(predicted.stdout.splitlines()) == 301
    schema.write_text("\n".join([maps.replace('"hour"', '"minute"'), *columns, ""]))
    checked = ringfence("schema", "check", schema, file, status=1)
    assert "names the column 'minute', which is missing from the columns" in " ".join(checked.stdout.split())


def test_a_check_of_a_schema_that_is_not_filled_in_names_every_field(tmp_path: Path) -> None:
    schema, file = tmp_path / "schema.toml", tmp_path / "data.csv"
    file.write_text("age,town\n1,a\n")
    schema.write_text(
        'columns.age = {type = "numeric", lower = "?"}\n'
        'columns.town = {type = "categorical", categories = [true, false]}\n'
    )
    report = check_schema(schema, [file])[0].problems
    assert len(report) == 3
    assert "column 'age', 'lower' is not filled in: write the smallest" in report[0]
    assert "column 'age', 'upper' is not filled in" in report[1]
    assert "quote them" in report[2]


def test_a_schema_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    schema, file = tmp_path / "schema.toml", tmp_path / "data.csv"
    file.write_text("age\n1\n")
    assert "could not be read" in check_schema(schema, [file])[0].problems[0]
    schema.write_text("[columns")
    assert "not valid TOML" in check_schema(schema, [file])[0].problems[0]


@pytest.mark.parametrize("content", ["age\n", "age,town\n"])
def test_a_table_without_records_is_one_problem(tmp_path: Path, content: str) -> None:
    schema, file = tmp_path / "schema.toml", tmp_path / "data.csv"
    schema.write_text('[columns.age]\ntype = "numeric"\nlower = 0\nupper = 1\n')
    file.write_text(content)
    assert check_schema(schema, [file])[0].problems == ["the table has a header but no records."]


def test_several_tables_are_checked_at_once_and_each_problem_names_its_file(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text('[columns.age]\ntype = "numeric"\nlower = 0\nupper = 120\n')
    for name, rows in {"north": "40\n50", "south": "60\nold", "west": "70\n80"}.items():
        (tmp_path / f"{name}.csv").write_text(f"age\n{rows}\n")
    files = [str(tmp_path / f"{name}.csv") for name in ("north", "south", "west")]
    refused = ringfence("schema", "check", schema, *files, status=1)
    (problem,) = refused.stdout.splitlines()
    assert problem.startswith("south.csv: column 'age', row 3: ")
    assert "old" not in refused.stdout + refused.stderr
    assert f"schema.toml does not describe {files[1]}: 1 problem." in " ".join(refused.stderr.split())
    fitting = ringfence("schema", "check", schema, files[0], files[2])
    assert len(fitting.stdout.splitlines()) == 2
    schema.write_text('[columns.age]\ntype = "numeric"\nlower = "?"\nupper = 120\n')
    (problem,) = ringfence("schema", "check", schema, *files, status=1).stdout.splitlines()
    assert problem.startswith("column 'age', 'lower' is not filled in"), "a problem of the schema is told once"


@pytest.mark.parametrize("start", [b"PK\x03\x04\x14\x00\x06\x00", bytes.fromhex("d0cf11e0a1b11ae1")])
def test_a_spreadsheet_is_refused_with_what_to_export_instead(tmp_path: Path, start: bytes) -> None:
    book = tmp_path / "book.xlsx"
    book.write_bytes(start + b"Quilliam" * 100)
    refused = ringfence("schema", "draft", book, status=1)
    assert "export the table as CSV or Parquet" in " ".join(refused.stderr.split())
    assert "Quilliam" not in refused.stdout + refused.stderr
