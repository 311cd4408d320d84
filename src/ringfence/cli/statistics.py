"""`ringfence statistics`: who has how many, how much is missing, how silos differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.output import Output, Table, require_folder, show_quote, write_plan
from ringfence.errors import PlanError
from ringfence.federation.requests import DELTA, FILES, PLAN_OUT, AskRequest
from ringfence.planning.options import offered, offered_sizes, parse_cap, parse_cuts

if TYPE_CHECKING:
    from ringfence.estimates.statistics import StatisticsTables
    from ringfence.estimates.survival import SurvivalPoint
    from ringfence.protocol import Plan, Query, Schema


@dataclass(frozen=True, kw_only=True)
class StatisticsOptions(AskRequest):
    """What to count, in which tables, and for how much; or in which deployed silos; or in which finished run."""

    files: Sequence[Path] = offered((), FILES, argument=True, metavar="[SILO.csv...]")
    schema: Path | None = offered(None, "The public schema (TOML).", "Basic")
    epsilon: float = offered(None, "Epsilon that all answers together cost every silo.", "Basic", reads=float | None)
    delta: float | None = offered(None, *DELTA)
    columns: str | None = offered(
        None, "Columns to count. Default: all. Fewer columns get less noise.", "Statistics", metavar="A,B,..."
    )
    cross: Sequence[str] = offered((), "Add a cross table of two columns.", "Statistics", metavar="A,B")
    bins: int = offered(64, "Number of bins for numeric columns: a power of two.", "Statistics")
    survival: str | None = offered(
        None,
        "Ask for a survival curve instead, from the columns of time and event.",
        "Statistics",
        metavar="TIME,EVENT",
    )
    cuts: tuple[float, ...] | None = offered(
        None, "Times of the survival curve.", "Statistics", metavar="T1,T2,...", reads=str | None, parser=parse_cuts
    )
    for_schema: bool = offered(False, 'Suggest lines for the schema, in which bounds may still be "?".', "Statistics")
    sizes: Mapping[str, int] = offered_sizes({}, "With --out: a deployed silo and its number of records.", "Deployment")
    out: Path | None = offered(None, *PLAN_OUT)
    run: Path | None = offered(
        None, "Show the results of a finished `ringfence server run`.", "Deployment", metavar="FOLDER"
    )
    page: Path | None = offered(None, "Write a page with figures here (HTML).", "Output", metavar="FILE")
    cap: tuple[float, ...] | None = offered(
        None,
        "Refuse to run if all runs on the data together would exceed this.",
        "Privacy",
        metavar="EPS,DELTA",
        reads=str | None,
        parser=parse_cap,
    )


def statistics(options: StatisticsOptions) -> Output:
    """Count privately: histograms, means, quantiles, cross tables.

    Categories and missing cells are counted too, and everything has intervals. It is one query, charged to each
    silo's ledger. What other runs on the same records cost adds to it.

    Examples:
      ringfence statistics north.csv south.csv --schema schema.toml --epsilon 0.5
      ringfence statistics north.csv south.csv --schema schema.toml --epsilon 0.5 --cross smoker,ill
    """
    require_folder(options.out)
    require_folder(options.page)
    given = [bool(options.files), options.out is not None, options.run is not None]
    if given.count(True) != 1 or bool(options.sizes) != (options.out is not None):
        raise PlanError(
            "Give exactly one of these: a table per silo; --silo NAME=RECORDS for each deployed silo, and --out for "
            "the plan; or --run, the folder of a finished run."
        )
    if options.run is not None:
        return _finished_run(options.run, options)
    if options.schema is None or options.epsilon is None:
        raise PlanError("Statistics need --schema and --epsilon. `ringfence schema draft` writes a first schema.")
    is_curve = options.survival is not None or options.cuts is not None
    data, query = (_survival if is_curve else _statistics)(options.schema, options)
    from ringfence.federation.workflow import ask_files
    from ringfence.planning.query_plans import make_query_plan
    from ringfence.server.queries.statistics import statistics_of_run, survival_curve_of_run

    make_plan = partial(make_query_plan, data, query=query)
    if options.out is not None:
        return write_plan(make_plan(options.members(options.sizes)), options.out, options)
    result = ask_files(options, data, make_plan, quoted=partial(show_quote, options=options))
    plan, guarantees = result.statement.plan, result.statement.text()
    cost = {name: own.model_dump(mode="json") for name, own in result.statement.silos.items()}
    points = survival_curve_of_run(plan, result.findings)
    if points is not None:
        return _curve(plan, points, guarantees, cost)
    return _tables(plan, statistics_of_run(plan, result.findings), guarantees, cost, options)


def _statistics(schema: Path, options: StatisticsOptions) -> "tuple[Schema, Query]":
    """Return the columns and the statistics query that `ringfence statistics` asks for."""
    from ringfence import sources
    from ringfence.planning.request import clear_refusals
    from ringfence.protocol import Statistics, load_columns
    from ringfence.protocol.schema.draft import load_draft
    from ringfence.protocol.schema.schema import without_target

    header = (lambda: sources.header(options.files[0])) if options.files else None
    data = without_target((load_draft if options.for_schema else load_columns)(schema, header))
    pairs = [tuple(part.strip() for part in pair.split(",")) for pair in options.cross]
    for pair, text in zip(pairs, options.cross, strict=True):
        if len(pair) != 2:
            raise PlanError(f"'{text}' is not of the form A,B: a cross table needs two columns.")
    if options.columns is None:
        named = list(data.used)
    else:
        named = [name.strip() for name in options.columns.split(",")]
        named += sorted({name for pair in pairs for name in pair if name not in named})
    with clear_refusals():
        query = Statistics.model_validate({"columns": tuple(named), "cross": tuple(pairs), "bins": options.bins})
    return data, query


def _survival(schema: Path, options: StatisticsOptions) -> "tuple[Schema, Query]":
    """Return the columns and the survival curve that `ringfence statistics --survival` asks for."""
    from ringfence.planning.request import clear_refusals
    from ringfence.protocol import SurvivalCurve, load_columns
    from ringfence.protocol.schema.schema import without_target

    if options.columns is not None or options.cross or options.for_schema or options.page is not None:
        raise PlanError(
            "--survival asks for a curve alone, which is printed: leave out --columns, --cross, --for-schema and "
            "--page."
        )
    named = [] if options.survival is None else [part.strip() for part in options.survival.split(",")]
    if len(named) != 2 or options.cuts is None:
        raise PlanError("A survival curve needs --survival TIME,EVENT (two columns) and --cuts T1,T2,... (its times).")
    with clear_refusals():
        query = SurvivalCurve(time=named[0], event=named[1], cuts=options.cuts)
        return without_target(load_columns(schema)), query


def _finished_run(run: Path, options: StatisticsOptions) -> Output:
    """Return the statistics of a finished run, or its survival curve."""
    from ringfence.model.statement import Statement
    from ringfence.server.conduct import replay
    from ringfence.server.queries.statistics import statistics_of_run, survival_curve_of_run
    from ringfence.server.transcript import read_transcript

    plan, result = read_transcript(run)[0].plan, replay(run)
    points = survival_curve_of_run(plan, result.findings)
    if points is not None:
        if options.page is not None:
            raise PlanError(
                f"A survival curve has no page of its own, so {options.page} was not written: leave out --page."
            )
        held = {terms.name: [own.model_dump(mode="json") for own in terms.guarantees] for terms in plan.silos}
        return _curve(plan, points, "", held)
    found = statistics_of_run(plan, result.findings)
    claimed = Statement.claimed(plan, dict.fromkeys(found.silos, 1))
    cost = {name: own.model_dump(mode="json") for name, own in claimed.silos.items()}
    return _tables(plan, found, claimed.words(), cost, options)


def _curve(plan: "Plan", points: "list[SurvivalPoint]", guarantees: str, cost: dict[str, Any]) -> Output:
    """Return a survival curve as `ringfence statistics` prints it."""
    rows = [[f"{point.time:g}", *(f"{one:.3f}" for one in point[1:])] for point in points]
    return Output(
        {"plan": plan.digest(), "survival": [point._asdict() for point in points], "cost": cost},
        Table(["up to", "share without an event", "from", "to"], rows, "Survival"),
        f"\nIntervals have a level of 95% and cover noise and sampling.\n\n{guarantees}".rstrip(),
    )


def _tables(
    plan: "Plan", found: "StatisticsTables", guarantees: str, cost: dict[str, Any], options: StatisticsOptions
) -> Output:
    """Return the statistics that were found, with suggested lines for a schema, and write their page."""
    from ringfence.evidence.report import statistics_report as report
    from ringfence.storage.toml_files import toml_text

    schema: dict[str, Any] = {}
    last = []
    if options.for_schema:
        schema["schema"] = _suggested(plan, found)
        too_noisy = "# The noise is too large for a suggestion: spend a larger epsilon.\n"
        lines = toml_text({"columns": schema["schema"]}) if schema["schema"] else too_noisy
        last.append(f"\nFor the schema, computed from these private answers alone:\n\n{lines}")
    if options.page is not None:
        report.statistics_report(plan, found, guarantees).write(options.page)
        last.append(f"page {options.page}")
    return Output(
        {"plan": plan.digest(), **report.statistics_data(found), **schema, "cost": cost},
        *(
            part
            for shown in report.printed_tables(plan, found)
            for part in (Table(shown.header, shown.rows, shown.title), "")
        ),
        f"{report.INTERVALS}\n{report.ADDS_UP}\n{report.DIFFERENCING}\n\n{guarantees}",
        *last,
    )


def _suggested(plan: "Plan", found: "StatisticsTables") -> dict[str, dict[str, Any]]:
    """Return lines for a schema from statistics: what it says already, and what was found."""
    from ringfence.estimates.suggestions import suggested_schema_fields

    columns = {name: plan.data.used[name] for name in found.together.columns}
    unbounded = {name: column.is_unbounded for name, column in columns.items()}
    return {
        name: {
            **columns[name].model_dump(exclude_none=True),
            **{field: columns[name].written(value) if field == "center" else value for field, value in fields.items()},
        }
        for name, fields in suggested_schema_fields(found.together, unbounded).items()
    }
