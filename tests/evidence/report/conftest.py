"""One page of every kind of report, made by real runs."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from ringfence.evidence.report.audit_report import audit_report
from ringfence.evidence.report.curves import summary_report
from ringfence.evidence.report.page import ReportPage
from ringfence.evidence.report.run_report import run_report, run_report_page
from ringfence.evidence.report.statistics_report import statistics_report
from ringfence.evidence.report.training_report import train_report
from ringfence.federation import workflow
from ringfence.federation.requests import AskRequest, TrainRequest
from ringfence.federation.tracking import Recorder
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan, propose_other_budgets
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import RoundRequest, Schema, Statistics, load_columns, load_schema
from ringfence.protocol.schema.schema import without_target
from ringfence.research.page import write_single_page
from ringfence.server.conduct import conduct
from ringfence.server.queries.statistics import statistics_of_run
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records

ROOT = Path(__file__).parents[3]
HOSTILE = "<img src=x onerror=alert(1)>&amp;"
"""A silo's name, or a plan's purpose, that somebody else chose."""

SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 100}
columns.dose = {type = "numeric", lower = 0, upper = 10}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""

AUDIT = {
    "epsilon_claimed": 3.0, "epsilon_lower": 2.61, "confidence": 0.999999, "refuted": False,
    "epsilon_lower_any_mechanism": 0.7, "delta": 1e-5, "mechanism": "full", "sabotage": "none", "records": 64,
    "rounds": 2, "runs": 1200, "score": 0.9021, "score_allowed": 0.91, "score_lower": 0.9, "findings": [],
}  # fmt: skip

Trained = tuple[ReportPage, workflow.WorkflowResult, Recorder]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two silos' records; one silo's name is hostile."""
    folder = tmp_path_factory.mktemp("silos")
    random = np.random.default_rng(3)
    (folder / "schema.toml").write_text(SCHEMA)
    paths = [folder / "clinic.csv", folder / f"{HOSTILE}.csv"]
    for path in paths:
        cells = random.uniform(0, [100, 10], (150, 2))
        rows = (f"{age:.4f},{dose:.4f},{'yes' if age / 10 > dose else 'no'}" for age, dose in cells)
        path.write_text("\n".join(["age,dose,ill", *rows, ""]))
    return paths


@pytest.fixture(scope="module")
def trained(files: list[Path]) -> Callable[..., Trained]:
    """Train and return the report; keywords change the request."""

    def train(**changes: object) -> Trained:
        recorders: list[Recorder] = []
        request = TrainRequest(
            **{  # type: ignore[arg-type]
                "files": files, "schema": files[0].parent / "schema.toml", "target": "ill",
                "plan": PlanRequest(epsilon=2.0, rounds=12), "exact": True, **changes,
            }
        )  # fmt: skip
        outcomes = workflow.train_files(
            request,
            planned=lambda plans, _: recorders.append(Recorder(plans[0])),
            watch=lambda _, outcome: recorders[0](outcome),
        )
        proposals = propose_other_budgets(request.plan, outcomes.proposal.plan)
        return train_report(outcomes, recorders[0].rounds, what_if=proposals, cap=9.0), outcomes, recorders[0]

    return train


@pytest.fixture(scope="module")
def conducted(schema: Schema, records: Records, tmp_path_factory: pytest.TempPathFactory) -> ReportPage:
    """A server's run over three silos, one of which answers only at first."""
    folder = tmp_path_factory.mktemp("conducted")
    names = ["north", HOSTILE, "west"]
    plan = make_plan(schema, [Member(name, 40, 1.0, 1e-6) for name in names], PlanRequest(rounds=6, survey=False))
    with ExitStack() as opened:
        gates: dict[str, Gate] = {}
        for place, name in enumerate(names):
            ledger = Ledger.create(folder / f"{place}.ledger", silo=name, budget=Budget(2.0, 1e-6))
            gates[name] = Gate(records, opened.enter_context(ledger))
            gates[name].approve(plan)

        def exchange(content: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], _: float) -> None:
            request = RoundRequest.from_bytes(content)
            for name in silos:
                if name != "west" or request.round < 2:
                    arrived(name, gates[name].answer(request).to_bytes())

        recorder = Recorder(plan)
        trained = conduct(plan, exchange, folder / "run", seconds=0.05, watch=recorder)
    return run_report_page(plan, run_report(folder / "run", trained, None), recorder.rounds, None)


def _statistics(files: list[Path]) -> ReportPage:
    """Statistics of all columns."""
    data = without_target(load_columns(files[0].parent / "schema.toml"))
    query = Statistics(columns=("age", "dose", "ill"), bins=8)
    asked = AskRequest(files, 1.0, 1e-6, anyway=True)
    result = workflow.ask_files(asked, data, lambda members: make_query_plan(data, members, query))
    plan = result.statement.plan
    return statistics_report(plan, statistics_of_run(plan, result.findings), result.statement.text())


def _summary(files: list[Path]) -> ReportPage:
    """A summary of a model with a spline."""
    folder = files[0].parent
    (folder / "curved.toml").write_text('maps = [{type = "spline", columns = ["age"], knots = 3}]\n' + SCHEMA)
    plan = make_plan(load_schema(folder / "curved.toml", "ill"), [Member("clinic", 150, 1.0)], PlanRequest(rounds=2))
    model = Model.of(plan, np.zeros(plan.dimension), {})
    return summary_report(
        workflow.summarise_files(AskRequest(files, 400.0, 1e-6, anyway=True, unusual_budget=True), model)
    )


@pytest.fixture(scope="module")
def pages(
    trained: Callable[..., Trained], conducted: ReportPage, files: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The files of all kinds of reports."""
    folder = tmp_path_factory.mktemp("pages")
    trained()[0].write(folder / "train.html")
    conducted.write(folder / "server-run.html")
    audit_report(AUDIT, ["Not refuted: as the claim allows.", "No proof."]).write(folder / "audit.html")
    _statistics(files).write(folder / "statistics.html")
    _summary(files).write(folder / "summary.html")
    shutil.copytree(ROOT / "docs" / "results" / "mnist", folder / "mnist")
    written = write_single_page(folder / "mnist" / "index.md")
    return {**{path.stem: path for path in folder.glob("*.html")}, "reproduce": written}
