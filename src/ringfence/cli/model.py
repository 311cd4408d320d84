"""`ringfence model`: show, export and summarise a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ringfence.cli.options import App, ModelFile
from ringfence.cli.output import Output, Table, require_folder, say, show_quote, warn
from ringfence.errors import WHY, OutputError, os_error_as, visible
from ringfence.federation.requests import DELTA, FILES, AskRequest
from ringfence.planning.options import REQUIRED, offered

app = App(help="Inspect, summarise or export a trained model.")


@app.command()
def export(
    model: ModelFile,
    to: str = offered(
        "csv", "csv (a line per feature, and the intercept), json (one object), or onnx (a graph that predicts)."
    ),
    out: Path | None = offered(None, "Write the coefficients here instead of printing them."),
) -> None:
    """Export coefficients in the table's own units, or an ONNX graph.

    Examples:
      ringfence model export model.json
      ringfence model export model.json --to onnx --out model.onnx
    """
    from ringfence.model.model import Model

    if to not in ("csv", "json", "onnx"):
        raise OutputError(f"A model is exported as csv, json or onnx, not as '{to}'.")
    if to == "onnx" and out is None:
        raise OutputError("An ONNX graph is binary: name a file with --out.")
    require_folder(out)
    linear = Model.load(model).linear()
    content = linear.to_onnx() if to == "onnx" else (linear.to_csv() if to == "csv" else linear.to_json()).encode()
    _print_or_write(content, out)


def _print_or_write(content: bytes, out: Path | None) -> None:
    """Print an exported model or a model card, or write it; OutputError if the file cannot be written."""
    if out is None:
        say(content.decode(), end="")
        return
    with os_error_as(OutputError, f"{out} could not be written: {WHY}. Name another file."):
        out.write_bytes(content)


@app.command()
def show(model: ModelFile) -> Output:
    """List the weights, largest first; of curves, points of each.

    Examples:
      ringfence model show model.json
    """
    from ringfence.model.curves import column_curves
    from ringfence.model.model import Model

    header, loaded = ["feature", "of", "weight"], Model.load(model)
    weights, plan = loaded.by_size(), loaded.placed_plan
    curves = column_curves(plan, loaded.coefficients) if plan.data.maps else []
    tables = [part for curve in curves for part in (Table(*curve.table()), "")] or [Table(header, weights)]
    return Output({"weights": [dict(zip(header, row, strict=True)) for row in weights]}, *tables)


@app.command()
def card(model: ModelFile, out: Path | None = offered(None, "Write the card here instead of printing it.")) -> None:
    """Write a model card in Markdown.

    It covers data, plan, each silo's guarantee, the private evaluation, and what the model is not for.

    Examples:
      ringfence model card model.json --out card.md
    """
    from ringfence.model.card import model_card
    from ringfence.model.model import Model

    require_folder(out)
    _print_or_write(model_card(Model.load(model)).encode(), out)


@app.command()
def statement(
    model: ModelFile,
    certificate: list[Path] = offered((), "A silo's certificate to check the statement against.", metavar="FILE"),
) -> None:
    """Show each silo's guarantee for this model, and verify it.

    Examples:
      ringfence model statement model.json
      ringfence model statement model.json --certificate north.certificate.json
    """
    from ringfence.evidence.verification import verify_statement
    from ringfence.model.model import Model

    found = Model.load(model).statement
    if found is None:
        say(
            "This model has no statement, because it was made without access to any silo's ledger. Each silo's "
            "certificate (`ringfence silo certificate`) shows what the silo released."
        )
    elif certificate:
        checked = verify_statement(found, certificate)
        say("\n".join([found.text(), "", "Verification", "", *(f"  {line}" for line in checked)]))
    else:
        say(
            f"{found.text()}\n\nNot verified: this is what the model's maker wrote into the file. To verify it, ask "
            "the silos for their certificates (`ringfence silo certificate`) and give each as --certificate."
        )


@dataclass(frozen=True, kw_only=True)
class SummaryOptions(AskRequest):
    """Which model to summarise, on which tables, and for how much."""

    model: Path = offered(REQUIRED, "A model, as written by `ringfence train --out`.", argument=True)
    files: Sequence[Path] = offered(
        REQUIRED, f"{FILES} `ringfence example` writes three to try.", argument=True, metavar="SILO.csv..."
    )
    epsilon: float = offered(REQUIRED, "Epsilon that the summary costs every silo.", "Privacy")
    delta: float | None = offered(None, *DELTA)
    level: float = offered(0.95, "Confidence level of the intervals.", "Statistics")
    by_silo: bool = offered(
        False, "Treat silos, not records, as the sample: intervals for silos like these.", "Statistics"
    )
    report: Path | None = offered(
        None, "Write a page here that draws every curve with its band (HTML).", "Output", metavar="FILE"
    )


@app.command()
def summary(options: SummaryOptions) -> Output:
    """Estimate coefficients with standard errors and p-values.

    The estimates start from the model's weights and are those of the loss without ridge, clipping and early stopping.
    All records of the tables are asked, held-out ones too, and each silo's ledger is charged. For squared and logistic
    losses.

    Examples:
      ringfence model summary model.json north.csv south.csv --epsilon 1
    """
    from ringfence.federation.workflow import summarise_files
    from ringfence.model.model import Model
    from ringfence.model.summary import AT_ONCE

    require_folder(options.report)
    found = summarise_files(
        options,
        Model.load(options.model),
        level=options.level,
        by_silo=options.by_silo,
        quoted=partial(show_quote, options=options),
    )
    draws = "silos" if options.by_silo else f"{found.statement.plan.unit}s"
    log_odds = "" if found.positive is None else f"Log odds of '{found.positive}'. "
    title = f"{log_odds}In the table's own units, with {100 * options.level:.4g}% confidence intervals over {draws}"
    parts: list[str | Table] = [title, Table(found.HEADER, found.rows())] if found.coefficients else [title]
    if found.curves:
        parts.append(f"\nWhat a column's value adds, compared with the mean over its range or categories. {AT_ONCE}")
    parts += [part for curve in found.curves for part in ("", Table(*curve.table()))]
    parts += [f"\n{text}" for text in (found.remark, found.statement.text()) if text]
    if options.report is not None:
        from ringfence.evidence.report.curves import summary_report

        summary_report(found).write(options.report)
        parts.append(f"report {options.report}")
    return Output({**found.report(), **({} if options.report is None else {"report": str(options.report)})}, *parts)


def predict(
    model: Path = offered(
        REQUIRED, "A model from `ringfence train --out` or `ringfence silo personalise`.", argument=True
    ),
    file: Path = offered(REQUIRED, "A table with the schema's feature columns.", argument=True),
    id: str | None = offered(None, "Copy this column of the table, before the predictions.", metavar="COLUMN"),
    probabilities: bool = offered(False, "Add the probability of every class."),
    interval: float | None = offered(
        None,
        "Add an interval, computed from the model's private RMSE, that covers this share of targets if errors "
        "are Gaussian.",
        metavar="COVERAGE",
    ),
    upper: Path | None = offered(
        None, "A model of a higher quantile than MODEL. Adds the interval between the two.", metavar="MODEL"
    ),
    out: Path | None = offered(
        None, "Write the predictions here: as Parquet if the name ends in .parquet, else as CSV."
    ),
) -> Output:
    """Predict the target for every row of a table.

    Examples:
      ringfence predict model.json new.csv
      ringfence predict model.json new.csv --id patient --probabilities --out predictions.csv
    """
    from ringfence.model.export import csv_text
    from ringfence.model.model import with_ids, write_predictions
    from ringfence.model.personal import PersonalModel, load_any
    from ringfence.sources import read_table

    require_folder(out)
    loaded, other = load_any(model), None if upper is None else load_any(upper)
    for one in (loaded, other):
        if isinstance(one, PersonalModel):
            warn(f"ringfence: {one.notice}")
    table = read_table(file)
    columns = loaded.predict_columns(
        table, source=file.name, probabilities=probabilities, coverage=interval, upper=other
    )
    target, predictions = next(iter(columns.items()))
    if id is not None:
        columns = with_ids(columns, table, id, source=file.name)
    if out is not None:
        write_predictions(out, columns)
    others = {name: values for name, values in columns.items() if name != target}
    if out is not None:
        text = f"Wrote {len(predictions)} predictions to {out}."
    else:  # a line per row, whatever characters a category has
        shown = {visible(name): [visible(str(value)) for value in values] for name, values in columns.items()}
        text = csv_text(shown).removesuffix("\n")
    return Output({"target": target, "predictions": predictions, **({"columns": others} if others else {})}, text)
