"""Codes for missing values, from a messy table to a model: `schema draft`, `schema check`, and what they may show."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ringfence.protocol import load_schema
from ringfence.silo.records.records import load_records
from ringfence.silo.records.schema_check import check_schema
from tests.cli.conftest import ringfence, ringfence_json

SCHEMA = """
columns.age = {type = "numeric", lower = 10, upper = 80}
columns.ill = {type = "boolean"}
"""


def checked(folder: Path, schema: str, *lines: str) -> list[str]:
    """Check a table of these lines, which must fit, and return the advice."""
    (folder / "schema.toml").write_text(schema)
    (folder / "data.csv").write_text("\n".join([*lines, ""]))
    problems, advice = check_schema(folder / "schema.toml", [folder / "data.csv"])[0]
    assert problems == []
    return advice


AGES = [f"{age},{'yes' if age > 50 else 'no'}" for age in range(20, 80)]


def test_minus_999_in_a_column_from_10_to_80_is_counted_and_the_line_that_is_suggested_makes_it_missing(
    tmp_path: Path,
) -> None:
    rows = ["age,ill", *AGES, "-999,no", "-999.0,no", "-999,yes"]
    [advice] = checked(tmp_path, SCHEMA, *rows)
    assert advice.startswith("column 'age': 3 cells hold '-999', probably for a missing value.")
    line = advice.split("`")[1]
    assert line == 'missing_tokens = ["-999"]'
    mended = SCHEMA.replace("upper = 80", f"upper = 80, missing = 50, {line}")
    assert checked(tmp_path, mended, *rows) == []
    records = load_records(tmp_path / "data.csv", load_schema(tmp_path / "schema.toml", "ill"))
    assert records.features[-3:, 0] == pytest.approx([(50 - 45) / 35] * 3)
    done = ringfence("schema", "check", tmp_path / "schema.toml", tmp_path / "data.csv")
    assert "fits" in done.stdout


def test_numbers_beyond_the_bounds_are_counted_with_the_advice_to_widen_them(tmp_path: Path) -> None:
    rows = ["age,ill", *AGES, "81,no", "82,no", "83.5,no", "9.5,yes", "-999,no"]
    [code, beyond] = checked(tmp_path, SCHEMA, *rows)
    assert code.startswith("column 'age': 1 cell holds '-999'")
    assert beyond == (
        "column 'age': 4 of 65 cells are beyond the bounds and are clamped (1 below `lower`, 3 above `upper`); "
        "if they are right, widen the bounds, from public knowledge."
    )
    for value in ("81", "82", "83.5", "9.5"):
        assert value not in beyond


def test_a_suggested_line_keeps_the_codes_that_the_schema_has(tmp_path: Path) -> None:
    schema = 'missing_tokens = ["NA"]\n' + SCHEMA.replace("upper = 80", "upper = 80, missing = 50")
    [advice] = checked(tmp_path, schema, "age,ill", *AGES, "NA,no", "999,no", "999,no")
    assert 'write `missing_tokens = ["NA", "999"]` for this column.' in advice


def test_codes_inside_wide_or_negative_bounds_are_found_by_their_distance_from_all_others(tmp_path: Path) -> None:
    wide = SCHEMA.replace("lower = 10, upper = 80", "lower = -5000, upper = 5000")
    [advice] = checked(tmp_path, wide, "age,ill", *AGES, "-999,no", "-999,no")
    assert "2 cells hold '-999'" in advice
    negative = SCHEMA.replace("lower = 10, upper = 80", "lower = -40, upper = 80")
    assert checked(tmp_path, negative, "age,ill", *AGES, "-9,no", "-12,no", "-30,no") == []
    [advice] = checked(tmp_path, negative, "age,ill", *AGES, "-9,no", "-12,no", "-99,no", "-99,no")
    assert "2 cells hold '-99'" in advice


def test_a_date_that_stands_for_none_is_suggested_in_the_table_s_own_spelling(tmp_path: Path) -> None:
    schema = 'columns.seen = {type = "date", lower = 2023-01-01, upper = 2023-12-31, format = "%d.%m.%Y"}\n'
    rows = ["seen", *(f"{day:02}.05.2023" for day in range(1, 29)), "31.12.9999", "01.01.1900"]
    [advice] = checked(tmp_path, schema, *rows)
    assert 'missing_tokens = ["01.01.1900", "31.12.9999"]' in advice
    assert (
        checked(tmp_path, schema.replace("format", f"missing = 2023-06-01, {advice.split('`')[1]}, format"), *rows)
        == []
    )


def test_words_and_codes_that_do_not_fit_are_named_with_the_line_and_other_cells_are_not(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(
        SCHEMA + 'columns.ward = {type = "categorical", categories = ["a", "b"]}\n'
        'columns.grade = {type = "code", codes = [1, 2, 3]}\n'
    )
    rows = ["age,ill,ward,grade", "k.A.,yes,a,1", "Quilliam,9,unknown,-9", "30,no,Osterhaus,17"]
    (tmp_path / "data.csv").write_text("\n".join([*rows, ""]))
    done = ringfence("schema", "check", tmp_path / "schema.toml", tmp_path / "data.csv", status=1)
    for column, line in {"age": '"k.A."', "ill": '"9"', "ward": '"unknown"', "grade": '"-9"'}.items():
        [advice] = [each for each in done.stdout.splitlines() if each.startswith(f"column '{column}': 1 cell holds")]
        assert f"write `missing_tokens = [{line}]`" in advice
    assert (
        "column 'age', rows 2, 3: this is not a finite number; if it marks a missing value, list it in `missing_tokens`"
        in done.stdout
    )
    for value in ("Quilliam", "Osterhaus", "17"):
        assert value not in done.stdout + done.stderr


def test_a_category_in_other_capitals_is_counted_with_the_synonyms_to_write(tmp_path: Path) -> None:
    schema, file = tmp_path / "schema.toml", tmp_path / "data.csv"
    schema.write_text(
        'columns.sex = {type = "categorical", categories = ["male", "female"], synonyms = {male = ["m"]}}\n'
    )
    file.write_text("sex\nmale\nMale\nMALE\nm\nfemale\nFEMALE\n")
    [advice] = check_schema(schema, [file])[0].advice
    assert advice.startswith("column 'sex': 3 cells hold a category in other capitals")
    line = advice.split("`")[1]
    assert line == 'synonyms = {"male" = ["m", "MALE", "Male"], "female" = ["FEMALE"]}'
    schema.write_text(f'[columns.sex]\ntype = "categorical"\ncategories = ["male", "female"]\n{line}\n')
    assert check_schema(schema, [file])[0] == ([], [])


def test_a_weight_of_minus_999_is_suggested_as_missing_beside_the_problem_that_it_is(tmp_path: Path) -> None:
    schema, file = tmp_path / "schema.toml", tmp_path / "data.csv"
    schema.write_text('weight = "w"\n' + SCHEMA + 'columns.w = {type = "numeric", lower = 0, upper = 2}\n')
    file.write_text("age,ill,w\n20,yes,1\n30,no,-999\n40,no,-999\n50,no,3\n")
    problems, advice = check_schema(schema, [file])[0]
    assert len(problems) == 1
    assert "this weight is outside the schema's bounds" in problems[0]
    assert [each.split(",")[0] for each in advice] == ["column 'w': 2 cells hold '-999'"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "sqlite", "npz"])
def test_a_check_and_a_draft_find_codes_in_every_kind_of_table(tmp_path: Path, kind: str) -> None:
    ages = np.array([*range(20, 80), -999, -999], dtype=np.int64)
    texts = ["yes", "no"] * 31
    file = tmp_path / f"data.{kind}"
    if kind == "npz":
        np.savez(file, age=ages, ill=np.array(texts))
    elif kind == "sqlite":
        import sqlite3

        with sqlite3.connect(file) as base:
            base.execute("CREATE TABLE visits (visit INTEGER, age INTEGER, ill TEXT)")
            rows = [(row, int(age), text) for row, (age, text) in enumerate(zip(ages, texts, strict=True))]
            base.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
        file = tmp_path / "data.toml"
        file.write_text('database = "sqlite:data.sqlite"\nquery = "SELECT * FROM visits"\norder_by = ["visit"]\n')
    else:
        import pyarrow
        from pyarrow import feather, parquet

        table = pyarrow.table({"age": ages, "ill": texts})
        parquet.write_table(table, file) if kind == "parquet" else feather.write_feather(table, file)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    problems, [advice] = check_schema(tmp_path / "schema.toml", [file])[0]
    assert problems == []
    assert "2 cells hold '-999'" in advice
    draft = tomllib.loads(ringfence("schema", "draft", file).stdout)
    assert draft["columns"]["age"]["missing_tokens"] == ["-999"]


def test_advice_of_several_tables_names_the_table_and_is_in_the_json(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for name, odd in (("north", "-999,no"), ("south", "50,no")):
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,ill", *AGES, odd, ""]))
    files = [tmp_path / "north.csv", tmp_path / "south.csv"]
    report = ringfence_json("schema", "check", tmp_path / "schema.toml", *files)
    assert (report["fits"], report["problems"]) == (True, [])
    assert [each[:24] for each in report["advice"]] == ["north.csv: column 'age':"]


def test_the_line_for_a_column_has_the_codes_and_spellings_of_all_tables(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA + 'columns.ward = {type = "categorical", categories = ["Surgery", "Medicine"]}\n')
    files = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for file, code, ward in zip(files, ("-999", "k.A."), ("surgery", "SURGERY"), strict=True):
        rows = [f"{row},Medicine" for row in AGES]
        file.write_text("\n".join(["age,ill,ward", *rows, f"{code},no,{ward}", ""]))
    lines = [[sentence.split("`")[1] for sentence in table.advice] for table in check_schema(schema, files)]
    expected = ['missing_tokens = ["-999", "k.A."]', 'synonyms = {"Surgery" = ["surgery", "SURGERY"]}']
    assert lines == [expected, expected]
    tokens, synonyms = expected
    mended = schema.read_text().replace("upper = 80", f"upper = 80, missing = 50, {tokens}")
    schema.write_text(mended.replace('"Medicine"]', f'"Medicine"], {synonyms}'))
    assert check_schema(schema, files) == [([], []), ([], [])]


NOTE = "klagt über Schmerzen und Husten"


def test_a_messy_table_trains_from_its_draft_with_no_feature_of_its_free_text(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    lines = ["Fallnr;Name;Alter;CRP;Raucher;Aufnahme;Bemerkung;leer;krank"]
    for row in range(400):
        age = "k.A." if row % 50 == 3 else "-999" if row % 50 == 4 else str(random.integers(20, 90))
        crp = "unbekannt" if row % 60 == 5 else f"{random.uniform(0, 50):.1f}".replace(".", ",")
        smoker = "k.A." if row % 40 == 1 else str(random.choice(["yes", "no"]))
        day = "31.12.9999" if row % 70 == 2 else f"{1 + row % 28:02}.{1 + row % 12:02}.2023"
        ill = random.choice(["yes", "no"])
        lines.append(f"{1000 + row};Eva M{row}ller;{age};{crp};{smoker};{day};{NOTE} seit {row} Tagen;;{ill}")
    file, schema, out = tmp_path / "klinik.csv", tmp_path / "schema.toml", tmp_path / "model.json"
    file.write_text("\n".join([*lines, ""]))
    drafted = ringfence("schema", "draft", file, "--out", schema)
    text = schema.read_text(encoding="utf-8")
    columns = tomllib.loads(text)["columns"]
    assert {name: column["type"] for name, column in columns.items()} == {
        "Fallnr": "identifier", "Name": "ignore", "Alter": "numeric", "CRP": "numeric", "Raucher": "boolean",
        "Aufnahme": "date", "Bemerkung": "ignore", "leer": "ignore", "krank": "boolean",
    }  # fmt: skip
    remarks = drafted.stderr.splitlines()
    assert [remark.split("'")[1] for remark in remarks] == [
        "Name", "Alter", "CRP", "Raucher", "Aufnahme", "Bemerkung", "leer",
    ]  # fmt: skip
    assert "Column 'Alter': 16 cells hold 'k.A.' or '-999', listed in" in remarks[1]
    for value in ("ller", "Schmerzen", "2023", "1003"):
        assert value not in text
    filled = {"Alter": ("0", "120"), "CRP": ("0", "100"), "Aufnahme": ("2023-01-01", "2023-12-31")}
    for name, (lower, upper) in filled.items():
        kind = columns[name]["type"]
        before = f'[columns.{name}]\ntype = "{kind}"\nlower = "?"\nupper = "?"\n'
        assert before in text
        text = text.replace(
            before, f'[columns.{name}]\ntype = "{kind}"\nlower = {lower}\nupper = {upper}\nindicator = true\n'
        )
    text = text.replace(
        '[columns.Raucher]\ntype = "boolean"\n', '[columns.Raucher]\ntype = "boolean"\nmissing = false\n'
    )
    schema.write_text(text, encoding="utf-8")
    assert ringfence("schema", "check", schema, file).stdout == f"{file} fits {schema}.\n"
    ringfence("train", file, "--schema", schema, "--target", "krank", "--epsilon", "4", "--out", out)
    columns = json.loads(json.loads(out.read_text())["plan"])["data"]["columns"]
    assert all(column["type"] != "text" for column in columns.values())
    features = load_schema(schema, "krank").features
    assert list(features) == ["Alter", "Aufnahme", "CRP", "Raucher"]
