"""`ringfence model`."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import ModelFile, NewBeginning, UnusualBudget
from ringfence.cli.output import AsJson, print_json, print_table, require_folder, say
from ringfence.cli.training import Ledgers, SameDataAs, SiloFiles
from ringfence.errors import OutputError

app = typer.Typer(help="Look into a trained model, or take it elsewhere.", no_args_is_help=True)


@app.command()
def export(
    model: ModelFile,
    to: Annotated[
        str,
        typer.Option(help="csv: a line per feature, and the intercept; json: one object; onnx: a graph that predicts."),
    ] = "csv",
    out: Annotated[Path | None, typer.Option(help="Write the coefficients here instead of printing them.")] = None,
) -> None:
    """Write plain coefficients in the table's own units, or an ONNX graph, which any other software can use."""
    from ringfence.model import Model

    if to not in ("csv", "json", "onnx"):
        raise OutputError(f"Coefficients are written as csv, json or onnx, not as '{to}'.")
    if to == "onnx" and out is None:
        raise OutputError("An ONNX graph is not for reading: name a file with --out.")
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
    """Print the model's weights, of scaled features, the largest first."""
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
    """Write a model card in Markdown: data, plan, each silo's guarantee, private evaluation, and what it is not for."""
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
    """Say what each silo's records were promised for this model, and whether that is verified."""
    from ringfence.model import Model
    from ringfence.verification import verify_statement

    found = Model.load(model).statement
    if found is None:
        say(
            "This model's maker saw no silo's ledger, so the model carries no statement. Each silo's own certificate "
            "(`ringfence silo certificate`) says what it released."
        )
    elif certificate:
        checked = verify_statement(found, certificate)
        say("\n".join([found.text(), "", "What is verified", "", *(f"  {line}" for line in checked)]))
    else:
        say(
            f"{found.text()}\n\nNot verified: this is what the model's maker wrote into the file. To check it, ask "
            "the silos for their certificates (`ringfence silo certificate`), and name each with --certificate."
        )


@app.command()
def summary(
    model: ModelFile,
    files: SiloFiles,
    epsilon: Annotated[float, typer.Option(help="What the summary may cost every silo.")],
    delta: Annotated[float | None, typer.Option(help="Every silo's delta; by default 1/n², at most 1e-5.")] = None,
    level: Annotated[float, typer.Option(help="How often the intervals are to hold.")] = 0.95,
    by_silo: Annotated[
        bool, typer.Option("--by-silo", help="Take silos for the draws, not records: intervals for silos like these.")
    ] = False,
    ledgers: Ledgers = None,
    same_data_as: SameDataAs = [],  # noqa: B006
    new_beginning: NewBeginning = "",
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Estimate every coefficient with its standard error, interval and p-value; each silo's ledger is charged.

    The model's weights are where it begins: the estimates are of the loss without ridge, clip and early stop. All
    records of the files are asked, held-out ones too. Squared and logistic losses.
    """
    from ringfence.model import Model
    from ringfence.workflow import AskRequest, summarise_files

    request = AskRequest(files, epsilon, delta, ledgers, same_data_as, new_beginning, unusual_budget)
    found = summarise_files(request, Model.load(model), level=level, by_silo=by_silo)
    if json:
        print_json(found.report())
        return
    draws = "silos" if by_silo else f"{found.statement.plan.unit}s"
    print_table(found.HEADER, found.rows(), title=f"In the table's own units; intervals of {level:.4g}, by {draws}")
    say(f"\n{found.statement.text()}")
