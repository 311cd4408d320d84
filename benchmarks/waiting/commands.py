"""What commands cost on a small federation: `ringfence train`, an agent's memory, and a newcomer's `make demo`."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.deployment import serving, silo_folders
from benchmarks.doors import resident
from benchmarks.waiting import Row, cost, least
from ringfence.deployment.door import Door
from ringfence.protocol import NoisyUpdate, RoundRequest, parse_answer

RINGFENCE = Path(sys.executable).with_name("ringfence")
TRAIN = ("train", "north.csv", "south.csv", "west.csv", "--schema", "schema.toml", "--target", "ill", "--epsilon", "1")
CORE = "numpy, pydantic, typer, sqlite3, cryptography.hazmat.primitives.asymmetric.ed25519"
FOR_TRAINING = f"{CORE}, scipy.special, scipy.optimize, rich.progress"
FOR_AGENT = f"{CORE}, scipy, uvicorn, starlette.routing"
TELL_MEMORY = """
import re
from pathlib import Path
print(int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def rows() -> Iterator[Row]:
    """Measure commands on the example's three silos, an agent of one with 1,000 records, and the demo."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # our modules stay compiled, as those of packages are
    bare = cost([sys.executable, "-c", f"import {FOR_TRAINING}"]).processor
    beside = f"importing NumPy, SciPy and the other packages alone: {bare:.2f}"
    yield Row("`ringfence train`, 3 silos, 1,600 rows", least(train), "CPU s", 1.2, beside)
    python = cost([sys.executable, "-c", "pass"]).processor
    imported = cost([sys.executable, "-c", "import ringfence"]).processor
    yield Row("`import ringfence`", imported, "CPU s", 0.1, f"Python alone: {python:.2f}")
    told = subprocess.run(
        [sys.executable, "-c", f"import {FOR_AGENT}{TELL_MEMORY}"], check=True, capture_output=True, text=True
    )
    beside = f"Python with the packages that it uses: {float(told.stdout):.0f}"
    yield Row("an agent's memory after a round, 1,000 rows", agent(), "MB", 90, beside)
    wall, processor = demo()
    yield Row("`make demo` in a fresh clone", wall, "s", 45, f"processor time: {processor:.0f}")


def train() -> float:
    """Return the processor seconds of a training, in folders that remember nothing."""
    with tempfile.TemporaryDirectory() as name:
        cost([RINGFENCE, "example"], tries=1, folder=Path(name))
        command = [RINGFENCE, *TRAIN, "--out", "model.json"]
        return cost(command, tries=1, folder=Path(name), XDG_STATE_HOME=name).processor


def agent() -> float:
    """Return the memory in MB of an agent that has answered a round."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        made, plan, _ = silo_folders(Path(name), records=1000, features=6)
        north = made["north"].path
        with serving([[sys.executable, "-m", "ringfence", "silo", "serve", str(north)]]) as (process,):
            request = RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension))
            answer = parse_answer(Door.read(north, patience=5).ask(request.to_bytes()))
            assert isinstance(answer, NoisyUpdate)
            return resident(process)


def demo() -> tuple[float, float]:
    """Return the wall-clock and processor seconds of `make demo` in a new clone, which installs what it needs."""
    with tempfile.TemporaryDirectory() as name:
        cost(["git", "clone", "--quiet", Path.cwd(), name], tries=1)
        taken = cost(["make", "demo"], tries=1, folder=Path(name), XDG_STATE_HOME=name)
        return taken.wall, taken.processor
