"""A model card says what the model's file says, and nothing that somebody else wrote can forge a part of it."""

import numpy as np

from ringfence.estimates.metrics import EvaluationReport, Metric, ModelMetrics
from ringfence.model.card import MOST_WEIGHTS, model_card
from ringfence.model.curves import column_curves
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from tests.model.test_export import COLUMNS, model


def test_a_card_has_data_plan_guarantee_evaluation_weights_and_what_it_is_not_for() -> None:
    trained = model("logistic", "ill")
    card = model_card(trained)
    for part in ("Data", "Plan", "Guarantee", "Evaluation", "Weights", "What it must not be used for"):
        assert f"\n## {part}\n" in card
    assert "| age | number | 0 to 120 |  |" in card
    assert "| dose | number | -5 to 45 | 10.0 |" in card
    assert f"`{trained.plan.digest()}`" in card
    assert "| north | 90 | one record | anyone who sees what the silo sends | 1 | 1e-05 | 1.5 | 1e-05 |" in card
    assert "| a | 50 | one record | anyone who sees what the silo sends | 2 | 1e-05 | 2 | 1e-05 |" in card
    assert "None: the plan asked no held-out records." in card
    assert "however plans were chosen" in card


def test_a_card_has_the_private_evaluation_and_the_maps_that_make_features() -> None:
    figure = Metric(name="accuracy", value=0.8, low=0.7, high=0.9)
    report = EvaluationReport(unit="record", together=ModelMetrics(records=28, metrics=(figure,)), silos={})
    trained = model("logistic", "ill", maps=[{"type": "spline", "columns": ["age"], "knots": [18, 65]}])
    card = model_card(trained.model_copy(update={"evaluation": report}))
    assert "Measured privately on 28 held-out records of all silos" in card
    assert "- accuracy 0.800, between 0.700 and 0.900." in card
    assert "Features computed from them by public maps: splines of degree 3 with knots at 18, 65 \\(age\\)." in card
    assert "| column | value | log odds of 'yes' |" in card
    assert "## Weights" not in card
    for curve in column_curves(trained.plan, trained.coefficients):
        for value, score in curve.table()[1]:
            assert f"| {curve.name} | {value} | {score:.4g} |" in card


def test_the_largest_weights_come_first() -> None:
    trained = model("softmax", "kind")
    lines = [line for line in model_card(trained).partition("## Weights")[2].splitlines() if line.startswith("| ")][2:]
    shown = [abs(float(line.split(" | ")[2].rstrip(" |"))) for line in lines]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == min(MOST_WEIGHTS, len(trained.by_size()))


def test_a_card_of_thresholds_has_each_slope_once_and_every_threshold() -> None:
    trained = model("ordinal", "kind")
    text = {(name, output): weight for name, output, weight in trained.by_size()}
    slopes = {(name, "kind") for name in trained.plan.data.feature_names[:-1]}
    assert set(text) == slopes | {("intercept", "above x"), ("intercept", "above y")}
    assert text["age", "kind"] == trained.coefficients[0, 0]
    assert "| intercept | above x | " in model_card(trained)


def test_a_card_of_times_has_a_hazard_for_each_part() -> None:
    columns = {**COLUMNS, "days": {"type": "numeric", "lower": 0, "upper": 100}}
    schema = parse_schema({"columns": columns, "event": "ill"}, target="days")
    plan = make_plan(schema, [Member("north", 90, 1.0)], PlanRequest(cuts=(50.0,), rounds=3))
    card = model_card(Model.of(plan, np.arange(plan.dimension) / 10, {"north": 3}))
    assert "| intercept | log hazard from days 0 | " in card
    assert "| intercept | log hazard from days 50 | " in card
    assert "The event of a record is in the column ill." in card
    assert "| ill | category | no, yes |  |" in card


def test_a_model_whose_maker_saw_no_ledger_gets_a_card_with_what_its_plan_promises() -> None:
    card = model_card(model("logistic", "ill", guaranteed=False))
    assert "without access to any silo's ledger" in card
    assert "| north | 90 | one record | 1 |" in card


def test_a_purpose_or_a_name_that_looks_like_markdown_stays_text() -> None:
    trained = model("logistic", "ill")
    assert "| purpose |" not in model_card(trained)
    columns = dict(trained.plan.data.columns)
    columns["a | b](http://x) <b>"] = columns.pop("age")
    data = trained.plan.data.model_copy(update={"columns": columns})
    forged = {"data": data, "purpose": "research <b>", "controller": "A Clinic"}
    card = model_card(trained.model_copy(update={"plan": trained.plan.model_copy(update=forged)}))
    assert r"| purpose | research \<b\> |" in card
    assert "| controller | A Clinic |" in card
    assert r"| a \| b\]\(http://x\) \<b\> | number |" in card
    assert "](http" not in card
    assert "<b>" not in card.replace(r"\<b\>", "")
