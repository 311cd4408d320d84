"""One data set: any number of plans about its columns, each by its own schema, with every cell within its bounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError, RecordsError, SchemaError
from ringfence.federation.unclamped import unclamped_targets
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    FloatArray,
    NoisyUpdate,
    Plan,
    Refusal,
    RefusalReason,
    RoundRequest,
    Schema,
    load_columns,
    load_schema,
    parse_answer,
    parse_schema,
    unpack,
)
from ringfence.protocol.plan.effort import LEAST_AT_ONCE
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.decisions import approve_plan, review_plan
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.silo.queries import compute
from ringfence.silo.records.records import DataSet, Records, load_data_set, load_records
from ringfence.silo.records.schema_check import check_schema
from ringfence.storage.toml_files import read_toml
from tests.silo.agents import SCHEMA as SILO_SCHEMA
from tests.silo.agents import approved, serving, silo_with
from tests.support import ask_all

SCHEMA = """
radius = 2.0
columns.patient = {type = "ignore"}
columns.age = {type = "numeric", lower = 0, upper = 100, missing = 50}
columns.dose = {type = "numeric", lower = 0, upper = 10}
columns.ward = {type = "categorical", categories = ["a", "b", "c"], missing = "c"}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""


@pytest.fixture
def silo(tmp_path: Path) -> SiloFolder:
    """Sixty records of five columns, some cells empty."""
    random, rows = np.random.default_rng(3), ["patient,age,dose,ward,ill"]
    for number in range(60):
        age = "" if number % 7 == 0 else "0" if number % 5 == 0 else f"{random.uniform(0, 120):.3f}"
        ward, dose = random.choice(["a", "b", "c", ""]), random.uniform(0, 10)
        rows.append(f"{number},{age},{dose:.3f},{ward},{random.choice(['no', 'yes'])}")
    return silo_with(tmp_path, SCHEMA, "\n".join(rows), Budget(4.0, 1e-6))


def plan_for(silo: SiloFolder, target: str, **columns: object) -> Plan:
    content = read_toml(Path(silo.settings.schema_file))
    return plan_of_content({**content, "columns": {**content["columns"], **columns}}, target)


def plan_of_content(content: dict[str, object], target: str) -> Plan:
    schema = parse_schema(content, target=target)
    return make_plan(schema, [Member("clinic", 60, 0.5, 1e-6)], PlanRequest(rounds=3, survey=False))


@pytest.mark.parametrize("target", ["ill", "dose", "ward", "age"])
def test_a_data_set_encodes_its_records_as_reading_them_for_that_target_does(silo: SiloFolder, target: str) -> None:
    schema = load_schema(Path(silo.settings.schema_file), target)
    whole, alone = silo.records().encoded(schema), load_records(Path(silo.settings.data_file), schema)
    assert isinstance(whole, Records)
    np.testing.assert_array_equal(whole.features, alone.features)
    np.testing.assert_array_equal(whole.targets, alone.targets)


def test_plans_for_different_targets_are_answered_side_by_side_from_one_ledger(silo: SiloFolder) -> None:
    ill, dose = approved(silo, plan_for(silo, "ill")), approved(silo, plan_for(silo, "dose"))
    fewer = approved(silo, plan_for(silo, "ill", dose={"type": "ignore"}))
    with serving(silo) as agent:
        for round in range(3):
            for plan in (ill, dose, fewer):
                answer = agent.ask(plan, round, weights=0.01)
                assert isinstance(answer, NoisyUpdate)
                assert unpack(answer.vector).shape == (plan.dimension,)
    with silo.ledger() as ledger:
        account = ledger.account()
        assert len(account.plans) == 3
        assert len(account.charged()) == 3
        assert account.spent()[0].epsilon > 0.5


@pytest.mark.parametrize(
    ("column", "changed", "says"),
    [
        ("height", {"type": "numeric", "lower": 0, "upper": 3}, "reads the column 'height', which is not in"),
        ("patient", {"type": "numeric", "lower": 0, "upper": 60}, "'patient', which the silo's schema ignores"),
        ("age", {"type": "numeric", "lower": 0, "upper": 90, "missing": 50}, "'age' has a different `upper`"),
        ("age", {"type": "numeric", "lower": 0, "upper": 100}, "'age' has a different `missing`"),
        ("ward", {"type": "categorical", "categories": ["a", "b"], "missing": "b"}, "a different `categories`"),
        ("dose", {"type": "categorical", "categories": ["a", "b"]}, "'dose' has a different `type`"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_what_differs(
    silo: SiloFolder, column: str, changed: dict[str, object], says: str
) -> None:
    plan = plan_for(silo, "ill", **{column: changed})
    assert says in review_plan(silo, plan).objection
    with pytest.raises(ApprovalError, match=says):
        approve_plan(silo, plan)


@pytest.mark.parametrize(("name", "number"), [("radius", 1.0), ("intercept", 2.0)])
def test_a_plan_with_another_radius_or_intercept_is_refused(silo: SiloFolder, name: str, number: float) -> None:
    with pytest.raises(ApprovalError, match=f"a different `{name}`"):
        approve_plan(silo, plan_of_content({**read_toml(Path(silo.settings.schema_file)), name: number}, "ill"))


def test_a_plan_need_not_know_columns_that_it_does_not_read(silo: SiloFolder) -> None:
    content = read_toml(Path(silo.settings.schema_file))
    del content["columns"]["patient"], content["columns"]["ward"]
    approve_plan(silo, plan_of_content(content, "ill"))


def test_maps_are_the_plan_s_to_choose_and_the_operator_reads_of_them(silo: SiloFolder) -> None:
    content = read_toml(Path(silo.settings.schema_file))
    maps = [
        {"type": "spline", "columns": ["age"], "knots": [18, 65]},
        {"type": "interaction", "columns": ["age", "ward"]},
    ]
    plain, curved = approved(silo, plan_for(silo, "ill")), plan_of_content({**content, "maps": maps}, "ill")
    assert review_plan(silo, curved).objection == ""
    reveals = "; ".join(stage.query.reveals(curved, stage.rounds) for stage in curved.stages)
    assert "splines of degree 3 with knots at 18, 65 (age); products of age and ward" in reveals
    approved(silo, curved)
    with serving(silo) as agent:
        for plan in (plain, curved):
            answer = agent.ask(plan, 0, weights=0.01)
            assert isinstance(answer, NoisyUpdate)
            assert unpack(answer.vector).shape == (plan.dimension,)


def test_a_cell_that_does_not_fit_is_found_before_any_plan_asks_about_it(silo: SiloFolder) -> None:
    data = Path(silo.settings.data_file)
    data.write_text(data.read_text().replace(",yes", ",maybe", 1))
    with pytest.raises(RecordsError, match=r"column 'ill': this category is not in the schema's public list"):
        load_data_set(data, load_columns(Path(silo.settings.schema_file)))


ROLES = """
event = "died"
weight = "counts"

[columns]
age = {type = "numeric", lower = 0, upper = 100}
days = {type = "numeric", lower = 0, upper = 10}
died = {type = "categorical", categories = ["no", "yes"]}
counts = {type = "numeric", lower = 0, upper = 3}
"""


def read(folder: Path, rows: str) -> tuple[DataSet, Schema]:
    (folder / "schema.toml").write_text(ROLES)
    (folder / "north.csv").write_text(f"age,days,died,counts\n{rows}" + "50,5,yes,1\n" * 20)
    data = load_data_set(folder / "north.csv", load_columns(folder / "schema.toml"))
    return data, load_schema(folder / "schema.toml", target="days")


def planned(schema: Schema, records: int) -> Plan:
    members = [Member("north", records, epsilon=2.0, delta=1e-6)]
    return make_plan(
        schema, members, PlanRequest(run="days", loss="survival", cuts=(4.0,), rounds=3, held_out=0.0, survey=False)
    )


def folder_of(folder: Path, budget: Budget) -> SiloFolder:
    data, schema = str(folder / "north.csv"), str(folder / "schema.toml")
    return create_folder(folder / "folder", make_settings(name="north", data_file=data, schema_file=schema), budget)


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
        text = data.clamped_parts(schema, schema.target)
        assert [role in line for line in text] == ([True] if first == row else [])
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
        exact.append(compute(plan.stages[0].query, plan, argument, data.encoded(schema), everybody, len(data)))
    assert exact[0].tobytes() == exact[1].tobytes(), role


def test_the_review_names_such_a_row_and_the_operator_decides(tmp_path: Path) -> None:
    data, schema = read(tmp_path, "70,-1,yes,4\n")
    plan = planned(schema, len(data))
    (tmp_path / "schema.toml").write_text(ROLES.split("\n\n", 1)[1])  # the plan alone names the columns
    folder = folder_of(tmp_path, Budget.of(plan.silos[0].guarantees))
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
    with pytest.raises(RecordsError, match="Row 2, column 'counts': this weight is outside the schema's bounds"):
        folder_of(tmp_path, Budget(2.0, 1e-6))
    with pytest.raises(RecordsError, match=r"north.csv: Row 2, column 'counts': this weight is outside"):
        load_records(tmp_path / "north.csv", load_schema(tmp_path / "schema.toml", target="days"))
    assert not (tmp_path / "folder").exists()
    [text] = check_schema(tmp_path / "schema.toml", [tmp_path / "north.csv"])[0].problems
    assert text.startswith("Row 2, column 'counts': this weight is outside")


def test_the_schema_s_check_names_a_weight_that_is_no_column(tmp_path: Path) -> None:
    read(tmp_path, "")
    (tmp_path / "schema.toml").write_text(ROLES.replace('weight = "counts"', 'weight = "count"'))
    [text] = check_schema(tmp_path / "schema.toml", [tmp_path / "north.csv"])[0].problems
    assert text.startswith("column 'count' is named as weight, but is missing from the schema's columns")


def test_targets_beyond_their_bounds_are_measured_with_their_offsets(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(ROLES.replace('event = "died"\n', 'offset = "days"\n'))
    (tmp_path / "north.csv").write_text("age,days,died,counts\n150,5,no,1\n50,10,no,1\n")
    records = load_records(tmp_path / "north.csv", load_schema(tmp_path / "schema.toml", target="age"))
    np.testing.assert_allclose(records.targets, [[1.0, 0.0, 1.0], [0.0, 5.0, 1.0]])
    np.testing.assert_allclose(unclamped_targets(records), [[2.0, 0.0, 1.0], [0.0, 5.0, 1.0]])


@pytest.mark.parametrize(("column", "role"), [("died", "event"), ("counts", "weight")])
def test_a_role_that_may_be_unknown_is_refused(tmp_path: Path, column: str, role: str) -> None:
    """An unknown event would be no 0 and no 1, and an evaluation would move by more than its noise is made for."""
    text = ROLES.replace(f"{column} = {{", f"{column} = {{indicator = true, ")
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(SchemaError, match=f"the {role} column '{column}' has an indicator, which only a feature"):
        load_schema(tmp_path / "schema.toml", target="days")


@pytest.mark.parametrize("rows", [3, 3 * LEAST_AT_ONCE])
def test_a_query_is_given_nothing_of_what_was_clamped_in_one_part_or_in_many(tmp_path: Path, rows: int) -> None:
    """To pick it out takes a time that tells whether any record lies beyond its bounds."""
    (tmp_path / "schema.toml").write_text(SILO_SCHEMA)
    (tmp_path / "a.csv").write_text("a,b,c,ill\n0.1,0.2,99.0,yes\n" + "0.3,0.2,0.1,no\n" * (rows - 1))
    records = load_records(tmp_path / "a.csv", load_schema(tmp_path / "schema.toml", "ill"))
    assert records.cells is not None
    assert records.cells["c"].beyond is not None
    lengths = []

    def add_up(some: Records, chosen: FloatArray) -> Any:
        assert some.cells is not None
        assert [reading.beyond for reading in some.cells.values()] == [None] * len(some.cells)
        lengths.append(len(some))
        return np.array([int(chosen.sum())], dtype=object)

    assert records.total(add_up, np.ones(rows), 10**6).tolist() == [rows]
    assert (len(lengths) > 1) == (rows > LEAST_AT_ONCE)
