"""What commands cost on a small federation: `ringfence train` on three silos."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.waiting import Row, cost, least

RINGFENCE = Path(".venv/bin/ringfence").absolute()
TRAIN = ("train", "north.csv", "south.csv", "west.csv", "--schema", "schema.toml", "--target", "ill", "--epsilon", "1")


def rows() -> Iterator[Row]:
    """Measure commands on the example's three silos."""
    yield Row("`ringfence train`, 3 silos, 1,600 rows", least(train), "CPU s", 1.2)


def train() -> float:
    """Return the processor seconds of a training, in folders that remember nothing."""
    with tempfile.TemporaryDirectory() as name:
        cost([RINGFENCE, "example"], tries=1, folder=Path(name))
        command = [RINGFENCE, *TRAIN, "--out", "model.json"]
        return cost(command, tries=1, folder=Path(name), XDG_STATE_HOME=name).processor
