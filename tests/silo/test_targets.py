"""One file, one ledger, any number of questions about it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import ApprovalError, RecordsError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.messages import NoisyUpdate, unpack
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import load_columns, load_schema, parse_schema
from ringfence.silo.budget import Budget
from ringfence.silo.dataset import load_data_set
from ringfence.silo.decisions import approve_plan, review_plan
from ringfence.silo.folder import SiloFolder, make_settings
from ringfence.silo.records import Records, load_records
from ringfence.storage.toml_files import read_toml
from tests.silo.agents import approved, serving

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
    (tmp_path / "schema.toml").write_text(SCHEMA)
    random = np.random.default_rng(3)
    with (tmp_path / "records.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", "age", "dose", "ward", "ill"])
        for number in range(60):
            age = "" if number % 7 == 0 else "0" if number % 5 == 0 else f"{random.uniform(0, 120):.3f}"
            ward = random.choice(["a", "b", "c", ""])
            rows.writerow([number, age, f"{random.uniform(0, 10):.3f}", ward, random.choice(["no", "yes"])])
    settings = make_settings(
        name="clinic", data_file=str(tmp_path / "records.csv"), schema_file=str(tmp_path / "schema.toml")
    )
    return SiloFolder.create(tmp_path / "clinic", settings, Budget(4.0, 1e-6))


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
        (
            "ward",
            {"type": "categorical", "categories": ["a", "b"], "missing": "b"},
            "a different `categories`",
        ),
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


@pytest.mark.parametrize("changes", [{"radius": 1.0}, {"intercept": 2.0}])
def test_a_plan_with_another_radius_or_intercept_is_refused(silo: SiloFolder, changes: dict[str, float]) -> None:
    content = {**read_toml(Path(silo.settings.schema_file)), **changes}
    with pytest.raises(ApprovalError, match=f"a different `{next(iter(changes))}`"):
        approve_plan(silo, plan_of_content(content, "ill"))


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
    reveals = "; ".join(stage.question.reveals(curved, stage.rounds) for stage in curved.stages)
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


def test_settings_of_format_1_with_a_target_serve_plans_for_any(silo: SiloFolder) -> None:
    path = silo.path / "silo.toml"
    path.write_text(path.read_text().replace("format = 2", "format = 1") + 'target = "ill"\n')
    approve_plan(SiloFolder.open(silo.path), plan_for(silo, "dose"))
