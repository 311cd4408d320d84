"""What a plan must meet to be made or approved today, while what earlier versions wrote is read as ever."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import ApprovalError, PlanError
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, Statistics, parse_schema
from ringfence.protocol.plan import checks
from ringfence.silo.gate.gate import Gate
from tests.support import MakePlan


def changed(plan: Plan, change: Any) -> Plan:
    content = json.loads(plan.content)
    change(content)
    return Plan.parse(json.dumps(content).encode(), error=PlanError)


def rename_silo(name: str) -> Any:
    return lambda content: content["silos"][0].update(name=name)


def rename_column(name: str) -> Any:
    def change(content: dict[str, Any]) -> None:
        columns = content["data"]["columns"]
        columns[name] = columns.pop("a")

    return change


def rename_category(name: str) -> Any:
    return lambda content: content["data"]["columns"]["ill"].update(categories=["no", name])


@pytest.mark.parametrize("rename", [rename_silo, rename_column])
@pytest.mark.parametrize("name", ["x\u202ey", "x\u200b", "x\u2028y", "x\x9by", "x ", "x\ue000"])
def test_names_that_cannot_be_read_are_demanded_to_change_though_they_parse(
    rename: Any, name: str, plan_of: MakePlan
) -> None:
    plan = changed(plan_of(), rename(name))
    assert "give it a plain name" in checks.unmet(plan)
    assert "\u202e" not in checks.unmet(plan)


def test_a_category_that_cannot_be_read_and_a_name_that_fills_the_screen_are_demanded_to_change(
    plan_of: MakePlan,
) -> None:
    assert r"its category 'x\u202ey' has invisible" in checks.unmet(changed(plan_of(), rename_category("x\u202ey")))
    assert "is longer than 200 characters" in checks.unmet(changed(plan_of(), rename_column("x" * 201)))


@pytest.mark.parametrize("rename", [rename_silo, rename_column, rename_category])
@pytest.mark.parametrize("name", ["St. Mary's (north), 2nd ward", "Krankenhaus Süd", "年齢 > 60", "عمر", "[bold]x"])
def test_letters_digits_spaces_and_punctuation_of_any_script_are_fine(
    rename: Any, name: str, plan_of: MakePlan
) -> None:
    assert checks.unmet(changed(plan_of(), rename(name))) == ""


def test_every_golden_plan_is_fit_unless_its_loss_is_not_installed() -> None:
    golden = Path(__file__).parents[1] / "golden"
    for path in golden.glob("v*/plans/*.json"):
        unmet = checks.unmet(Plan.parse(path.read_bytes(), error=PlanError))
        assert ("loss" in unmet) if "visits-custom" in path.name else unmet == "", path


@pytest.mark.parametrize("bounds", [{"scale": 1e300, "lower": -1e-20, "upper": 1e-20}, {"scale": 1e180}])
def test_a_survey_of_features_whose_norm_vanishes_is_neither_made_nor_approved(
    bounds: dict[str, float], gate: Gate, plan_of: MakePlan
) -> None:
    """Its answer is in units of the largest norm: 0/0 once that has underflowed."""
    column = {"type": "numeric", "lower": -1.0, "upper": 1.0, **bounds}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    schema = parse_schema({"columns": {"a": column, "ill": label}, "intercept": False}, target="ill")
    assert not checks.is_computable(schema)
    with pytest.raises(PlanError, match="too small or too large to compute with"):
        make_query_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], Statistics(columns=("a",)))
    with pytest.raises(ApprovalError):
        gate.approve(plan_of().model_copy(update={"data": schema}))


def test_a_target_whose_bound_vanishes_is_not_surveyed() -> None:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    schema = parse_schema({"columns": {"a": number, "cost": {**number, "scale": 1e308}}}, target="cost")
    with pytest.raises(PlanError, match="too small or too large to compute with"):
        make_query_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], Statistics(columns=("a",)))


def test_a_plan_whose_answers_are_too_long_for_any_reader_is_not_made() -> None:
    label = {"type": "categorical", "categories": [str(number) for number in range(3000)]}
    schema = parse_schema({"columns": {"a": label, "ill": label}}, target="ill")
    with pytest.raises(PlanError, match=r"an answer would have .* bytes, where 67108864 are allowed"):
        make_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(rounds=1, survey=False))
