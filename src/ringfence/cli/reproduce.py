"""`ringfence reproduce`: the paper's experiments, each at its true epsilon."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ringfence.cli.output import Output, warn
from ringfence.errors import DatasetError, PlanError
from ringfence.federation.progress import progress
from ringfence.planning.options import REQUIRED, offered


def reproduce(
    experiment: str = offered(
        REQUIRED,
        "mnist, insurance, obesity, algorithms, shuffle, league, relatives, personal, features, survival, "
        "looking, or, about the audit, attacks or privacy-truth.",
        argument=True,
    ),
    out: Path = offered(REQUIRED, "Folder for the table, the figures and the page. An earlier run is resumed."),
    data: Path | None = offered(None, "Folder of the data sets. Default: RINGFENCE_DATA, the cache, or a download."),
    quick: bool = offered(False, "Rehearse: run everything at a small size."),
    effort: float = offered(1.0, "For privacy-truth: number of runs, as a multiple of the audit's."),
) -> Output:
    """Run an experiment of the paper at the true epsilon.

    It writes a page with table and figures. It needs the research extra: pip install "ringfence[research]".

    Examples:
      ringfence reproduce mnist --out mnist --quick
    """
    one_page = experiment in ("attacks", "privacy-truth", "looking", "survival")
    run: Callable[..., Path]
    try:
        if experiment == "attacks":
            from ringfence.research.audit.attack_page import reproduce_attacks as run
        elif experiment == "privacy-truth":
            from ringfence.research.audit.truth import reproduce_truth

            run = partial(reproduce_truth, effort=effort)
        elif experiment == "looking":
            from ringfence.research.experiments.looking import reproduce_looking as run
        elif experiment == "survival":
            from ringfence.research.experiments.survival import reproduce_survival

            run = partial(reproduce_survival, data_dir=data)
        else:
            from ringfence.research.experiments.reproduce import reproduce as run_experiment

            run = partial(run_experiment, experiment, data_dir=data)
        from ringfence.research.page import write_single_page
    except ImportError as missing:
        raise PlanError(
            f"{'This page' if one_page else 'This experiment'} needs '{missing.name}', which is not installed: "
            'pip install "ringfence[research]".'
        ) from None
    if effort != 1 and experiment != "privacy-truth":
        raise PlanError(f"--effort applies to privacy-truth only, not to '{experiment}': remove it.")
    if data is not None and not data.is_dir() and not one_page:
        raise DatasetError(f"There is no folder {data}: correct --data, or remove it to use RINGFENCE_DATA.")
    with progress() as bar:
        task = bar.add_task(experiment if one_page else "cells")
        try:
            page = run(out, quick=quick, watch=lambda done, total: bar.update(task, completed=done, total=total))
        except KeyboardInterrupt:
            if any(out.glob("cells*.jsonl")):
                warn(f"ringfence: interrupted. Finished cells are kept in {out}; repeat the command to resume.")
            raise
    report = write_single_page(page)
    written = {"experiment": experiment, "page": str(page), "report": str(report)}
    if one_page:
        return Output(written, f"Wrote {page}, and the same as a single file: {report}.")
    cells = out / "cells.csv"
    text = f"Wrote {page} with its figures, the same as a single file ({report}), and all cells to {cells}."
    return Output({**written, "cells": str(cells)}, text)
