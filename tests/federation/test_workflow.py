"""From CSV files to a model, or to statistics, in Python: what `ringfence train` and `ringfence statistics` call."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError, PlanError, RecordsError, RingfenceError, SchemaError
from ringfence.federation.requests import TrainRequest
from ringfence.federation.workflow import silo_paths, train_files
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Plan
from ringfence.server.rounds import RoundOutcome
from ringfence.silo.ledger.ledger import Ledger

SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 100}
columns.smokes = {type = "categorical", categories = ["no", "yes"]}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""
ASKED = PlanRequest(epsilon=20.0, delta=1e-6, rounds=10, survey=False)


@pytest.fixture
def wanted(tmp_path: Path) -> TrainRequest:
    """Two silos of 100 records in which the old and the smokers are ill."""
    random = np.random.default_rng(2)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    files = []
    for name, centre in (("north", 35.0), ("south", 65.0)):
        lines = ["age,smokes,ill"]
        for age in random.uniform(centre - 30, centre + 30, 100):
            smokes = random.random() < 0.5
            ill = age + 30 * smokes > 65
            lines.append(f"{age:.3f},{'yes' if smokes else 'no'},{'yes' if ill else 'no'}")
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text("\n".join(lines) + "\n")
    return TrainRequest(files, tmp_path / "schema.toml", "ill", ASKED, exact=True)


def ledgers(request: TrainRequest) -> list[Path]:
    return sorted(request.schema.parent.rglob("*.ledger*"))


def test_files_become_a_model_and_everything_about_the_run_is_returned(wanted: TrainRequest) -> None:
    planned: list[Plan] = []
    seen: list[RoundOutcome] = []
    outcomes = train_files(
        wanted, planned=lambda plans, _: planned.extend(plans), watch=lambda _, outcome: seen.append(outcome)
    )
    plan = outcomes.proposal.plan
    assert planned == [plan]
    assert plan == outcomes.result.model.plan
    assert tuple(seen) == outcomes.result.history
    assert [outcome.answered for outcome in seen] == [("north", "south")] * plan.rounds
    assert outcomes.test is not None
    # Almost no noise at epsilon 20, and ten rounds see most of what there is to see; guessing is right half the time.
    assert outcomes.test.metric == "accuracy"
    assert outcomes.test.value > 0.7
    assert [path.name for path in ledgers(wanted)] == ["north.ledger", "south.ledger"]


def test_the_report_is_plain_data_with_the_plan_s_choices(wanted: TrainRequest) -> None:
    outcomes = train_files(replace(wanted, plan=replace(ASKED, survey=True, algorithm="accelerated")))
    report = outcomes.report()
    assert json.loads(json.dumps(report)) == report
    plan = outcomes.result.model.plan
    assert {key: report[key] for key in ("plan", "loss", "algorithm", "sampling", "rounds", "steps")} == {
        "plan": plan.digest(), "loss": "logistic", "algorithm": "accelerated", "sampling": "full",
        "rounds": plan.rounds, "steps": 10,
    }  # fmt: skip
    assert set(report["silos"]) == {"north", "south"}
    assert set(report["findings"]) == {"curvature"}
    assert report["findings"]["curvature"]["noise"] > 0
    assert len(report["findings"]["curvature"]["statistic"]) == 1
    for name, guarantee in outcomes.result.statement.silos.items():
        (text,) = report["silos"][name]["this_run"]
        assert text == {"epsilon": guarantee.run.epsilon, "delta": 1e-6, "against": "anyone"}
    assert (len(report["explanation"]), len(report["alternatives"])) == (3, 1)
    assert report["test_is_private"] is False
    assert set(report["test"]) == {"accuracy", "per_silo"}


def test_without_a_test_or_a_survey_the_report_has_neither(wanted: TrainRequest) -> None:
    report = train_files(replace(wanted, exact=False, plan=replace(ASKED, held_out=0.0))).report()
    assert not {"test", "test_is_private"} & set(report)
    assert report["findings"] == {}
    assert {silo["records"] for silo in report["silos"].values()} == {100}


@pytest.mark.parametrize("peer_to_peer", [False, True])
def test_ledgers_stand_where_they_are_wanted_and_cost_the_same_with_and_without_a_server(
    wanted: TrainRequest, tmp_path: Path, peer_to_peer: bool
) -> None:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    outcomes = train_files(replace(wanted, ledgers=folder, peer_to_peer=peer_to_peer))
    assert {path.parent for path in ledgers(wanted)} == {folder}
    for name, stated in outcomes.result.statement.silos.items():
        with Ledger.open(folder / f"{name}.ledger") as ledger:
            (approved,) = ledger.account().plans.values()
            assert ledger.account().spent() == stated.used
            assert 0.999 * 20.0 < stated.used[0].epsilon <= stated.total.epsilon == 20.0
        assert (approved.ended, len(approved.rounds)) == ("finished", stated.rounds)
        assert stated.rounds == 10 + 2  # of the evaluation


def test_a_cap_is_kept_over_runs(wanted: TrainRequest) -> None:
    capped = replace(wanted, cap=(25.0, 1e-6), unusual_budget=True)
    train_files(capped)
    with pytest.raises(ApprovalError, match="more than its budget of 25"):
        train_files(capped)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"target": "weight"}, SchemaError, "'weight' is not among the columns"),
        ({"schema": Path("/nowhere.toml")}, SchemaError, "could not be read"),
        ({"files": []}, PlanError, "at least one silo"),
        ({"files": [Path("/nowhere.csv")]}, RecordsError, "could not be read"),
        ({"tests": {"east": Path("east.csv")}}, PlanError, "no silo 'east'; the silos are north, south"),
        ({"tests": {"north": Path("/nowhere.csv")}}, RecordsError, "could not be read"),
        ({"cap": (1.0, 1e-6)}, ApprovalError, "more than its budget of 1"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_released(
    wanted: TrainRequest, changes: dict[str, Any], error: type[RingfenceError], says: str
) -> None:
    with pytest.raises(error, match=says):
        train_files(replace(wanted, **changes))
    for path in ledgers(wanted):
        with Ledger.open(path) as ledger:
            assert ledger.account().charged() == []


def test_a_request_decides_on_its_quote_also_where_nobody_is_shown_it(wanted: TrainRequest) -> None:
    for dry, says in ((False, "Refused, and nothing was charged"), (True, "A dry run ends here")):
        poor = replace(wanted, plan=replace(ASKED, epsilon=0.01), dry_run=dry)
        with pytest.raises(PlanError, match=says):
            train_files(poor)
        assert ledgers(wanted) == []
    assert not train_files(replace(poor, dry_run=False, anyway=True)).quote.is_worth_it


def test_two_files_cannot_name_one_silo(wanted: TrainRequest, tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / "north.csv"
    with pytest.raises(RecordsError, match="Two files are named 'north', and a silo is named after its file"):
        silo_paths([*wanted.files, twin])
    assert list(silo_paths(wanted.files)) == ["north", "south"]
