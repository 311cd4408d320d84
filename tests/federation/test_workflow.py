"""From CSV files to a model, or to statistics, in Python: what `ringfence train` and `ringfence statistics` call."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import (
    AccountingError,
    ApprovalError,
    PlanError,
    RecordsError,
    RingfenceError,
    SchemaError,
    TrainingError,
)
from ringfence.planning.one_question import make_survey
from ringfence.planning.propose import Proposal
from ringfence.planning.request import PlanRequest
from ringfence.protocol.questions import Statistics
from ringfence.protocol.schema import load_schema
from ringfence.server.questions.statistics import tables
from ringfence.server.rounds import RoundOutcome
from ringfence.server.statistics import Numbers
from ringfence.silo.ledger import Ledger
from ringfence.training import TrainingResult
from ringfence.workflow import AskRequest, TrainRequest, ask_files, silo_paths, train_files

SCHEMA = """
[columns.age]
type = "numeric"
lower = 0
upper = 100

[columns.smokes]
type = "categorical"
categories = ["no", "yes"]

[columns.ill]
type = "categorical"
categories = ["no", "yes"]
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
    planned: list[Proposal] = []
    seen: list[RoundOutcome] = []
    outcomes = train_files(wanted, planned=planned.append, watch=seen.append)
    plan = outcomes.proposal.plan
    assert planned == [outcomes.proposal]
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
    assert {key: report[key] for key in ("plan", "loss", "algorithm", "sampling", "rounds")} == {
        "plan": plan.digest(), "loss": "logistic", "algorithm": "accelerated", "sampling": "full", "rounds": 10,
    }  # fmt: skip
    assert set(report["silos"]) == {"north", "south"}
    assert set(report["findings"]) == {"curvature"}
    assert report["findings"]["curvature"]["noise"] > 0
    assert len(report["findings"]["curvature"]["statistic"]) == 1
    for name, guarantee in outcomes.result.statement.silos.items():
        (told,) = report["silos"][name]["this_run"]
        assert told == {"epsilon": guarantee.run.epsilon, "delta": 1e-6, "against": "anyone"}
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
        (
            {"plan": {"budgets": {"east": (1.0, 1e-6)}}},
            PlanError,
            "budget for silo 'east'",
        ),
        ({"plan": {"epsilon": 0.0}}, AccountingError, "epsilon must be a finite number above 0"),
        ({"plan": {"algorithm": "none"}}, PlanError, "no algorithm 'none'"),
        ({"plan": {"rounds": 0}}, PlanError, "at least one round"),
        ({"plan": {"rounds": None, "most_rounds": 0}}, PlanError, "at least one round"),
        ({"plan": {"ridge": -1.0}}, PlanError, "ridge"),
        ({"plan": {"held_out": 1.0}}, PlanError, "held-out share"),
        ({"plan": {"held_out": 0.0}}, TrainingError, "none is held out"),
        ({"cap": (-1.0, 1e-6)}, AccountingError, "the cap's epsilon"),
        ({"cap": (1.0, 0.0)}, AccountingError, "the cap's delta"),
        ({"cap": (1.0, 1e-6)}, ApprovalError, "more than its budget of 1"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_released(
    wanted: TrainRequest, changes: dict[str, Any], error: type[RingfenceError], says: str
) -> None:
    with pytest.raises(error, match=says):
        train_files(replace(wanted, **{**changes, "plan": replace(ASKED, **changes.get("plan", {}))}))
    for path in ledgers(wanted):
        with Ledger.open(path) as ledger:
            assert ledger.account().charged() == []


def test_two_files_cannot_name_one_silo(wanted: TrainRequest, tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / "north.csv"
    with pytest.raises(RecordsError, match="Two files are named 'north', and a silo is named after its file"):
        silo_paths([*wanted.files, twin])
    assert list(silo_paths(wanted.files)) == ["north", "south"]


AGES = Statistics(columns=("age", "smokes"))


def asked(wanted: TrainRequest, **options: Any) -> TrainingResult:
    """Ask both silos for statistics."""
    schema = load_schema(wanted.schema, "ill")
    request = AskRequest(**{"files": wanted.files, **options})
    return ask_files(request, schema, lambda members: make_survey(schema, members, AGES))


def test_statistics_find_what_the_cells_are_like_and_their_cost_is_on_the_ledger(wanted: TrainRequest) -> None:
    result = asked(wanted, epsilon=1000.0, delta=1e-6, unusual_budget=True)
    found = tables(result.statement.plan, result.findings)
    ages = [float(line.split(",")[0]) for file in wanted.files for line in file.read_text().splitlines()[1:]]
    age = found.together.columns["age"]
    assert isinstance(age, Numbers)
    assert age.mean is not None
    # The interval has two standard deviations to either side, and Gaussian noise of seven a chance < 1e-11.
    low, high = age.mean.records
    assert age.mean.value == pytest.approx(np.mean(ages), abs=3.6 * (high - low) / 2)
    assert high - low < 1
    assert [outcome.answered for outcome in result.history] == [("north", "south")]
    for name, guarantee in result.statement.silos.items():
        assert (guarantee.records, guarantee.rounds) == (100, 1)
        with Ledger.open(wanted.schema.parent / f"{name}.ledger") as ledger:
            assert ledger.account().spent() == guarantee.used
            assert 0.999 * 1000.0 < guarantee.used[0].epsilon <= guarantee.run.epsilon == 1000.0


def test_statistics_and_runs_compose_and_each_silo_s_delta_is_its_default(wanted: TrainRequest, tmp_path: Path) -> None:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    first = asked(wanted, epsilon=1.0, ledgers=folder)
    assert {guarantee.run.delta for guarantee in first.statement.silos.values()} == {1e-5}
    plan = replace(ASKED, epsilon=1.0, delta=1e-5)
    second = train_files(replace(wanted, plan=plan, ledgers=folder)).result
    for guarantee in second.statement.silos.values():
        # Two Gaussian releases of equal cost come to √2 times the shift: more than one, less than both.
        assert 1.3 < guarantee.total.epsilon < 1.7
    assert {path.parent for path in ledgers(wanted)} == {folder}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"epsilon": 0.0}, AccountingError, "epsilon must be a finite number above 0"),
        ({"delta": 1.0}, PlanError, "delta: Input should be less than 1"),
        ({"epsilon": 1e9}, PlanError, "less than a millionth"),
        ({"files": []}, PlanError, "at least 1 item"),
        ({"files": [Path("/nowhere.csv")]}, RecordsError, "could not be read"),
    ],
)
def test_statistics_that_cannot_be_asked_for_leave_no_ledger(
    wanted: TrainRequest, changes: dict[str, Any], error: type[RingfenceError], says: str
) -> None:
    with pytest.raises(error, match=says):
        asked(wanted, **{"epsilon": 1.0, **changes})
    assert ledgers(wanted) == []
