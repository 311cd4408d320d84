"""`ringfence evaluate`: how good a model is, asked of silos' records, with noise and intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import Ledgers, ModelFile, NewBeginning, SameDataAs, UnusualBudget, parse_sizes
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
        list[Path] | None,
        typer.Argument(metavar="[SILO.csv...]", help="One table per silo, named after it: north.csv is silo 'north'."),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="Epsilon that the evaluation costs every silo.", rich_help_panel="Privacy")
    ] = 1.0,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of every silo's guarantee. Default: 1/n², at most 1e-5.", rich_help_panel="Privacy"),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Another model to compare with on the same records.", rich_help_panel="Evaluation"),
    ] = None,
    all_records: Annotated[
        bool,
        typer.Option(
            "--all-records", help="Use all records, not only the held-out ones.", rich_help_panel="Evaluation"
        ),
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also measure without noise: NOT PRIVATE.", rich_help_panel="Evaluation")
    ] = False,
    silo: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=RECORDS",
            help="With --out: a deployed silo and its number of records. Default: the silos that trained the model.",
            rich_help_panel="Deployment",
        ),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(help="Write a plan for `ringfence server run` here (JSON) instead.", rich_help_panel="Deployment"),
    ] = None,
    ledgers: Ledgers = None,
    same_data_as: SameDataAs = [],  # noqa: B006
    new_beginning: NewBeginning = "",
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Measure privately how good a model is, with intervals.

    It asks the records that training held out, which pay for evaluations only, and charges each silo's ledger. For
    deployed silos, write a plan with --out: their operators approve it and the server runs it.

    Examples:
      ringfence evaluate model.json north.csv south.csv --epsilon 0.5
      ringfence evaluate model.json --against old.json north.csv south.csv --epsilon 0.5
      ringfence evaluate model.json --epsilon 0.5 --out evaluation.json
    """
    from ringfence.model import Model

    loaded = Model.load(model)
    other = None if against is None else Model.load(against)
    if bool(files) == (out is not None) or (silo and out is None):
        raise PlanError("Give either the silos' tables, or, for deployed silos, --out for a plan that the server runs.")
    if exact and out is not None:
        raise PlanError("--exact needs the silos' tables: give them, or remove --exact.")
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
    print_plan(
        plan, f"Wrote {out}. Once every silo's operator has approved it, `ringfence server run` runs it.", json=json
    )


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


def print_exact(test: "ExactScores", of: str = "held-out records") -> None:
    """Print what was measured without noise, and what that means."""
    from ringfence.training import CHOOSING

    say()
    print_table(
        ["test on", test.metric],
        [["all silos", test.value], *test.per_silo.items()],
        title=f"NOT PRIVATE: measured without noise on {of}, for those who may see them",
    )
    if test.remark:
        say(test.remark)
    say(CHOOSING)


def figure_cells(figure: "Figure") -> list[object]:
    """Return a figure's name, value and interval for a table."""
    if figure.value is None:
        return [figure.name, "unknown", "", ""]
    return [figure.name, figure.value, figure.low, figure.high]
