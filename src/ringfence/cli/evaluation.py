"""`ringfence evaluate`: how good a model is, asked of silos' records, with noise and intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import ModelFile, NewBeginning, UnusualBudget, parse_sizes
from ringfence.cli.output import AsJson, print_json, print_plan, print_table, require_folder, say
from ringfence.errors import PlanError

if TYPE_CHECKING:
    from ringfence.metrics.intervals import Figure
    from ringfence.metrics.report import EvaluationReport
    from ringfence.model import Model
    from ringfence.training import ExactScores


def evaluate(
    model: ModelFile,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="SILO.csv...", help="One CSV per silo; its stem names it.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What the evaluation may cost every silo.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Every silo's delta; by default 1/n², at most 1e-5.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another model, to compare with on the same records.")] = None,
    all_records: Annotated[
        bool,
        typer.Option("--all-records", help="Ask all records, not those alone that the model's training held out."),
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Measure on the same records without noise too: NOT PRIVATE.")
    ] = False,
    silo: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=RECORDS",
            help="A silo that runs by itself, and its size; for a plan, with --out. By default those that trained it.",
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Write the plan here (JSON), for `ringfence server run`.")] = None,
    ledgers: Annotated[Path | None, typer.Option(help="Folder of the ledgers; by default beside each CSV.")] = None,
    same_data_as: Annotated[
        list[Path],
        typer.Option(metavar="LEDGER", help="The ledger that a silo's records have already; once for each such silo."),
    ] = [],  # noqa: B006
    new_beginning: NewBeginning = "",
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Measure how good a model is, privately: figures with intervals; each silo's ledger is charged.

    Records that the model's training held out are asked, which pay for evaluations alone. For silos that run by
    themselves, write a plan (--out), which their operators approve and the server runs.
    """
    from ringfence.model import Model

    loaded = Model.load(model)
    other = None if against is None else Model.load(against)
    if bool(files) == (out is not None) or (silo and out is None):
        raise PlanError("Give the silos' files; or, for silos that run by themselves, where to write a plan (--out).")
    if exact and out is not None:
        raise PlanError("Without noise only whoever has the files can measure: give them, or leave --exact out.")
    if out is not None:
        _write_plan(loaded, other, silo, epsilon, delta, all_records, out, json)
        return
    from ringfence.workflow import AskRequest, evaluate_files, exact_on_files

    request = AskRequest(files or [], epsilon, delta, ledgers, same_data_as, new_beginning, unusual_budget)
    result = evaluate_files(request, loaded, against=other, all_records=all_records)
    assert result.evaluation is not None  # noqa: S101 (it is all that the plan asks)
    test = exact_on_files(files or [], loaded, all_records=all_records) if exact else None
    if json:
        silos = {name: guarantee.model_dump(mode="json") for name, guarantee in result.statement.silos.items()}
        evaluation = result.evaluation.model_dump(mode="json")
        measured = {} if test is None else test.as_data()
        print_json({"plan": result.statement.plan.digest(), "evaluation": evaluation, "silos": silos, **measured})
        return
    print_evaluation(result.evaluation)
    if test is not None:
        print_exact(test, "all records" if all_records else "the same records")
    say(f"\n{result.statement.text()}\n\nplan {result.statement.plan.digest()}")


def _write_plan(
    model: "Model",
    against: "Model | None",
    silos: Sequence[str],
    epsilon: float,
    delta: float | None,
    all_records: bool,
    out: Path,
    json: bool,
) -> None:
    from ringfence.planning.evaluations import make_evaluation
    from ringfence.planning.request import Member
    from ringfence.workflow import require_comparable

    require_folder(out)
    require_comparable(model, against)
    sizes = parse_sizes(silos) or {terms.name: terms.records for terms in model.plan.silos}
    members = [Member(name, records, epsilon, delta) for name, records in sizes.items()]
    other = None if against is None else against.weights
    plan = make_evaluation(model.plan, model.weights, members, against=other, all_records=all_records)
    out.write_bytes(plan.content)
    print_plan(plan, f"Wrote {out}: every silo's operator approves it, then `ringfence server run` asks.", json=json)


def print_evaluation(report: "EvaluationReport") -> None:
    """Print all figures in words, and each silo's first figure beside its interval."""
    say(str(report))
    if len(report.silos) < 2:
        return
    say()
    print_table(
        ["silo", f"{report.unit}s", "figure", "value", "from", "to"],
        [[name, own.records, *figure_cells(own.figures[0])] for name, own in report.silos.items() if own.figures],
    )


def print_exact(test: "ExactScores", of: str = "records that did not train") -> None:
    """Print what was measured without noise, and what that means."""
    from ringfence.training import CHOOSING

    say()
    print_table(
        ["test on", test.metric],
        [["all of them", test.value], *test.per_silo.items()],
        title=f"NOT PRIVATE: measured without noise on {of}, for whoever may see those",
    )
    if test.remark:
        say(test.remark)
    say(CHOOSING)


def figure_cells(figure: "Figure") -> list[object]:
    """Return a figure's name, value and interval for a table."""
    if figure.value is None:
        return [figure.name, "cannot be told", "", ""]
    return [figure.name, figure.value, figure.low, figure.high]
