"""What large inputs cost: a plan for 10,000 silos, and a schema check of a million rows."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import growth
from benchmarks.waiting import Row


def rows() -> Iterator[Row]:
    """Measure whole commands on large inputs."""
    yield Row("`ringfence plan`, 10,000 silos", growth.plan_command(10_000, 2)["seconds"], "CPU s", 15)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        growth.written(name, 10**6)
        check, _ = growth.check_command(name, 10**6, 3)
    ratio, seconds = check["seconds"] / check["pyarrow, seconds"], check["seconds"]
    yield Row("`ringfence schema check`, 10⁶ rows of CSV", ratio, "×", 2, f"{seconds:.2f} CPU s; pyarrow's read is 1")
