"""`ringfence train`: one CSV file per silo, on one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.evaluation import figure_cells, print_evaluation, print_exact
from ringfence.cli.options import (
    Ledgers,
    NewBeginning,
    SameDataAs,
    SchemaFile,
    SiloFiles,
    Target,
    UnusualBudget,
    parse_cap,
    parse_files,
    takes_plan_request,
)
from ringfence.cli.output import AsJson, print_json, print_table, progress, remark, require_folder, require_new, say
from ringfence.cli.reporting import Figures, NoReport, ReportFile, Track, report_path, trackers
from ringfence.errors import PlanError

if TYPE_CHECKING:
    from ringfence.metrics.choice import Choice
    from ringfence.planning.propose import Proposal
    from ringfence.protocol.plan import Plan
    from ringfence.server.rounds import RoundOutcome
    from ringfence.workflow import WorkflowResult


@takes_plan_request
def train(
    *,
    files: SiloFiles,
    schema: SchemaFile,
    target: Target,
    request: Any,
    tried: Annotated[
        list[str],
        typer.Option(
            "--try",
            metavar="OPTION=VALUE,VALUE...",
            help="Train one candidate per value, compare them privately on held-out records and keep the best, all "
            "within --epsilon. Repeat it to try every combination.",
            rich_help_panel="Evaluation",
        ),
    ] = [],  # noqa: B006
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Also measure on the held-out records without noise: NOT PRIVATE.",
            rich_help_panel="Evaluation",
        ),
    ] = False,
    test: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILE",
            help="Also measure on a silo's test file without noise: NOT PRIVATE.",
            rich_help_panel="Evaluation",
        ),
    ] = [],  # noqa: B006
    ledgers: Ledgers = None,
    same_data_as: SameDataAs = [],  # noqa: B006
    new_beginning: NewBeginning = "",
    cap: Annotated[
        str | None,
        typer.Option(
            metavar="EPS,DELTA[,ALONE]",
            help="Refuse to run if all runs on the data together would exceed this. ALONE is the epsilon allowed "
            "against a server that colludes with the shuffler.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    unusual_budget: UnusualBudget = False,
    peer_to_peer: Annotated[
        bool,
        typer.Option(
            "--peer-to-peer",
            help="Train without a server: every silo broadcasts its answers and computes every step.",
            rich_help_panel="Algorithm",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the model here (JSON).", rich_help_panel="Output")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let --out replace an existing file.", rich_help_panel="Output")
    ] = False,
    report: ReportFile = None,
    no_report: NoReport = False,
    figures: Figures = None,
    track: Track = None,
    json: AsJson = False,
) -> None:
    """Train one model across silos, each protected by its own noise.

    Each silo's ledger is charged before the silo answers. What earlier runs on the same records cost adds to it.

    Examples:
      ringfence train north.csv south.csv --schema schema.toml --target ill --epsilon 1
      ringfence train *.csv --schema schema.toml --target ill --epsilon 1 --out model.json
      ringfence train *.csv --schema schema.toml --target ill --epsilon 2 --try ridge=0,0.01
    """
    from ringfence import workflow
    from ringfence.planning.candidates import parse_tries
    from ringfence.planning.explain import explain_proposal, warnings
    from ringfence.tracking import Recorder

    training = workflow.TrainRequest(
        files=files,
        schema=schema,
        target=target,
        plan=request,
        exact=exact,
        tests=parse_files(test),
        ledgers=ledgers,
        same_data_as=same_data_as,
        new_beginning=new_beginning,
        cap=parse_cap(cap),
        unusual_budget=unusual_budget,
        peer_to_peer=peer_to_peer,
    )
    require_folder(out)
    if not overwrite:
        require_new(out)
    page = report_path(report, no_report=no_report, figures=figures, model=out, ledgers=ledgers or files[0].parent)
    if tried and track:
        raise PlanError("--track follows a single run, but --try trains several candidates: remove one of the two.")
    boards = trackers(track)
    recorders: dict[str, Recorder] = {}
    with progress() as bar:
        task = bar.add_task("rounds")

        def announce(warned: Sequence[str], *plans: "Plan") -> None:
            for line in warned:
                remark(bar, line)
            if page is not None or track is not None:
                recorders.update({plan.digest(): Recorder(plan, *boards) for plan in plans})
            bar.update(task, total=sum(plan.rounds for plan in plans))

        def watch(plan: "Plan", outcome: "RoundOutcome") -> None:
            if recorders:
                recorders[plan.digest()](outcome)
            bar.advance(task)

        if tried:
            outcome = workflow.choose_files(
                training,
                parse_tries(tried),
                planned=lambda proposed: announce([*proposed.explain(), *proposed.warnings()], *proposed.plans),
                watch=watch,
            )
        else:
            plan_of: list[Plan] = []

            def planned(proposal: "Proposal") -> None:
                plan_of.append(proposal.plan)
                announce(warnings(proposal), proposal.plan)

            outcome = workflow.train_files(training, planned=planned, watch=lambda done: watch(plan_of[0], done))
    if out is not None:
        outcome.result.model.save(out)
    recorder = recorders.get(outcome.proposal.plan.digest())
    if recorder is not None:
        recorder.end(outcome.result.statement.text())
    if page is not None and recorder is not None:
        from ringfence.report.trained import train_report

        proposals = {} if tried else workflow.what_if(request, outcome.proposal.plan)
        made = train_report(outcome, recorder.rounds, what_if=proposals, cap=training.cap[0] if training.cap else None)
        made.write(page, figures=figures)
    if json:
        print_json({**outcome.report(), **({} if page is None else {"report": str(page)})})
    else:
        say("\n".join([*explain_proposal(outcome.proposal), ""]))
        _print(outcome, out, page)


def _print(outcome: "WorkflowResult", out: Path | None, page: Path | None) -> None:
    statement, test = outcome.result.statement, outcome.test
    print_table(
        ["silo", f"{statement.plan.unit}s", "rounds", "epsilon", "delta", "epsilon of all runs", "delta"],
        [
            [name, silo.records, silo.rounds, silo.run.epsilon, silo.run.delta, silo.total.epsilon, silo.total.delta]
            for name, silo in statement.silos.items()
        ],
    )
    if outcome.result.model.choice is not None:
        say()
        print_choice(outcome.result.model.choice)
    if outcome.result.evaluation is not None:
        say()
        print_evaluation(outcome.result.evaluation)
    if test is not None:
        print_exact(test)
    say(f"\n{statement.text()}\n\nplan {statement.plan.digest()}")
    if out is not None:
        say(f"model {out}")
    if page is not None:
        say(f"report {page}")


def print_choice(choice: "Choice") -> None:
    """Print every candidate beside its distance from the best."""
    say("\n".join(choice.sentences()))
    print_table(
        ["candidate", "", "loss above the best", "from", "to"],
        [
            [str(one), "the best", "", "", ""]
            if number == choice.best
            else [str(one), "", *figure_cells(one.above)[1:]]
            for number, one in enumerate(choice.candidates)
        ],
    )
