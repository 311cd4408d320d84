"""`ringfence model`."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import ModelFile
from ringfence.cli.output import require_folder, say
from ringfence.errors import OutputError

app = typer.Typer(help="Look into a trained model, or take it elsewhere.", no_args_is_help=True)


@app.command()
def export(
    model: ModelFile,
    to: Annotated[str, typer.Option(help="csv: a line per feature, and the intercept; json: one object.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="Write the coefficients here instead of printing them.")] = None,
) -> None:
    """Write plain coefficients in the table's own units, which any other software can use."""
    from ringfence.model import Model

    if to not in ("csv", "json"):
        raise OutputError(f"Coefficients are written as csv or json, not as '{to}'.")
    require_folder(out)
    linear = Model.load(model).linear()
    content = linear.to_csv() if to == "csv" else linear.to_json()
    if out is None:
        say(content, end="")
    else:
        out.write_text(content, encoding="utf-8")


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
