"""`ringfence model summary`: coefficients with intervals, in the table's own units, on the ledgers' account."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.estimates.intervals import critical_value
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import load_schema
from ringfence.storage.toml_files import toml_text
from tests.cli.conftest import epsilon, refuses, ringfence, ringfence_json

SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 100}
columns.ward = {type = "categorical", categories = ["a", "b", "c"], scale = 0.5}
columns.stage = {type = "categorical", categories = ["i", "ii", "iii"], ordered = true}
columns.cost = {type = "numeric", lower = 0, upper = 200}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""
TRUTH = {
    "cost": {"age": 0.5, "stage": 10.0, "ward=b": 20.0, "ward=c": -5.0, "(intercept)": 60.0},
    "ill": {"age": 0.02, "stage": 0.5, "ward=b": 1.0, "ward=c": -1.0, "(intercept)": -1.5},
}


class Hospitals:
    """Files of two hospitals, and a model of weights of 0."""

    def __init__(self, folder: Path, target: str, records: int = 3000, maps: Any = ()) -> None:
        self.folder, self.schema = folder, folder / "schema.toml"
        other = "ill" if target == "cost" else "cost"
        kept = [line for line in SCHEMA.splitlines() if not line.startswith(f"columns.{other}")]
        self.schema.write_text("\n".join([*kept, toml_text({"maps": list(maps)}) if maps else ""]))
        random = np.random.default_rng(7)
        self.files = [folder / f"{name}.csv" for name in ("east", "west")]
        for path in self.files:
            with path.open("w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["age", "ward", "stage", target])
                for _ in range(records):
                    rows.writerow(row(target, random))
        loaded = load_schema(self.schema, target)
        plan = make_plan(loaded, [Member("east", records, 1.0)], PlanRequest(rounds=2, curves=0))
        self.model = folder / "model.json"
        Model.of(plan, np.zeros(plan.dimension), {}).save(self.model)

    def summary(self, *changes: str, epsilon: str = "8") -> list[str]:
        return ["model", "summary", str(self.model), *map(str, self.files), "--epsilon", epsilon, *changes]


def row(target: str, random: np.random.Generator) -> list[str]:
    age, ward, stage = random.uniform(10, 90), random.choice(["a", "b", "c"]), int(random.integers(3))
    true = TRUTH[target]
    score = true["(intercept)"] + true["age"] * age + true["stage"] * stage + true.get(f"ward={ward}", 0.0)
    drawn = f"{score + random.normal(0, 12):.2f}" if target == "cost" else ("no", "yes")[score > random.logistic()]
    return [f"{age:.2f}", ward, ("i", "ii", "iii")[stage], drawn]


@pytest.mark.parametrize("target", ["cost", "ill"])
def test_every_coefficient_is_found_in_the_table_s_units_up_to_its_own_error(tmp_path: Path, target: str) -> None:
    """False alarm: an estimate is 6 of its standard errors off, 2e-9 for each of five."""
    report = ringfence_json(*Hospitals(tmp_path, target).summary())
    assert set(report["coefficients"]) == set(TRUTH[target])
    for name, exact in TRUTH[target].items():
        found = report["coefficients"][name]
        assert abs(found["estimate"] - exact) < 6 * found["standard_error"]
        assert found["interval"][0] < found["estimate"] < found["interval"][1]
    sizes = [abs(found["estimate"]) for found in list(report["coefficients"].values())[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert list(report["coefficients"])[-1] == "(intercept)"
    strong = report["coefficients"]["ward=b"]
    assert strong["standard_error"] < abs(TRUTH[target]["ward=b"]) / 6
    assert strong["p_value"] < 1e-6


def test_each_silo_s_ledger_is_charged_and_silos_may_be_taken_for_the_draws(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, "cost", records=600)
    report = ringfence_json(*hospitals.summary(epsilon="1"))
    for name in ("east", "west"):
        assert epsilon(report["silos"][name]["used"]) == pytest.approx(1.0, rel=1e-3)
    done = ringfence(*hospitals.summary("--by-silo", "--level", "0.5", epsilon="1"))
    assert "over silos" in done.stdout
    assert all(name in done.stdout for name in TRUTH["cost"])
    assert "What is protected" in done.stdout


def test_curves_are_found_up_to_their_band_drawn_on_a_page_and_beside_them_coefficients(tmp_path: Path) -> None:
    """False alarm: one of ten points is 6 standard errors off, 2e-8."""
    maps = [
        {"type": "spline", "columns": ["age"], "knots": 3, "degree": 2},
        {"type": "interaction", "columns": ["stage", "age"]},
    ]
    hospitals = Hospitals(tmp_path, "cost", maps=maps)
    page = tmp_path / "summary.html"
    report = ringfence_json(*hospitals.summary("--report", str(page), "--anyway"))
    assert set(report["coefficients"]) == {"ward=b", "ward=c"}
    wider = 6 / critical_value(1 - 0.05 / 9)
    for name, slope, middle in (("age", 0.5, 50.0), ("stage", 10.0, 1.0)):
        curve = report["curves"][name]
        for number, point in enumerate(curve):
            place, (low, high) = number if name == "stage" else float(point["value"]), point["interval"]
            assert low <= point["estimate"] <= high
            assert abs(point["estimate"] - slope * (place - middle)) < wider * (high - low) + 1e-9
    assert report["report"] == str(page)
    drawn = page.read_text()
    assert drawn.count("<svg") == 2
    assert "<polygon" in drawn  # the band
    assert "95% confidence intervals over records" in drawn
    assert "What is not protected" in drawn
    printed = ringfence(*hospitals.summary("--anyway")).stdout
    assert "hold at all its points at once" in printed


def test_a_summary_of_too_many_features_is_refused_with_what_to_do(tmp_path: Path) -> None:
    maps = [{"type": "fourier", "columns": ["age"], "features": 400, "seed": 1}]
    refuses(
        "fewer knots, harmonics or Fourier features", *Hospitals(tmp_path, "cost", records=500, maps=maps).summary()
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("--level", "1"), "must be between 0 and 1"),
        (("--epsilon", "0"), "epsilon must be"),
        (("--epsilon", "0.01"), "no coefficient could be estimated"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence_and_leaves_no_ledger(
    tmp_path: Path, changes: tuple[str, ...], says: str
) -> None:
    refuses(says, *Hospitals(tmp_path, "cost", records=50).summary(*changes))
    assert not list(tmp_path.glob("*.ledger"))
