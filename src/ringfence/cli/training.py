"""`ringfence train`: one CSV file per silo, on one machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.evaluation import describe_evaluation, describe_exact, metric_cells
from ringfence.cli.output import Output, Table, remark, require_folder, show_quote
from ringfence.errors import OutputError, PlanError
from ringfence.federation.progress import progress
from ringfence.federation.requests import TrainRequest
from ringfence.planning.options import offered

if TYPE_CHECKING:
    from ringfence.federation.tracking import TensorBoard
    from ringfence.federation.workflow import WorkflowResult
    from ringfence.protocol import Plan
    from ringfence.server.rounds import RoundOutcome


@dataclass(frozen=True, kw_only=True)
class TrackingOptions:
    """Charts of the report, and a tracker that follows the rounds."""

    svg: Path | None = offered(
        None, "Also write the report's charts to this folder, as SVG.", "Output", metavar="FOLDER"
    )
    track: Path | None = offered(
        None, "Write each round's public numbers to this folder, for TensorBoard.", "Output", metavar="FOLDER"
    )

    def trackers(self) -> "list[TensorBoard]":
        """Return TensorBoard, if there is a folder for it."""
        if self.track is None:
            return []
        from ringfence.federation.tracking import TensorBoard

        return [TensorBoard(self.track)]


@dataclass(frozen=True, kw_only=True)
class TrainOutput(TrackingOptions):
    """Where the model and the report of a training go."""

    out: Path | None = offered(None, "Write the model here (JSON).", "Output")
    overwrite: bool = offered(False, "Let --out replace an existing file.", "Output")
    report: Path | None = offered(
        None, "Write the report here (HTML). Default: beside the model, or the ledgers.", "Output", metavar="FILE"
    )
    no_report: bool = offered(False, "Write no report.", "Output")

    def report_path(self, ledgers: Path) -> Path | None:
        """Return the report's path: as asked for, else beside the model, else with the ledgers; None without one.

        Refuses, before anything is charged, files that could not be written or exist, and options that contradict each
        other.
        """
        require_folder(self.out)
        if self.out is not None and self.out.exists() and not self.overwrite:
            raise OutputError(
                f"{self.out} already exists, and may hold a model that cost privacy budget: name another file, or add "
                "--overwrite."
            )
        if self.no_report and self.report is not None:
            raise OutputError("--report and --no-report contradict each other: give one of them.")
        usual = ledgers / "ringfence-report.html" if self.out is None else self.out.with_suffix(".html")
        path = self.report or (None if self.no_report else usual)
        if self.svg is not None and path is None:
            raise OutputError("--svg needs a report: name its file with --report.")
        if path is not None and path == self.out:
            raise OutputError(f"The model and the report cannot both be written to {path}: name another file.")
        require_folder(path)
        return path


def train(request: TrainRequest, output: TrainOutput) -> Output:
    """Train one model across silos, each protected by its own noise.

    First the plan is rehearsed on simulated records: the command says what to expect, and stops if it is worth nothing.
    Then each silo's ledger is charged before the silo answers. What earlier runs on the same records cost adds to it.

    Examples:
      ringfence train *.csv --schema schema.toml --target ill --epsilon 1 --dry-run
      ringfence train *.csv --schema schema.toml --target ill --epsilon 1 --out model.json
      ringfence train *.csv --schema schema.toml --target ill --epsilon 2 --try ridge=0,0.01
    """
    from ringfence.federation.tracking import Recorder
    from ringfence.federation.workflow import train_files
    from ringfence.planning.explain import explain_proposal

    page = output.report_path(request.ledgers or request.files[0].parent)
    if request.tries and output.track:
        raise PlanError("--track follows a single run, but --try trains several candidates: remove one of the two.")
    boards = output.trackers()
    recorders: dict[str, Recorder] = {}
    with progress() as bar:
        task = bar.add_task("rounds")

        def planned(plans: Sequence["Plan"], remarks: Sequence[str]) -> None:
            """Print remarks on the plans of `ringfence train`, and set up its recorders and progress bar."""
            for line in remarks:
                remark(bar, line)
            if page is not None or boards:
                recorders.update({plan.digest(): Recorder(plan, *boards) for plan in plans})
            bar.update(task, total=sum(plan.rounds for plan in plans))

        def watch(plan: "Plan", outcome: "RoundOutcome") -> None:
            """Record a finished round of `ringfence train`, and advance its progress bar."""
            if recorders:
                recorders[plan.digest()](outcome)
            bar.advance(task)

        show = partial(show_quote, options=request, show=partial(remark, bar))
        trained = train_files(request, planned=planned, watch=watch, quoted=show)
    if output.out is not None:
        trained.result.model.save(output.out)
    recorder = recorders.get(trained.proposal.plan.digest())
    if recorder is not None:
        recorder.end(trained.result.statement.text())
    if page is not None and recorder is not None:
        from ringfence.evidence.report.training_report import train_report
        from ringfence.planning.propose import propose_other_budgets

        proposals = {} if request.tries else propose_other_budgets(request.plan, trained.proposal.plan)
        cap = request.cap[0] if request.cap else None
        train_report(trained, recorder.rounds, what_if=proposals, cap=cap).write(page, svg=output.svg)
    files, lines = {"model": output.out, "report": page}, explain_proposal(trained.proposal)
    return Output(
        {**trained.report(), **({} if page is None else {"report": str(page)})},
        *(f"{'chosen candidate: ' * (trained.division is not None)}{line}" for line in lines[:1]),
        *lines[1:],
        "",
        *_describe(trained),
        *(f"{what} {path}" for what, path in files.items() if path is not None),
    )


def _describe(trained: "WorkflowResult") -> Iterator[str | Table]:
    """Yield what `ringfence train` did: guarantees, the choice, and the evaluation."""
    from ringfence.server.queries.column_distributions import remarks as column_remarks

    statement, choice, evaluation = trained.result.statement, trained.result.choice, trained.result.evaluation
    yield Table(
        ["silo", f"{statement.plan.unit}s", "rounds", "epsilon", "delta", "epsilon of all runs", "delta"],
        [
            [name, silo.records, silo.rounds, silo.run.epsilon, silo.run.delta, silo.total.epsilon, silo.total.delta]
            for name, silo in statement.silos.items()
        ],
    )
    if choice is not None:
        yield "\n".join(["", *choice.sentences()])
        yield Table(
            ["candidate", "", "loss above the best", "from", "to"],
            [
                [str(one), "the best", "", "", ""]
                if number == choice.best
                else [str(one), "", *metric_cells(one.above)[1:]]
                for number, one in enumerate(choice.candidates)
            ],
        )
    if evaluation is not None:
        yield ""
        yield from describe_evaluation(evaluation)
    yield from describe_exact(trained.test)
    yield from (f"\n{line}" for line in column_remarks(trained.result.findings))
    yield f"\n{statement.text()}\n\nplan {statement.plan.digest()}"
