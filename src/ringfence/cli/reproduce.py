"""`ringfence reproduce`: the paper's experiments, re-run honestly."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, progress


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="mnist, insurance, obesity, algorithms or shuffle; of the audit, attacks or privacy-truth."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the table, the figures and the page; resumes what is there.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data sets; else RINGFENCE_DATA, cache, download.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal: everything, but small.")] = False,
    json: AsJson = False,
) -> None:
    """Run an experiment of the paper at the true epsilon and write its page. Needs the research extra."""
    from ringfence.errors import DatasetError, PlanError

    if experiment in ("attacks", "privacy-truth"):
        _audit_page(experiment, out, quick=quick, json=json)
        return
    try:
        from ringfence.research.experiments.reproduce import reproduce as run
        from ringfence.research.page import write_single_page
    except ImportError as missing:
        raise PlanError(
            f"Reproducing needs '{missing.name}', which is not installed: pip install \"ringfence[research]\"."
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
            if any(out.glob("cells*.jsonl")):
                typer.echo(f"ringfence: finished cells are in {out}; the same command goes on with them.", err=True)
            raise
    report = write_single_page(page)
    if json:
        print_json(
            {"experiment": experiment, "page": str(page), "report": str(report), "cells": str(out / "cells.csv")}
        )
    else:
        typer.echo(f"Wrote {page} with its figures, {report} as one file, and every cell to {out / 'cells.csv'}.")


def _audit_page(name: str, out: Path, *, quick: bool, json: bool) -> None:
    from ringfence.errors import PlanError

    try:
        if name == "attacks":
            from ringfence.research.audit.attack_page import reproduce_attacks as run
        else:
            from ringfence.research.audit.truth import reproduce_truth as run
        from ringfence.research.page import write_single_page
    except ImportError as missing:
        raise PlanError(
            f"This page needs '{missing.name}', which is not installed: pip install \"ringfence[research]\"."
        ) from None
    with progress() as bar:
        task = bar.add_task(name)
        page = run(out, quick=quick, watch=lambda done, total: bar.update(task, completed=done, total=total))
    report = write_single_page(page)
    if json:
        print_json({"experiment": name, "page": str(page), "report": str(report)})
    else:
        typer.echo(f"Wrote {page}, and {report} as one file.")
