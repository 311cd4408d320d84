"""`ringfence model`."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.help import App
from ringfence.cli.options import Ledgers, ModelFile, NewBeginning, SameDataAs, SiloFiles, UnusualBudget
from ringfence.cli.output import AsJson, print_json, print_table, require_folder, say
from ringfence.errors import OutputError

app = App(help="Inspect, summarise or export a trained model.")


@app.command()
def export(
    model: ModelFile,
    to: Annotated[
        str,
        typer.Option(
            help="csv (a line per feature, and the intercept), json (one object), or onnx (a graph that predicts)."
        ),
    ] = "csv",
    out: Annotated[Path | None, typer.Option(help="Write the coefficients here instead of printing them.")] = None,
) -> None:
    """Export coefficients in the table's own units, or an ONNX graph.

    Examples:
      ringfence model export model.json
      ringfence model export model.json --to onnx --out model.onnx
    """
    from ringfence.model import Model

    if to not in ("csv", "json", "onnx"):
        raise OutputError(f"A model is exported as csv, json or onnx, not as '{to}'.")
    if to == "onnx" and out is None:
        raise OutputError("An ONNX graph is binary: name a file with --out.")
    require_folder(out)
    linear = Model.load(model).linear()
    content = linear.to_onnx() if to == "onnx" else (linear.to_csv() if to == "csv" else linear.to_json()).encode()
    if out is None:
        say(content.decode(), end="")
    else:
        _write(out, content)


def _write(out: Path, content: bytes) -> None:
    try:
        out.write_bytes(content)
    except OSError as problem:
        raise OutputError(f"{out} could not be written: {problem.strerror}. Name another file.") from None


@app.command()
def show(model: ModelFile, json: AsJson = False) -> None:
    """List the model's weights of scaled features, largest first.

    Examples:
      ringfence model show model.json
    """
    from ringfence.model import Model

    header = ["feature", "of", "weight"]
    weights = Model.load(model).by_size()
    if json:
        print_json({"weights": [dict(zip(header, row, strict=True)) for row in weights]})
    else:
        print_table(header, [list(row) for row in weights])


@app.command()
def card(
    model: ModelFile,
    out: Annotated[Path | None, typer.Option(help="Write the card here instead of printing it.")] = None,
) -> None:
    """Write a model card in Markdown.

    It covers data, plan, each silo's guarantee, the private evaluation, and what the model is not for.

    Examples:
      ringfence model card model.json --out card.md
    """
    from ringfence.card import model_card
    from ringfence.model import Model

    require_folder(out)
    content = model_card(Model.load(model))
    if out is None:
        say(content, end="")
    else:
        _write(out, content.encode())


@app.command()
def statement(
    model: ModelFile,
    certificate: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A silo's certificate to check the statement against.")
    ] = [],  # noqa: B006
) -> None:
    """Show each silo's guarantee for this model, and verify it.

    Examples:
      ringfence model statement model.json
      ringfence model statement model.json --certificate north.certificate.json
    """
    from ringfence.model import Model
    from ringfence.verification import verify_statement

    found = Model.load(model).statement
    if found is None:
        say(
            "This model has no statement, because whoever made it saw no silo's ledger. Each silo's certificate "
            "(`ringfence silo certificate`) shows what the silo released."
        )
    elif certificate:
        checked = verify_statement(found, certificate)
        say("\n".join([found.text(), "", "Verification", "", *(f"  {line}" for line in checked)]))
    else:
        say(
            f"{found.text()}\n\nNot verified: this is what the model's maker wrote into the file. To verify it, ask "
            "the silos for their certificates (`ringfence silo certificate`) and give each as --certificate."
        )


@app.command()
def summary(
    model: ModelFile,
    files: SiloFiles,
    epsilon: Annotated[
        float, typer.Option(help="Epsilon that the summary costs every silo.", rich_help_panel="Privacy")
    ],
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of every silo's guarantee. Default: 1/n², at most 1e-5.", rich_help_panel="Privacy"),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Confidence level of the intervals.", rich_help_panel="Statistics")
    ] = 0.95,
    by_silo: Annotated[
        bool,
        typer.Option(
            "--by-silo",
            help="Treat silos, not records, as the sample: intervals for silos like these.",
            rich_help_panel="Statistics",
        ),
    ] = False,
    ledgers: Ledgers = None,
    same_data_as: SameDataAs = [],  # noqa: B006
    new_beginning: NewBeginning = "",
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Estimate coefficients with standard errors and p-values.

    The estimates start from the model's weights and are those of the loss without ridge, clipping and early stopping.
    All records of the tables are asked, held-out ones too, and each silo's ledger is charged. For squared and logistic
    losses.

    Examples:
      ringfence model summary model.json north.csv south.csv --epsilon 1
    """
    from ringfence.model import Model
    from ringfence.workflow import AskRequest, summarise_files

    request = AskRequest(files, epsilon, delta, ledgers, same_data_as, new_beginning, unusual_budget)
    found = summarise_files(request, Model.load(model), level=level, by_silo=by_silo)
    if json:
        print_json(found.report())
        return
    draws = "silos" if by_silo else f"{found.statement.plan.unit}s"
    print_table(
        found.HEADER,
        found.rows(),
        title=f"In the table's own units, with {100 * level:.4g}% confidence intervals over {draws}",
    )
    if found.remark:
        say(f"\n{found.remark}")
    say(f"\n{found.statement.text()}")
