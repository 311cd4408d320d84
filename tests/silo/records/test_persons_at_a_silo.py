"""The unit is a person: a silo finds whose rows are whose, counts persons, and names none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError, PlanError, RecordsError
from ringfence.evidence.verification import verify
from ringfence.federation.requests import TrainRequest
from ringfence.federation.workflow import train_files
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from ringfence.protocol.plan.plan import protected_by
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.limits import MEGABYTE, Limits, largest_round
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.decisions import approve_plan, review_plan, update_data
from ringfence.silo.operator.review import reveals
from ringfence.silo.records.persons import MOST_ROWS, number_persons
from ringfence.silo.records.records import Records, load_data_set, load_records
from tests.silo.agents import silo_with
from tests.silo.records.people import NUMBER, PLANS, RULES, SCHEMA, SCHEMA_FILE, every_rule, records_of, written
from tests.support import Drawn, ask_all


def test_rows_of_one_person_are_found_wherever_they_stand_in_the_file(tmp_path: Any) -> None:
    path = written(tmp_path / "clinic.csv", ["eve,0.1,0,0", "bob,0.2,0,0", "eve,0.3,0,0", "ann,0.4,0,0"])
    records = load_records(path, SCHEMA)
    assert records.persons is not None
    assert len(records) == 3
    assert records.persons.rows.tolist() == [2, 1, 1]
    assert records.features[:, 0] == pytest.approx([0.1, 0.3, 0.2, 0.4], abs=1e-8)
    part = records.take(np.array([2, 0]))
    assert part.persons is not None
    assert part.persons.rows.tolist() == [1, 2]
    assert part.features[:, 0] == pytest.approx([0.4, 0.1, 0.3], abs=1e-8)


def test_a_person_with_too_many_rows_is_found_when_the_table_is_read_and_not_in_a_round() -> None:
    number_persons(["eve"] * MOST_ROWS, source="clinic.csv")
    with pytest.raises(RecordsError, match=f"more than {MOST_ROWS} rows") as refused:
        number_persons(["eve"] * (MOST_ROWS + 1), source="clinic.csv")
    assert "eve" not in str(refused.value)


def test_a_row_that_is_nobody_s_is_refused_by_its_number(tmp_path: Any) -> None:
    path = written(tmp_path / "clinic.csv", ["eve,0.1,0,0", ",0.2,0,0"])
    with pytest.raises(RecordsError, match="row 3 names no person") as refused:
        load_records(path, SCHEMA)
    assert "eve" not in str(refused.value)


def test_a_gate_counts_persons_and_refuses_rows_that_do_not_say_whose_they_are(tmp_path: Any) -> None:
    plan = PLANS["mean"]
    with Ledger.create(tmp_path / "l", silo="clinic", budget=Budget(5.0, 1e-6)) as ledger:
        people = [[(0.1, 0.2, 0.3, 0.1)] * rows for rows in (3, 1, 1)]
        with pytest.raises(ApprovalError, match="names 4 persons, but there are 3"):
            Gate(records_of(people), ledger).check(plan)
        rows = np.full((4, 4), 0.1)
        with pytest.raises(ApprovalError, match="do not identify them"):
            Gate(Records(SCHEMA, rows[:, :3], rows[:, 3]), ledger).check(plan)
        Gate(records_of([*people, people[0]]), ledger).check(plan)


def test_a_schema_that_tells_persons_apart_gets_no_plan_about_records_and_only_such_a_one_one_about_persons() -> None:
    members = [Member("clinic", 4, 1.0, 1e-6)]
    assert make_plan(SCHEMA, members).unit == "person"
    assert make_plan(SCHEMA, members).person_rule == "mean"
    nameless = parse_schema({"columns": {"a": NUMBER, "y": NUMBER}}, target="y")
    assert make_plan(nameless, members).unit == "record"
    for schema, request in (
        (SCHEMA, PlanRequest(unit="record")),
        (nameless, PlanRequest(unit="person")),
        (nameless, PlanRequest(person_rule="sum")),
        (SCHEMA, PlanRequest(person_rule="rows")),
        (SCHEMA, PlanRequest(rows_per_person=3)),
    ):
        with pytest.raises(PlanError, match="a plan"):
            make_plan(schema, members, request)


def test_a_ledger_adds_up_no_costs_of_records_and_of_persons(tmp_path: Any) -> None:
    nameless = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}}, target="y")
    of_records = make_plan(nameless, [Member("clinic", 4, 1.0, 1e-6)], PlanRequest(rounds=2))
    people = [[(0.1, 0.2, 0.3, 0.1)]] * 4
    rows = np.array([person[0] for person in people])
    with Ledger.create(tmp_path / "l", silo="clinic", budget=Budget(5.0, 1e-6)) as ledger:
        Gate(Records(nameless, rows[:, :3], rows[:, 3]), ledger).approve(of_records)
        with pytest.raises(ApprovalError, match="its ledger counts what earlier plans cost each record"):
            Gate(records_of(people), ledger).approve(PLANS["mean"])
    assert protected_by([PLANS["mean"], PLANS["sum"]]) == "person"
    assert protected_by([PLANS["mean"], of_records]) == protected_by([of_records]) == protected_by([]) == "record"


@every_rule
def test_an_operator_reads_of_persons_and_of_what_their_rows_come_to(rule: str) -> None:
    plan = PLANS[rule]
    said = " ".join(reveals(plan, plan.silos[0]))
    assert "All 4 persons take part" in said
    assert "The number of persons and the schema are public" in said
    counted = {"mean": "the mean over all rows", "rows": "the first 3 rows, 1/3 each", "sum": "The sum of the"}
    assert counted[rule] in said
    assert "record" not in said


@every_rule
def test_nothing_that_is_written_or_said_names_a_person(rule: str, tmp_path: Any) -> None:
    random, names = np.random.default_rng(3), [f"zebra{number}quagga" for number in range(12)]
    files = [
        written(
            tmp_path / f"{silo}.csv",
            [f"{random.choice(names)},{a:.3f},{b:.3f},{y:.3f}" for a, b, y in random.uniform(-1, 1, (40, 3))],
        )
        for silo in ("north", "south")
    ]
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    asked = replace(RULES[rule], epsilon=5.0, delta=1e-6)
    done = train_files(TrainRequest(files, tmp_path / "schema.toml", "y", asked, anyway=True))
    done.result.model.save(tmp_path / "model.json")
    assert done.result.model.plan.unit == "person"
    counted = {name: silo.records for name, silo in done.result.statement.silos.items()}
    assert max(counted.values()) <= len(names), "persons are counted, not their rows"
    said = str(done.result.statement)
    assert f"north: each of {counted['north']} persons" in said
    assert (
        "the unit is one person of one silo, with all their rows there, as identified by the column 'patient'" in said
    )
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path not in files]
    assert len(kept) >= 4, "a schema, a model and two ledgers at least"
    for content in [said.encode(), repr(done).encode(), *(path.read_bytes() for path in kept)]:
        assert b"zebra" not in content


def test_a_silo_whose_schema_tells_persons_apart_counts_them_and_answers_no_plan_about_records(tmp_path: Any) -> None:
    path = written(tmp_path / "clinic.csv", ["eve,0.1,0,0", "bob,0.2,0,0", "eve,0.3,0,0", "ann,0.4,0,0", "joe,0,0,0"])
    content: dict[str, Any] = {"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}}
    data = load_data_set(path, TableColumns.model_validate({**content, "person": "patient"}))
    assert (len(data), len(data.marks), len(data.encoded(SCHEMA))) == (4, 5, 4)
    assert data.difference(SCHEMA) == ""
    assert "a different `person`" in data.difference(parse_schema(content, target="y"))
    assert "a different `person`" in load_data_set(path, TableColumns.model_validate(content)).difference(SCHEMA)


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "one-pass"])
def test_a_person_takes_part_with_all_rows(sampling: Any, tmp_path: Any, drawn: Drawn) -> None:
    request = replace(RULES["mean"], sampling=sampling, batch=2)
    plan = make_plan(SCHEMA, [Member("clinic", 4, 1.0, 1e-6)], request)
    people = [[(0.1, 0.2, 0.3, 0.1)] * rows for rows in (3, 1, 5, 2)]
    with Ledger.create(tmp_path / "l", silo="clinic", budget=Budget(5.0, 1e-6)) as ledger:
        gate = Gate(records_of(people), ledger)
        gate.approve(plan)
        ask_all(gate, plan)
    for _, draws in drawn:
        shares = records_of(people).shares(plan, draws.participation)
        assert len(draws.participation) == 4
        assert np.add.reduceat(shares, [0, 3, 4, 9]) == pytest.approx(draws.participation)
    assert len(drawn) == 2


def silo_of(folder: Path, rows: list[str], schema: str = SCHEMA_FILE) -> SiloFolder:
    return silo_with(folder, schema, "\n".join(["patient,a,b,y", *rows]), Budget(2.0, 1e-6))


def test_a_certificate_proves_what_holds_for_each_person_and_names_none(tmp_path: Any) -> None:
    folder = silo_of(tmp_path, [f"zebra{number % 4},0.{number},0,0" for number in range(1, 9)])
    plan = PLANS["sum"]
    approve_plan(folder, plan)
    with folder.ledger() as ledger:
        ask_all(Gate(folder.records(), ledger), plan)
    certificate = certify(folder).to_file()
    assert "for each person (replace-one adjacency)" in verify(certificate).text()
    kept = [path.read_bytes() for path in (tmp_path / "clinic").rglob("*") if path.is_file()]
    assert not any(b"zebra" in content for content in [certificate, *kept])


@every_rule
def test_how_many_rows_a_person_has_decides_neither_approval_nor_review(rule: str, tmp_path: Any) -> None:
    """The limits stand just above the estimate, which the rows of one person must not move."""
    plan = PLANS[rule]
    (terms,) = plan.silos
    effort = largest_round(plan, terms)
    found = set()
    for extra in (0, 20_000):
        (tmp_path / str(extra)).mkdir()
        people = ["eve", "bob", "ann", "kim", *["kim"] * extra]
        folder = silo_of(tmp_path / str(extra), [f"{who},0.5,0,0" for who in people])
        limits = {"round_seconds": 1.01 * effort.seconds, "round_memory": 1.01 * effort.memory / MEGABYTE}
        folder = replace(folder, settings=folder.settings.model_copy(update=limits))
        assert folder.limits == Limits(limits["round_seconds"], limits["round_memory"])
        reviewed = review_plan(folder, plan)
        assert not reviewed.objection
        assert approve_plan(folder, plan).own == reviewed.own
        found.add(f"{reviewed.text()}{reviewed.data()}")
    assert len(found) == 1


@pytest.mark.parametrize("told_apart_before", [True, False])
def test_changed_data_is_counted_in_persons_and_no_ledger_tells_how_many_rows_they_have(
    told_apart_before: bool, tmp_path: Any
) -> None:
    rows = [f"eve{number % 4},0.{number},0,0" for number in range(10, 47)]
    folder = silo_of(tmp_path, rows, SCHEMA_FILE if told_apart_before else SCHEMA_FILE.partition("\n")[2])
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    written(tmp_path / "records.csv", [*rows, "bob,0.1,0,0", "bob,0.2,0,0"])
    change = update_data(folder, "bob was admitted")
    assert (change.before, change.after, change.unit) == (4 if told_apart_before else None, 5, "person")
    with folder.ledger() as ledger:
        (entry,) = [entry.body for entry in ledger.entries() if entry.kind == "data"]
    assert entry == change.model_dump()
    assert "from 4 persons to 5" in change.words() or not told_apart_before
    said = verify(certify(folder).to_file()).text()
    assert change.words() in said
    assert not any(count in f"{change.words()}{entry}" for count in ("37", "39", "record"))
