"""`ringfence statistics`: who has how many, how much is missing, how silos differ."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import (
    Ledgers,
    NewBeginning,
    SameDataAs,
    UnusualBudget,
    parse_cap,
    parse_cuts,
    parse_sizes,
)
from ringfence.cli.output import AsJson, print_json, print_plan, print_table, require_folder, say
from ringfence.errors import PlanError

if TYPE_CHECKING:
    from ringfence.protocol.plan import Plan
    from ringfence.protocol.questions import Question
    from ringfence.protocol.schema import Schema
    from ringfence.server.learned import Findings
    from ringfence.server.statistics import Tables


def statistics(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SILO.csv...]", help="One table per silo, named after it: north.csv is silo 'north'."),
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="The public schema (TOML).", rich_help_panel="Basic")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Epsilon that all answers together cost every silo.", rich_help_panel="Basic")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of every silo's guarantee. Default: 1/n², at most 1e-5.", rich_help_panel="Privacy"),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns to count. Default: all. Fewer columns get less noise.",
            rich_help_panel="Statistics",
        ),
    ] = None,
    cross: Annotated[
        list[str], typer.Option(metavar="A,B", help="Add a cross table of two columns.", rich_help_panel="Statistics")
    ] = [],  # noqa: B006
    bins: Annotated[
        int, typer.Option(help="Number of bins for numeric columns: a power of two.", rich_help_panel="Statistics")
    ] = 64,
    survival: Annotated[
        str | None,
        typer.Option(
            metavar="TIME,EVENT",
            help="Ask for a survival curve instead, from the columns of time and event.",
            rich_help_panel="Statistics",
        ),
    ] = None,
    cuts: Annotated[
        str | None, typer.Option(metavar="T1,T2,...", help="Times of the survival curve.", rich_help_panel="Statistics")
    ] = None,
    for_schema: Annotated[
        bool,
        typer.Option(
            "--for-schema",
            help='Suggest lines for the schema, in which bounds may still be "?".',
            rich_help_panel="Statistics",
        ),
    ] = False,
    silo: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=RECORDS",
            help="With --out: a deployed silo and its number of records.",
            rich_help_panel="Deployment",
        ),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(help="Write a plan for `ringfence server run` here (JSON) instead.", rich_help_panel="Deployment"),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Show the results of a finished `ringfence server run`.",
            rich_help_panel="Deployment",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with figures here (HTML).", rich_help_panel="Output"),
    ] = None,
    ledgers: Ledgers = None,
    same_data_as: SameDataAs = [],  # noqa: B006
    new_beginning: NewBeginning = "",
    cap: Annotated[
        str | None,
        typer.Option(
            metavar="EPS,DELTA",
            help="Refuse to run if all runs on the data together would exceed this.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Count privately: histograms, means, quantiles, cross tables.

    Categories and missing cells are counted too, and everything has intervals. It is one question, charged to each
    silo's ledger. What other runs on the same records cost adds to it.

    Examples:
      ringfence statistics north.csv south.csv --schema schema.toml --epsilon 0.5
      ringfence statistics north.csv south.csv --schema schema.toml --epsilon 0.5 --cross smoker,ill
    """
    require_folder(out)
    require_folder(page)
    if [bool(files), out is not None, run is not None].count(True) != 1 or bool(silo) != (out is not None):
        raise PlanError(
            "Give exactly one of these: a table per silo; --silo NAME=RECORDS for each deployed silo, and --out for "
            "the plan; or --run, the folder of a finished run."
        )
    if run is not None:
        _show_run(run, page, for_schema=for_schema, json=json)
        return
    if schema is None or epsilon is None:
        raise PlanError("Statistics need --schema and --epsilon. `ringfence schema draft` writes a first schema.")
    if survival is not None or cuts is not None:
        if columns is not None or cross or for_schema or page is not None:
            raise PlanError(
                "--survival asks for a curve alone, which is printed: leave out --columns, --cross, --for-schema and "
                "--page."
            )
        data, question = _survival(schema, survival, cuts)
    else:
        data, question = _question(schema, files[0] if files else None, columns, cross, bins, for_schema=for_schema)
    if out is not None:
        _write_plan(out, data, question, parse_sizes(silo), epsilon, delta, json=json)
        return
    from ringfence.planning.one_question import make_survey
    from ringfence.server.questions.statistics import tables
    from ringfence.workflow import AskRequest, ask_files

    limit = parse_cap(cap)
    asked = AskRequest(files or [], epsilon, delta, ledgers, same_data_as, new_beginning, unusual_budget, limit)
    result = ask_files(asked, data, lambda members: make_survey(data, members, question))
    plan = result.statement.plan
    cost = {name: own.model_dump(mode="json") for name, own in result.statement.silos.items()}
    if _shows_curve(plan, result.findings, result.statement.text(), cost, json=json):
        return
    found = tables(plan, result.findings)
    _show(plan, found, result.statement.text(), cost, page, for_schema=for_schema, json=json)


def _question(
    schema: Path, file: Path | None, columns: str | None, cross: Sequence[str], bins: int, *, for_schema: bool
) -> "tuple[Schema, Question]":
    from ringfence import sources
    from ringfence.planning.request import clear_refusals
    from ringfence.protocol.questions import Statistics
    from ringfence.protocol.schema import load_columns, load_draft, without_target

    header = None if file is None else lambda: sources.header(file)
    data = without_target((load_draft if for_schema else load_columns)(schema, header))
    pairs = [tuple(part.strip() for part in pair.split(",")) for pair in cross]
    for pair, text in zip(pairs, cross, strict=True):
        if len(pair) != 2:
            raise PlanError(f"'{text}' is not of the form A,B: a cross table needs two columns.")
    named = list(data.used) if columns is None else [name.strip() for name in columns.split(",")]
    named += sorted({name for pair in pairs for name in pair if name not in named} if columns is not None else ())
    with clear_refusals():
        question = Statistics.model_validate({"columns": tuple(named), "cross": tuple(pairs), "bins": bins})
    return data, question


def _survival(schema: Path, survival: str | None, cuts: str | None) -> "tuple[Schema, Question]":
    from ringfence.planning.request import clear_refusals
    from ringfence.protocol.questions import SurvivalCurve
    from ringfence.protocol.schema import load_columns, without_target

    named = [] if survival is None else [part.strip() for part in survival.split(",")]
    at = parse_cuts(cuts)
    if len(named) != 2 or at is None:
        raise PlanError("A survival curve needs --survival TIME,EVENT (two columns) and --cuts T1,T2,... (its times).")
    with clear_refusals():
        return without_target(load_columns(schema)), SurvivalCurve(time=named[0], event=named[1], cuts=at)


def _shows_curve(
    plan: "Plan", findings: "Mapping[str, Findings]", guarantees: str, cost: dict[str, Any], *, json: bool
) -> bool:
    """Show a survival curve, if the plan asks for one; tell whether it does."""
    from ringfence.server.questions.survival_curve import curve

    points = curve(plan, findings)
    if points is None:
        return False
    if json:
        print_json({"plan": plan.digest(), "survival": [point._asdict() for point in points], "cost": cost})
        return True
    rows = [[f"{point.time:g}", *(f"{one:.3f}" for one in point[1:])] for point in points]
    print_table(["up to", "share without an event", "from", "to"], rows, title="Survival")
    say(f"\nIntervals have a level of 95% and cover noise and sampling.\n\n{guarantees}".rstrip())
    return True


def _write_plan(
    out: Path,
    data: "Schema",
    question: "Question",
    sizes: dict[str, int],
    epsilon: float,
    delta: float | None,
    *,
    json: bool,
) -> None:
    from ringfence.planning.one_question import make_survey
    from ringfence.planning.request import Member

    plan = make_survey(data, [Member(name, size, epsilon, delta) for name, size in sizes.items()], question)
    out.write_bytes(plan.content)
    print_plan(
        plan, f"Wrote {out}. Once every silo's operator has approved it, `ringfence server run` runs it.", json=json
    )


def _show_run(run: Path, page: Path | None, *, for_schema: bool, json: bool) -> None:
    from ringfence.server.conduct import replay
    from ringfence.server.questions.statistics import tables
    from ringfence.server.transcript import read
    from ringfence.statement import SiloGuarantee, Statement

    plan, result = read(run)[0].plan, replay(run)
    held = {terms.name: [own.model_dump(mode="json") for own in terms.guarantees] for terms in plan.silos}
    if _shows_curve(plan, result.findings, "", held, json=json):
        if page is not None:
            raise PlanError(f"A survival curve has no page of its own, so {page} was not written: leave out --page.")
        return
    found = tables(plan, result.findings)
    claimed = {
        terms.name: SiloGuarantee(records=terms.records, rounds=1, this_run=terms.guarantees, all_runs=terms.guarantees)
        for terms in plan.silos
        if terms.name in found.silos
    }
    cost = {name: own.model_dump(mode="json") for name, own in claimed.items()}
    _show(plan, found, Statement(plan, claimed).words(), cost, page, for_schema=for_schema, json=json)


def _show(
    plan: "Plan",
    found: "Tables",
    guarantees: str,
    cost: dict[str, Any],
    page: Path | None,
    *,
    for_schema: bool,
    json: bool,
) -> None:
    from ringfence.report import statistics as report
    from ringfence.storage.toml_files import toml_text

    suggested = _suggested(plan, found) if for_schema else {}
    if page is not None:
        report.statistics_report(plan, found, guarantees).write(page)
    if json:
        schema = {"schema": suggested} if for_schema else {}
        print_json({"plan": plan.digest(), **report.as_data(found), **schema, "cost": cost})
        return
    for shown in report.shown_tables(plan, found):
        print_table(shown.header, shown.rows, title=shown.title)
        say()
    say(f"{report.INTERVALS}\n{report.ADDS_UP}\n{report.DIFFERENCING}\n\n{guarantees}")
    if for_schema:
        lines = (
            toml_text({"columns": suggested})
            if suggested
            else "# The noise is too large for a suggestion: spend a larger epsilon.\n"
        )
        say(f"\nFor the schema, computed from these private answers alone:\n\n{lines}")
    if page is not None:
        say(f"page {page}")


def _suggested(plan: "Plan", found: "Tables") -> dict[str, dict[str, Any]]:
    """Return lines for a schema: what it says already, and what was found."""
    from ringfence.server.statistics.suggest import schema_fields

    columns = {name: plan.data.used[name] for name in found.together.columns}
    unbounded = {name: column.is_unbounded for name, column in columns.items()}
    return {
        name: {
            **columns[name].model_dump(exclude_none=True),
            **{field: columns[name].written(value) if field == "center" else value for field, value in fields.items()},
        }
        for name, fields in schema_fields(found.together, unbounded).items()
    }
