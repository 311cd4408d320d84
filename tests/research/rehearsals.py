"""The public data sets, where they are, and a rehearsal of an experiment."""

import os
from pathlib import Path

import pytest

from ringfence.research.experiments.reproduce import reproduce

DATA = Path(os.environ.get("RINGFENCE_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the data sets are not here: RINGFENCE_DATA does not name their folder"
)


def rehearse(name: str, out: Path, *figures: str, data_dir: Path | None = None) -> str:
    """Return the page of a quick run, which has its command, figures and cells, and which a second run leaves alone."""
    page = reproduce(name, out, data_dir=data_dir, quick=True).read_text()
    assert f"ringfence reproduce {name} --out {out.name} --quick" in page
    expected = {f"{figure}.{kind}" for figure in figures for kind in ("png", "svg")} | {"cells.csv", "index.md"}
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert expected <= {path.name for path in before}
    reproduce(name, out, data_dir=data_dir, quick=True)
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    return page


def cells(out: Path) -> int:
    """Return how many cells a rehearsal wrote."""
    return len((out / "cells.csv").read_text().splitlines()) - 1
