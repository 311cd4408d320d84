"""Persons with several rows, whom no plan protects as persons, and persons with several spellings: for the operator."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.protocol import RoundRequest
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.operator.decisions import review_plan
from ringfence.silo.records.schema_check import check_schema
from tests.processes import ringfence
from tests.silo.agents import SCHEMA, approved, silo_with
from tests.support import MakePlan

GIVEN = ["--name", "clinic", "--epsilon", "2", "--delta", "1e-6"]
IGNORED = '[columns.patient]\ntype = "ignore"\n'
SAID = [
    "column 'patient': 25 % of its 32 values are in several rows, up to 2",
    "where a plan states epsilon 1 at delta 1e-6, it is about 2.12 for one with 2 rows",
    '`person = "patient"`',
    "the stated epsilon holds for each of 32 persons with all their rows",
]
SPELLED = "column 'patient': 4 of its 38 values differ from another one in capitals or the form of characters alone"


def table(folder: Path, patients: list[str], *, column: str = "patient") -> Path:
    """Write forty records, with whose they are."""
    path = folder / "records.csv"
    rows = [f"{patient},0.{100 + row},0.1,0.2,{'yes' if row % 3 else 'no'}" for row, patient in enumerate(patients)]
    path.write_text("\n".join([f"{column},a,b,c,ill", *rows, ""]))
    return path


def repeated() -> list[str]:
    return [f"P{row % 32}" for row in range(40)]


def spelled() -> list[str]:
    """Two persons in two spellings each: of capitals, and of one accented letter."""
    return [*(f"P{row}" for row in range(34)), "Stra\u00dfe 1", "STRASSE 1", "Ren\u00e9", "Rene\u0301", "P0", "P1"]


def shown(folder: Path, data: Path, schema: str) -> dict[str, str]:
    """Return what four commands print for the operator about a silo's data."""
    (folder / "schema.toml").write_text(schema)
    made = folder / "silo"
    files = ["--data", data, "--schema", folder / "schema.toml"]
    text = {
        "check": ringfence("schema", "check", folder / "schema.toml", data, check=True).stdout,
        "init": ringfence("silo", "init", made, *files, *GIVEN, check=True).stderr,
        "doctor": ringfence("doctor", made).stdout,
    }
    return {command: " ".join(said.split()) for command, said in text.items()}


@pytest.mark.parametrize("columns", [SCHEMA + IGNORED, SCHEMA], ids=["ignored", "not in the schema"])
def test_ids_that_repeat_are_counted_for_the_operator_wherever_the_data_is_looked_at(
    tmp_path: Path, columns: str, plan_of: MakePlan
) -> None:
    said = shown(tmp_path, table(tmp_path, repeated()), columns)
    folder = SiloFolder.open(tmp_path / "silo")
    found = review_plan(folder, plan_of())
    for text in (said["check"], said["init"], *found.data()["advice"], " ".join(found.text().split())):
        assert all(part in text for part in SAID)
    assert SAID[0] in said["doctor"]
    assert "Nobody else sees this" in found.text()
    assert found.objection == ""


def test_spellings_of_one_person_are_counted_for_the_operator(tmp_path: Path) -> None:
    said = shown(tmp_path, table(tmp_path, spelled()), 'person = "patient"\n' + SCHEMA)
    for text in said.values():
        assert SPELLED in text
        assert "STRASSE" not in text


@pytest.mark.parametrize(
    ("patients", "column", "columns"),
    [
        ([f"P{row}" for row in range(40)], "patient", SCHEMA),
        (["", *(f"P{row}" for row in range(38)), ""], "patient", SCHEMA),
        (repeated(), "ward", SCHEMA),
        (repeated(), "patient", 'person = "patient"\n' + SCHEMA),
    ],
    ids=["each once", "empty cells", "no name of persons", "persons are protected"],
)
def test_nothing_is_said_where_no_person_has_several_rows_or_plans_protect_persons(
    tmp_path: Path, patients: list[str], column: str, columns: str
) -> None:
    said = shown(tmp_path, table(tmp_path, patients, column=column), columns)
    assert all("values" not in text for text in said.values())


def test_nothing_of_it_leaves_the_silo(tmp_path: Path, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written for others is the same whether ids repeat or not."""
    seen = []
    for name, patients in (("with", repeated()), ("without", [f"P{row}" for row in range(40)])):
        home = tmp_path / name
        home.mkdir()
        monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
        folder = silo_with(home, SCHEMA + IGNORED, table(home, patients).read_text(), Budget(2.0, 1e-6))
        plan = approved(folder, plan_of(rounds=2))
        with folder.ledger() as ledger:
            gate = Gate(folder.current_records(ledger), ledger, folder.key())
            answer = gate.answer(RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension)))
            bodies = [entry.body for entry in ledger.entries()[1:] if entry.kind != "charged"]
        files = b"".join(path.read_bytes() for path in folder.path.iterdir() if path.is_file())
        assert not [word for word in (b"patient", b"several rows") if word in files]
        assert b"patient" not in certify(folder).to_file()
        seen.append((bodies[:2], answer.model_dump(exclude={"vector", "head"}) | {"plan": ""}))
    assert seen[0] == seen[1]


def test_an_identifier_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA + '[columns.ward]\ntype = "identifier"\n')
    [found] = check_schema(tmp_path / "schema.toml", [table(tmp_path, repeated(), column="ward")])
    assert found.problems == []
    assert [sentence.startswith("column 'ward': 25 % of its 32 values") for sentence in found.advice] == [True]
