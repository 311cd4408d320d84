"""What commands cost on a small federation: `ringfence train`, and a newcomer's `make demo`."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.waiting import Row, cost, least

RINGFENCE = Path(sys.executable).with_name("ringfence")
TRAIN = ("train", "north.csv", "south.csv", "west.csv", "--schema", "schema.toml", "--target", "ill", "--epsilon", "1")
CORE = "numpy, pydantic, typer, sqlite3, cryptography.hazmat.primitives.asymmetric.ed25519"
FOR_TRAINING = f"{CORE}, scipy.special, scipy.optimize, rich.progress"


def rows() -> Iterator[Row]:
    """Measure commands on the example's three silos, and the demo."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # our modules stay compiled, as those of packages are
    bare = cost([sys.executable, "-c", f"import {FOR_TRAINING}"]).processor
    beside = f"importing NumPy, SciPy and the other packages alone: {bare:.2f}"
    yield Row("`ringfence train`, 3 silos, 1,600 rows", least(train), "CPU s", 1.2, beside)
    python = cost([sys.executable, "-c", "pass"]).processor
    imported = cost([sys.executable, "-c", "import ringfence"]).processor
    yield Row("`import ringfence`", imported, "CPU s", 0.1, f"Python alone: {python:.2f}")
    wall, processor = demo()
    yield Row("`make demo` in a fresh clone", wall, "s", 45, f"processor time: {processor:.0f}")


def train() -> float:
    """Return the processor seconds of a training, in folders that remember nothing."""
    with tempfile.TemporaryDirectory() as name:
        cost([RINGFENCE, "example"], tries=1, folder=Path(name))
        command = [RINGFENCE, *TRAIN, "--out", "model.json"]
        return cost(command, tries=1, folder=Path(name), XDG_STATE_HOME=name).processor


def demo() -> tuple[float, float]:
    """Return the wall-clock and processor seconds of `make demo` in a new clone, which installs what it needs."""
    with tempfile.TemporaryDirectory() as name:
        cost(["git", "clone", "--quiet", Path.cwd(), name], tries=1)
        taken = cost(["make", "demo"], tries=1, folder=Path(name), XDG_STATE_HOME=name)
        return taken.wall, taken.processor
