"""A silo's folder on the disk and its agent in a process of its own, as tests need them."""

import csv
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ringfence.deployment.door import Door
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, RoundRequest, parse_answer
from ringfence.protocol.plan import Plan
from ringfence.silo.budget import Budget
from ringfence.silo.decisions import approve_plan
from ringfence.silo.folder import SiloFolder, make_settings
from tests.processes import start_and_wait

ROOT = Path(__file__).parents[2]

SCHEMA = "".join(f'[columns.{name}]\ntype = "numeric"\nlower = -1.0\nupper = 1.0\n' for name in "abc") + (
    '[columns.ill]\ntype = "categorical"\ncategories = ["no", "yes"]\n'
)


def make_silo_folder(
    folder: Path, *, port: int | None = None, epsilon: float = 2.0, records: int = 40, seed: int = 7
) -> SiloFolder:
    """Set up silo 'clinic' with forty records of the tests' schema; another seed makes other records."""
    data, schema = folder / "records.csv", folder / "schema.toml"
    schema.write_text(SCHEMA)
    random = np.random.default_rng(seed)
    with data.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "c", "ill"])
        for cells in random.uniform(-1, 1, (records, 3)):
            rows.writerow([*(f"{cell:.9f}" for cell in cells), "yes" if cells[0] + cells[1] > 0 else "no"])
    settings = make_settings(name="clinic", data_file=str(data), schema_file=str(schema), port=port)
    return SiloFolder.create(folder / "clinic", settings, Budget(epsilon, 1e-6), unusual_budget=epsilon > 20)


def approved(silo_folder: SiloFolder, plan: Plan) -> Plan:
    """Approve the plan, as its operator does."""
    approve_plan(silo_folder, plan)
    return plan


def request(plan: Plan, round: int, weights: FloatArray | float = 0.1) -> bytes:
    """Return the bytes that ask for a round."""
    return RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension) + weights).to_bytes()


class Served:
    """An agent's process, and what it printed."""

    def __init__(self, silo_folder: SiloFolder, *options: str) -> None:
        self.silo_folder = silo_folder
        command = [sys.executable, "-m", "tests.silo.crashing_agent", str(silo_folder.path), *options]
        self.printed = silo_folder.path.parent / f"printed-{time.monotonic_ns()}"
        self.process = start_and_wait(command, self.printed, cwd=ROOT)

    def door(self, patience: float = 5.0) -> Door:
        return Door.read(self.silo_folder.path, patience=patience)

    def ask(self, plan: Plan, round: int, weights: FloatArray | float = 0.1) -> Answer:
        """Ask through the door."""
        return parse_answer(self.door().ask(request(plan, round, weights)))

    def output(self) -> str:
        return self.printed.read_text()

    def stop(self) -> int:
        """Tell it to end, and return its exit status."""
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def serving(silo_folder: SiloFolder, *options: str) -> Iterator[Served]:
    """Serve the folder in another process."""
    served = Served(silo_folder, *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()
