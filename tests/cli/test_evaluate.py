"""How good a model is, asked privately: figures with intervals, charged to records that did not train it."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.model.model import Model
from ringfence.protocol import load_plan, pack
from ringfence.silo.ledger.ledger import Ledger
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json


@pytest.fixture
def trained(federation: Federation) -> Path:
    """A model that hardly any noise went into, so that it is a good one."""
    return federation.model(epsilon="19")


def asked(federation: Federation, model: Path, *changes: object, epsilon: str = "19") -> list[object]:
    return ["evaluate", model, *federation.files, "--epsilon", epsilon, "--delta", "1e-6", *changes]


def test_an_evaluation_costs_the_held_out_records_alone(federation: Federation, trained: Path) -> None:
    before = {name: total(federation, name) for name in ("north", "south", "west")}
    ringfence(*asked(federation, trained, "--anyway", epsilon="0.5"))
    with Ledger.open(federation.folder / "north.ledger") as ledger:
        sections = [getattr(event, "section", "all") for event, _ in ledger.account().charged()]
        spent = ledger.account().spent()[0].epsilon
    assert set(sections) == {"training", "held-out"}
    assert before["north"] < spent < before["north"] + 0.5  # the first evaluation cost them what training cost others


def total(federation: Federation, name: str) -> float:
    with Ledger.open(federation.folder / f"{name}.ledger") as ledger:
        return ledger.account().spent()[0].epsilon


def test_a_good_model_beats_guessing_and_another_model_on_the_same_records(
    federation: Federation, trained: Path
) -> None:
    model = Model.load(trained)
    bad = federation.folder / "bad.json"
    model.model_copy(update={"weights": pack(0 * model.coefficients.reshape(-1))}).save(bad)
    found = ringfence_json(*asked(federation, trained, "--against", bad))["evaluation"]["together"]["metrics"]
    metrics = {metric["name"]: metric for metric in found}
    assert metrics["accuracy above guessing"]["low"] > 0
    assert metrics["loss below the other model's"]["low"] > 0
    shown = ringfence(*asked(federation, trained)).stdout
    assert "  accuracy " in shown
    assert "guessing the larger class gives" in shown
    assert "NOT PRIVATE" not in shown


def test_the_last_category_of_the_target_is_positive_and_every_command_names_it(federation: Federation) -> None:
    """Noise in the share has a deviation of 0.008 (six runs), and the classes' shares differ by 0.1."""
    federation.schema.write_text(federation.schema.read_text().replace('["no", "yes"]', '["yes", "no"]'))
    model = federation.folder / "model.json"
    shown = ringfence(*federation.train("--out", model, "--curves", "none", epsilon="19")).stdout
    named = "with 95% intervals; positive class: 'no'\n"
    assert named in shown
    assert "positive class: &#x27;no&#x27;" in (federation.folder / "model.html").read_text()
    assert named in ringfence(*asked(federation, model)).stdout
    found = ringfence_json(*asked(federation, model, "--figures", "share of positives"))["evaluation"]
    assert found["positive"] == "no"
    share = next(one for one in found["together"]["metrics"] if one["name"] == "share of positives")
    assert share["value"] == pytest.approx(np.mean([cell == "no" for cell in federation.column("ill")]), abs=0.05)
    assert "; positive class: 'no'." in ringfence("model", "card", model).stdout
    summary = ("model", "summary", model, *federation.files, "--epsilon", "5", "--delta", "1e-6", "--anyway")
    assert "Log odds of 'no'. In the table's own units" in ringfence(*summary).stdout
    assert ringfence_json(*summary)["positive"] == "no"


def test_exact_numbers_take_an_option_and_are_said_to_be_not_private(federation: Federation, trained: Path) -> None:
    shown = ringfence(*asked(federation, trained, "--exact")).stdout
    assert "NOT PRIVATE: measured without noise" in shown
    text = ringfence_json(*asked(federation, trained, "--exact"))
    accuracy = next(f for f in text["evaluation"]["together"]["metrics"] if f["name"] == "accuracy")
    assert text["test_is_private"] is False
    # The interval is for sampling 180 records, and reaches more than ten deviations of this noise.
    assert accuracy["low"] <= text["test"]["accuracy"] <= accuracy["high"]
    assert set(text["test"]["per_silo"]) == {"north", "south", "west"}
    out = federation.folder / "plan.json"
    refuses("--exact needs the silos' tables", "evaluate", trained, "--out", out, "--exact")


def test_a_plan_for_silos_that_run_by_themselves_asks_what_training_held_out(
    federation: Federation, trained: Path
) -> None:
    out = federation.folder / "evaluation.json"
    sizes = ["--silo", "north=300", "--silo", "south=300", "--silo", "west=300"]
    for named in (sizes, []):  # who trained it is known
        ringfence("evaluate", trained, *named, "--out", out, "--anyway")
        (stage,) = load_plan(out).stages
        assert (stage.section, stage.query.name, load_plan(out).held_out) == ("held-out", "evaluation", 0.2)
        assert {terms.name: terms.records for terms in load_plan(out).silos} == dict.fromkeys(
            ("north", "south", "west"), 300
        )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--silo", "north=300"], "Give either the silos' tables, or, for deployed silos"),
        (["--out", "plan.json"], "Give either the silos' tables, or, for deployed silos"),
        (["--exact", "--out", "plan.json"], "Give either the silos' tables, or"),
        (["--epsilon", "0"], "epsilon must be a finite number above 0"),
        (["--epsilon", "1000"], "protects almost nobody"),
        (["--against", "nowhere.json"], "could not be read"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_spent(
    federation: Federation, trained: Path, changes: list[str], says: str
) -> None:
    before = federation.ledgers()
    refuses(says, *asked(federation, trained, *changes))
    assert federation.ledgers() == before


def test_a_model_of_another_schema_is_not_compared(federation: Federation, trained: Path) -> None:
    other = federation.model(target="cost")
    refuses("different schemas or losses", *asked(federation, trained, "--against", other))


def test_only_the_figures_that_are_named_are_measured_and_printed(federation: Federation, trained: Path) -> None:
    found = ringfence_json(*asked(federation, trained, "--figures", "ACCURACY, recall"))["evaluation"]["together"]
    names = ["accuracy", "accuracy of guessing the larger class", "accuracy above guessing", "recall"]
    assert [metric["name"] for metric in found["metrics"]] == names
    assert not found["confusion"]
    usual = ringfence_json(*asked(federation, trained))["evaluation"]["together"]["metrics"]
    assert [metric["name"] for metric in usual] == [*names[:3], "AUC"]
    assert (
        len(ringfence_json(*asked(federation, trained, "--figures", "all"))["evaluation"]["together"]["metrics"]) > 10
    )


def test_an_unknown_figure_is_refused_with_the_list_before_anything_is_charged(
    federation: Federation, trained: Path
) -> None:
    before = total(federation, "north")
    refused = (
        "There is no figure 'recal' of a model with this target: choose from accuracy, share of positives, precision"
    )
    refuses(refused, *asked(federation, trained, "--figures", "accuracy,recal"))
    refuses(refused, *federation.train("--figures", "recal", "--rounds", "5"))
    assert total(federation, "north") == before
