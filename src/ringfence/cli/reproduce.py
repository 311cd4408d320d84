"""`ringfence reproduce`: the paper's experiments, re-run honestly."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_result, progress, warn
from ringfence.errors import DatasetError, PlanError

_COHORT = "survival"
"""The page about a cohort of patients."""


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="mnist, insurance, obesity, algorithms, shuffle, league, relatives, personal, features or survival; "
            "of the audit, attacks or privacy-truth; or looking."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the table, the figures and the page; resumes what is there.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data sets; else RINGFENCE_DATA, cache, download.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal: everything, but small.")] = False,
    effort: Annotated[
        float, typer.Option(help="Of privacy-truth: how many runs are played, as a multiple of the audit's.")
    ] = 1.0,
    json: AsJson = False,
) -> None:
    """Run an experiment of the paper at the true epsilon and write its page. Needs the research extra."""
    one_page = experiment in ("attacks", "privacy-truth", "looking", _COHORT)
    run: Callable[..., Path]
    try:
        if experiment == "attacks":
            from ringfence.research.audit.attack_page import reproduce_attacks as run
        elif experiment == "privacy-truth":
            from ringfence.research.audit.truth import reproduce_truth

            run = partial(reproduce_truth, effort=effort)
        elif experiment == "looking":
            from ringfence.research.experiments.looking import reproduce_looking as run
        elif experiment == _COHORT:
            from ringfence.research.experiments.survival import reproduce_survival

            run = partial(reproduce_survival, data_dir=data)
        else:
            from ringfence.research.experiments.reproduce import reproduce as run_experiment

            run = partial(run_experiment, experiment, data_dir=data)
        from ringfence.research.page import write_single_page
    except ImportError as missing:
        raise PlanError(
            f"{'This page' if one_page else 'Reproducing'} needs '{missing.name}', which is not installed: "
            'pip install "ringfence[research]".'
        ) from None
    if effort != 1 and experiment != "privacy-truth":
        raise PlanError(f"The page '{experiment}' has one size: --effort is for privacy-truth. Leave it out.")
    if data is not None and not data.is_dir() and not one_page:
        raise DatasetError(f"There is no data folder {data}: correct --data, or leave it out for RINGFENCE_DATA.")
    with progress() as bar:
        task = bar.add_task(experiment if one_page else "cells")
        try:
            page = run(out, quick=quick, watch=lambda done, total: bar.update(task, completed=done, total=total))
        except KeyboardInterrupt:
            if any(out.glob("cells*.jsonl")):
                warn(f"ringfence: finished cells are in {out}; the same command goes on with them.")
            raise
    report = write_single_page(page)
    written = {"experiment": experiment, "page": str(page), "report": str(report)}
    if one_page:
        print_result(f"Wrote {page}, and {report} as one file.", written, json=json)
    else:
        cells = out / "cells.csv"
        text = f"Wrote {page} with its figures, {report} as one file, and every cell to {cells}."
        print_result(text, {**written, "cells": str(cells)}, json=json)
