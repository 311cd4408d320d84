"""A silo's folder on the disk and its agent in a process of its own, as tests need them."""

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from ringfence.deployment.door import Door
from ringfence.protocol import Answer, FloatArray, Plan, RoundRequest, parse_answer
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.operator.setup import create_folder, make_settings
from tests.callers import Caller
from tests.processes import start_and_wait

ROOT = Path(__file__).parents[2]

SCHEMA = "".join(f'[columns.{name}]\ntype = "numeric"\nlower = -1.0\nupper = 1.0\n' for name in "abc") + (
    '[columns.ill]\ntype = "categorical"\ncategories = ["no", "yes"]\n'
)


def silo_with(folder: Path, schema: str, table: str, budget: Budget, **settings: str | int | None) -> SiloFolder:
    """Set up silo 'clinic' with a table; its files are in the folder, and its own folder is below."""
    (folder / "schema.toml").write_text(schema)
    (folder / "records.csv").write_text(table)
    files = {"data_file": str(folder / "records.csv"), "schema_file": str(folder / "schema.toml")}
    made = make_settings(**{"name": "clinic", **files, **settings})
    return create_folder(folder / "clinic", made, budget, unusual_budget=budget.epsilon > 20)


def make_silo_folder(
    folder: Path, *, epsilon: float = 2.0, records: int = 40, seed: int = 7, **settings: str | int | None
) -> SiloFolder:
    """Set up silo 'clinic' with forty records of the tests' schema; another seed makes other records."""
    rows = [
        ",".join([*(f"{cell:.9f}" for cell in cells), "yes" if cells[0] + cells[1] > 0 else "no"])
        for cells in np.random.default_rng(seed).uniform(-1, 1, (records, 3))
    ]
    return silo_with(folder, SCHEMA, "\n".join(["a,b,c,ill", *rows, ""]), Budget(epsilon, 1e-6), **settings)


def edit_ledger(path: Path, *statements: str) -> None:
    """Change a ledger as somebody with an editor would, around its own safeguards."""
    removed = [f"DROP TRIGGER IF EXISTS {trigger}" for trigger in ("entries_stay", "entries_rest")]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join([*removed, *statements]))


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

    def caller(self) -> Caller:
        """Return a caller of the agent's port."""
        return Caller(int(self.door().address.rpartition(":")[2]), self.silo_folder.token(), "/answer")

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
