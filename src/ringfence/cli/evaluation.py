"""`ringfence evaluate`: how good a model is, asked of silos' records, with noise and intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.output import Output, Table, require_folder, show_quote, write_plan
from ringfence.errors import PlanError
from ringfence.federation.requests import DELTA, FILES, PLAN_OUT, AskRequest
from ringfence.planning.options import REQUIRED, offered, offered_sizes, parse_figures
from ringfence.planning.request import FIGURES

if TYPE_CHECKING:
    from ringfence.estimates.metrics import EvaluationReport, Metric
    from ringfence.federation.training import ExactScores


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(AskRequest):
    """Which model to evaluate, on which records, and for how much; or on which deployed silos."""

    model: Path = offered(REQUIRED, "A model, as written by `ringfence train --out`.", argument=True)
    files: Sequence[Path] = offered((), FILES, argument=True, metavar="[SILO.csv...]")
    epsilon: float = offered(1.0, "Epsilon that the evaluation costs every silo.", "Privacy")
    delta: float | None = offered(None, *DELTA)
    against: Path | None = offered(None, "Another model to compare with on the same records.", "Evaluation")
    all_records: bool = offered(False, "Use all records, not only the held-out ones.", "Evaluation")
    figures: Sequence[str] | None = offered(
        None, *FIGURES, metavar="NAME,NAME...", reads=str | None, parser=parse_figures
    )
    exact: bool = offered(False, "Also measure without noise: NOT PRIVATE.", "Evaluation")
    sizes: Mapping[str, int] = offered_sizes(
        {},
        "With --out: a deployed silo and its number of records. Default: the silos that trained the model.",
        "Deployment",
    )
    out: Path | None = offered(None, *PLAN_OUT)


def evaluate(options: EvaluationOptions) -> Output:
    """Measure privately how good a model is, with intervals.

    It asks the records that training held out, which pay for evaluations only, and charges each silo's ledger. For
    deployed silos, write a plan with --out: their operators approve it and the server runs it.

    Examples:
      ringfence evaluate model.json north.csv south.csv --epsilon 0.5
      ringfence evaluate model.json --against old.json north.csv south.csv --epsilon 0.5
      ringfence evaluate model.json --epsilon 0.5 --out evaluation.json
    """
    from ringfence.federation.workflow import ask_files, evaluation_plan_maker, exact_on_files
    from ringfence.model.model import Model

    model = Model.load(options.model)
    against = None if options.against is None else Model.load(options.against)
    if bool(options.files) == (options.out is not None) or (options.sizes and options.out is None):
        raise PlanError("Give either the silos' tables, or, for deployed silos, --out for a plan that the server runs.")
    if options.exact and options.out is not None:
        raise PlanError("--exact needs the silos' tables: give them, or remove --exact.")
    require_folder(options.out)
    make_plan = evaluation_plan_maker(model, against=against, all_records=options.all_records, figures=options.figures)
    if options.out is not None:
        sizes = options.sizes or {terms.name: terms.records for terms in model.plan.silos}
        return write_plan(make_plan(options.members(sizes)), options.out, options)
    result = ask_files(options, model.data, make_plan, quoted=partial(show_quote, options=options))
    assert result.evaluation is not None  # noqa: S101 (it is all that the plan asks)
    test = exact_on_files(options.files, model, all_records=options.all_records) if options.exact else None
    digest = result.statement.plan.digest()
    return Output(
        {
            "plan": digest,
            "evaluation": result.evaluation.model_dump(mode="json"),
            "silos": {name: own.model_dump(mode="json") for name, own in result.statement.silos.items()},
            **({} if test is None else test.as_data()),
        },
        *describe_evaluation(result.evaluation),
        *describe_exact(test, "all records" if options.all_records else "the same records"),
        f"\n{result.statement.text()}\n\nplan {digest}",
    )


def describe_evaluation(report: "EvaluationReport") -> Iterator[str | Table]:
    """Yield all metrics in words, and each silo's first metric beside its interval."""
    yield str(report)
    if len(report.silos) > 1:
        yield ""
        yield Table(
            ["silo", f"{report.unit}s", "metric", "value", "from", "to"],
            [[name, own.records, *metric_cells(own.metrics[0])] for name, own in report.silos.items() if own.metrics],
        )


def describe_exact(test: "ExactScores | None", of: str = "held-out records") -> Iterator[str | Table]:
    """Yield what an evaluation measured without noise, if it did, and what that means."""
    from ringfence.federation.training import CHOOSING

    if test is not None:
        yield ""
        yield Table(
            ["test on", test.metric],
            [["all silos", test.value], *test.per_silo.items()],
            f"NOT PRIVATE: measured without noise on {of}, for those who may see them",
        )
        if test.remark:
            yield test.remark
        yield CHOOSING


def metric_cells(metric: "Metric") -> list[object]:
    """Return a metric's name, value and interval for a table."""
    if metric.low is None:
        return [metric.name, "unknown", "", ""]
    return [metric.name, "too wide to use" if metric.value is None else metric.value, metric.low, metric.high]
