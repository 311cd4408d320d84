"""`ringfence verify`: what a silo's certificate proves."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate, as `ringfence silo certificate` writes it.")],
    key: Annotated[
        str | None, typer.Option(help="The silo's public key, as you got it from the silo by another way.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check a silo's certificate: hash chain, every charge from the plans, totals and signature."""
    from ringfence.verification import verify_file

    finding = verify_file(file, key=key)
    if json:
        print_json(finding.data())
    else:
        typer.echo(finding.text())
