"""`ringfence example`: invented records to try everything on."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json


def example(
    folder: Annotated[Path, typer.Argument(help="Where to write; a new folder, or one without these files.")] = Path(),
    json: AsJson = False,
) -> None:
    """Write invented records of three hospitals, and their schema, to try everything on."""
    from ringfence.example import write_example

    files = [str(file) for file in write_example(folder)]
    if json:
        print_json({"files": files})
        return
    typer.echo(f"wrote {', '.join(files)}")
