"""`ringfence evaluate`: how good a model is, asked of silos' records, with noise and intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.options import AsJson
from ringfence.cli.output import print_json, print_table, require_folder, say, write_plan
from ringfence.errors import PlanError
from ringfence.federation.requests import DELTA, FILES, PLAN_OUT, AskRequest
from ringfence.planning.options import REQUIRED, offered, offered_sizes

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
    exact: bool = offered(False, "Also measure without noise: NOT PRIVATE.", "Evaluation")
    sizes: Mapping[str, int] = offered_sizes(
        {},
        "With --out: a deployed silo and its number of records. Default: the silos that trained the model.",
        "Deployment",
    )
    out: Path | None = offered(None, *PLAN_OUT)


def evaluate(options: EvaluationOptions, json: AsJson = False) -> None:
    """Measure privately how good a model is, with intervals.

    It asks the records that training held out, which pay for evaluations only, and charges each silo's ledger. For
    deployed silos, write a plan with --out: their operators approve it and the server runs it.

    Examples:
      ringfence evaluate model.json north.csv south.csv --epsilon 0.5
      ringfence evaluate model.json --against old.json north.csv south.csv --epsilon 0.5
      ringfence evaluate model.json --epsilon 0.5 --out evaluation.json
    """
    from ringfence.federation.workflow import evaluate_files, exact_on_files, require_comparable
    from ringfence.model.model import Model
    from ringfence.planning.query_plans import make_evaluation_plan
    from ringfence.planning.request import Member

    model = Model.load(options.model)
    against = None if options.against is None else Model.load(options.against)
    if bool(options.files) == (options.out is not None) or (options.sizes and options.out is None):
        raise PlanError("Give either the silos' tables, or, for deployed silos, --out for a plan that the server runs.")
    if options.exact and options.out is not None:
        raise PlanError("--exact needs the silos' tables: give them, or remove --exact.")
    if options.out is not None:
        require_folder(options.out)
        require_comparable(model, against)
        sizes = options.sizes or {terms.name: terms.records for terms in model.plan.silos}
        members = [Member(name, records, options.epsilon, options.delta) for name, records in sizes.items()]
        other = None if against is None else against.weights
        plan = make_evaluation_plan(model.plan, model.weights, members, against=other, all_records=options.all_records)
        write_plan(plan, options.out, json=json)
        return
    result = evaluate_files(options, model, against=against, all_records=options.all_records)
    assert result.evaluation is not None  # noqa: S101 (it is all that the plan asks)
    test = exact_on_files(options.files, model, all_records=options.all_records) if options.exact else None
    if json:
        silos = {name: guarantee.model_dump(mode="json") for name, guarantee in result.statement.silos.items()}
        evaluation = result.evaluation.model_dump(mode="json")
        measured = {} if test is None else test.as_data()
        print_json({"plan": result.statement.plan.digest(), "evaluation": evaluation, "silos": silos, **measured})
        return
    print_evaluation(result.evaluation)
    if test is not None:
        print_exact(test, "all records" if options.all_records else "the same records")
    say(f"\n{result.statement.text()}\n\nplan {result.statement.plan.digest()}")


def print_evaluation(report: "EvaluationReport") -> None:
    """Print all metrics in words, and each silo's first metric beside its interval."""
    say(str(report))
    if len(report.silos) < 2:
        return
    say()
    print_table(
        ["silo", f"{report.unit}s", "metric", "value", "from", "to"],
        [[name, own.records, *metric_cells(own.metrics[0])] for name, own in report.silos.items() if own.metrics],
    )


def print_exact(test: "ExactScores", of: str = "held-out records") -> None:
    """Print what an evaluation measured without noise, and what that means."""
    from ringfence.federation.training import CHOOSING

    say()
    print_table(
        ["test on", test.metric],
        [["all silos", test.value], *test.per_silo.items()],
        title=f"NOT PRIVATE: measured without noise on {of}, for those who may see them",
    )
    if test.remark:
        say(test.remark)
    say(CHOOSING)


def metric_cells(metric: "Metric") -> list[object]:
    """Return a metric's name, value and interval for a table."""
    if metric.value is None:
        return [metric.name, "unknown", "", ""]
    return [metric.name, metric.value, metric.low, metric.high]
