"""`ringfence reproduce`: the paper's experiments, re-run honestly."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, progress


def reproduce(
    experiment: Annotated[str, typer.Argument(help="mnist, insurance, obesity, algorithms or shuffle.")],
    out: Annotated[Path, typer.Option(help="Folder for the table, the figures and the page; resumes what is there.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data sets; else RINGFENCE_DATA, cache, download.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal: everything, but small.")] = False,
    json: AsJson = False,
) -> None:
    """Run an experiment of the paper at the true epsilon and write its page. Needs the simulation and report extras."""
    from ringfence.errors import DatasetError, PlanError

    try:
        from ringfence.experiments.reproduce import reproduce as run
    except ImportError as missing:
        raise PlanError(
            f"Reproducing needs '{missing.name}', which is not installed: pip install \"ringfence[simulation,report]\"."
        ) from None

    if data is not None and not data.is_dir():
        raise DatasetError(f"There is no data folder {data}: correct --data, or leave it out for RINGFENCE_DATA.")
    with progress() as bar:
        task = bar.add_task("cells")
        try:
            page = run(
                experiment,
                out,
                data_dir=data,
                quick=quick,
                watch=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except KeyboardInterrupt:
            typer.echo(f"ringfence: finished cells are kept in {out}; the same command goes on with them.", err=True)
            raise
    if json:
        print_json({"experiment": experiment, "page": str(page), "cells": str(out / "cells.csv")})
    else:
        typer.echo(f"Wrote {page} with its figures, and every cell to {out / 'cells.csv'}.")
