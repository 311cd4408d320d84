"""Columns with a part of their own, at the gate of a silo that knows its table alone."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import RecordsError, SchemaError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.messages import NoisyUpdate, Refusal, RefusalReason, RoundRequest, parse_answer
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Schema, load_columns, load_schema
from ringfence.silo.budget import Budget
from ringfence.silo.dataset import DataSet, load_data_set
from ringfence.silo.decisions import approve_plan, review_plan
from ringfence.silo.folder import SiloFolder, make_settings
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.questions import compute
from ringfence.silo.records import load_records
from ringfence.silo.schema_check import check_schema
from tests.support import ask_all

SCHEMA = """
event = "died"
weight = "counts"

[columns.age]
type = "numeric"
lower = 0
upper = 100

[columns.days]
type = "numeric"
lower = 0
upper = 10

[columns.died]
type = "categorical"
categories = ["no", "yes"]

[columns.counts]
type = "numeric"
lower = 0
upper = 3
"""


def read(folder: Path, rows: str) -> tuple[DataSet, Schema]:
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "north.csv").write_text(f"age,days,died,counts\n{rows}" + "50,5,yes,1\n" * 20)
    data = load_data_set(folder / "north.csv", load_columns(folder / "schema.toml"))
    return data, load_schema(folder / "schema.toml", target="days")


def planned(schema: Schema, records: int) -> Plan:
    members = [Member("north", records, epsilon=2.0, delta=1e-6)]
    return make_plan(
        schema, members, PlanRequest(run="days", loss="survival", cuts=(4.0,), rounds=3, held_out=0.0, survey=False)
    )


def gate_of(data: DataSet, plan: Plan, ledger: Path) -> Gate:
    budget = Budget.of(plan.silos[0].guarantees)
    return Gate(data, Ledger.create(ledger, silo="north", budget=budget))


def test_a_gate_answers_a_survival_plan_whose_roles_the_plan_alone_names(tmp_path: Path) -> None:
    data, schema = read(tmp_path, "70,3,yes,2\n")
    plan = planned(schema, len(data))
    gate = gate_of(data, plan, tmp_path / "north.ledger")
    gate.approve(plan)
    assert [answer.shape for answer in ask_all(gate, plan)] == [(plan.dimension,)] * 3
    assert plan.dimension == 3  # a slope, and a constant for each of two parts


def test_a_time_beyond_the_bound_is_watched_until_then_without_an_event(tmp_path: Path) -> None:
    data, schema = read(tmp_path, "70,99,yes,2\n")
    np.testing.assert_allclose(data.encoded(schema).targets[0], [1.0, 0.0, 0.0, 2.0])


def test_a_weight_beyond_its_bound_is_named_with_its_file(tmp_path: Path) -> None:
    read(tmp_path, "70,3,yes,4\n")
    with pytest.raises(RecordsError, match=r"north.csv: Row 2, column 'counts': this weight is outside"):
        load_records(tmp_path / "north.csv", load_schema(tmp_path / "schema.toml", target="days"))


BEYOND = [
    ("70,-1,yes,1\n", "70,0,yes,1\n", "'days': this time"),
    ("70,3,yes,4\n", "70,3,yes,3\n", "'counts': this weight"),
]


@pytest.mark.parametrize(("row", "clamped", "role"), BEYOND)
def test_a_gate_s_answers_are_of_the_same_bytes_whether_or_not_a_record_lies_beyond_its_bounds(
    tmp_path: Path, row: str, clamped: str, role: str
) -> None:
    """The author of the plan chose the column: neither approval nor refusal may tell whether there is such a record."""
    seen = []
    for number, first in enumerate((row, clamped, "70,3,yes,2\n")):
        data, schema = read(tmp_path, first)
        plan = planned(schema, len(data))
        gate = gate_of(data, plan, tmp_path / f"{number}.ledger")
        request = RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension))
        before = gate.answer(request)
        gate.check(plan)
        gate.approve(plan)
        after = gate.answer(request)
        assert isinstance(after, NoisyUpdate)
        public = after.model_dump(exclude={"vector"})
        seen.append((before.to_bytes(), public, len(after.vector), ask_again(gate, plan)))
        assert data.difference(schema) == ""
        told = data.clamped_parts(schema, schema.target)
        assert [role in line for line in told] == ([True] if first == row else [])
    assert seen[0] == seen[1] == seen[2]
    assert parse_answer(seen[0][0]) == Refusal(
        plan=plan.digest(), round=0, silo="north", reason=RefusalReason.NOT_APPROVED
    )


def ask_again(gate: Gate, plan: Plan) -> bytes:
    """Return what is answered to a request that the gate must refuse: a length that is not the plan's."""
    return gate.answer(RoundRequest.at(plan.digest(), 1, np.zeros(plan.dimension + 1))).to_bytes()


@pytest.mark.parametrize(("row", "clamped", "role"), BEYOND)
def test_a_record_beyond_its_bounds_counts_as_the_one_at_them(
    tmp_path: Path, row: str, clamped: str, role: str
) -> None:
    exact = []
    for first in (row, clamped):
        data, schema = read(tmp_path, first)
        plan = planned(schema, len(data))
        argument, everybody = np.full(plan.dimension, 0.1), np.ones(len(data))
        exact.append(compute(plan.stages[0].question, plan, argument, data.encoded(schema), everybody, len(data)))
    assert exact[0].tobytes() == exact[1].tobytes(), role


def test_the_operator_is_told_of_such_a_row_in_the_review_and_decides(tmp_path: Path) -> None:
    data, schema = read(tmp_path, "70,-1,yes,4\n")
    plan = planned(schema, len(data))
    (tmp_path / "schema.toml").write_text(SCHEMA.split("\n\n", 1)[1])  # the plan alone names the columns
    settings = make_settings(
        name="north", data_file=str(tmp_path / "north.csv"), schema_file=str(tmp_path / "schema.toml"), port=None
    )
    folder = SiloFolder.create(tmp_path / "folder", settings, Budget.of(plan.silos[0].guarantees))
    found = review_plan(folder, plan)
    assert found.objection == ""
    assert [line.split(" is outside")[0] for line in found.clamped] == [
        "Row 2, column 'counts': this weight",
        "Row 2, column 'days': this time",
    ]
    assert "  Row 2, column 'counts': this weight is outside the schema's bounds" in found.text()
    assert "If you decline a plan because of them, its author learns that there are some." in found.text()
    assert found.data()["clamped"] == list(found.clamped)
    approve_plan(folder, plan)


def test_a_weight_beyond_its_bound_is_refused_when_a_silo_is_set_up_whose_own_schema_names_it(tmp_path: Path) -> None:
    read(tmp_path, "70,3,yes,4\n")
    settings = make_settings(
        name="north", data_file=str(tmp_path / "north.csv"), schema_file=str(tmp_path / "schema.toml"), port=None
    )
    with pytest.raises(RecordsError, match="Row 2, column 'counts': this weight is outside the schema's bounds"):
        SiloFolder.create(tmp_path / "folder", settings, Budget(2.0, 1e-6))
    assert not (tmp_path / "folder").exists()
    [told] = check_schema(tmp_path / "schema.toml", tmp_path / "north.csv")
    assert told.startswith("Row 2, column 'counts': this weight is outside")


def test_a_weight_that_is_no_column_is_told_by_the_schema_s_check(tmp_path: Path) -> None:
    read(tmp_path, "")
    (tmp_path / "schema.toml").write_text(SCHEMA.replace('weight = "counts"', 'weight = "count"'))
    [told] = check_schema(tmp_path / "schema.toml", tmp_path / "north.csv")
    assert told.startswith("column 'count' is named as weight, but is missing from the schema's columns")


def test_targets_beyond_their_bounds_are_measured_with_their_offsets(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.replace('event = "died"\n', 'offset = "days"\n'))
    (tmp_path / "north.csv").write_text("age,days,died,counts\n150,5,no,1\n50,10,no,1\n")
    records = load_records(tmp_path / "north.csv", load_schema(tmp_path / "schema.toml", target="age"))
    np.testing.assert_allclose(records.targets, [[1.0, 0.0, 1.0], [0.0, 5.0, 1.0]])
    np.testing.assert_allclose(records.unclamped_targets, [[2.0, 0.0, 1.0], [0.0, 5.0, 1.0]])


@pytest.mark.parametrize(("column", "role"), [("died", "event"), ("counts", "weight")])
def test_a_role_that_may_be_unknown_is_refused(tmp_path: Path, column: str, role: str) -> None:
    """An unknown event would be no 0 and no 1, and an evaluation would move by more than its noise is made for."""
    told = SCHEMA.replace(f"[columns.{column}]", f"[columns.{column}]\nindicator = true")
    (tmp_path / "schema.toml").write_text(told)
    with pytest.raises(SchemaError, match=f"the {role} column '{column}' has an indicator, which only a feature"):
        load_schema(tmp_path / "schema.toml", target="days")


def test_a_target_with_an_event_is_a_time_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    data, schema = read(tmp_path, "70,3,yes,2\n")
    members = [Member("north", len(data), epsilon=2.0, delta=1e-6)]
    plan = make_plan(schema, members, PlanRequest(rounds=3, cuts=(4.0,), held_out=0.0, survey=False))
    assert plan.loss == planned(schema, len(data)).loss


def test_a_schema_without_roles_keeps_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text(SCHEMA.split("\n\n", 1)[1])
    content = load_schema(tmp_path / "plain.toml", target="days").canonical()
    assert not any(name.encode() + b'":' in content for name in ("offset", "exposure", "event", "class_weights"))
    assert b'"weight":' not in content
