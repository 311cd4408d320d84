"""The command line as its users meet it: arguments, files in a folder, standard output and error."""

import csv
import functools
import io
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import typer.main

from ringfence.cli import main

SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 100}
columns.dose = {type = "numeric", lower = 0, upper = 10}
columns.ward = {type = "categorical", categories = ["a", "b", "c"]}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
columns.cost = {type = "numeric", lower = 0, upper = 100}
"""

_commands = functools.cache(typer.main.get_command)
"""The tree of commands, which is the same at every start; to build it takes longer than most commands."""


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def ringfence(*arguments: object, status: int = 0) -> Finished:
    """Run the command from its entry point to its exit status, which must be the given one."""
    with ExitStack() as changed:
        changed.enter_context(patch.object(typer.main, "get_command", _commands))
        changed.enter_context(patch.object(sys, "argv", ["ringfence", *map(str, arguments)]))
        stdout = changed.enter_context(redirect_stdout(io.StringIO()))
        stderr = changed.enter_context(redirect_stderr(io.StringIO()))
        ended = changed.enter_context(pytest.raises(SystemExit))
        main.run()
    done = Finished(int(ended.value.code or 0), stdout.getvalue(), stderr.getvalue())
    assert done.returncode == status, done
    return done


def ringfence_json(*arguments: object) -> dict[str, Any]:
    """Run the command with --json and return what it printed."""
    content: dict[str, Any] = json.loads(ringfence(*arguments, "--json").stdout)
    return content


def refuses(says: str, *arguments: object) -> Finished:
    """Run a command that must be refused: by one line on standard error that says why, and status 1.

    A quote may stand before it.
    """
    done = ringfence(*arguments, status=1)
    *before, reason = done.stderr.splitlines()
    assert says in reason
    assert reason.startswith("ringfence: ")
    assert not before or before[-1].endswith("Nothing has been charged yet.")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done


@functools.cache
def _contents(records: int) -> dict[str, str]:
    random = np.random.default_rng(5)
    return {name: _content(random, records) for name in ("north", "south", "west")}


def _content(random: np.random.Generator, records: int) -> str:
    file = io.StringIO(newline="")
    rows = csv.writer(file)
    rows.writerow(["age", "dose", "ward", "ill", "cost"])
    for _ in range(records):
        age, dose, ward = random.uniform(0, 100), random.uniform(0, 10), random.choice(["a", "b", "c"])
        score = age / 100 - dose / 10 + (0.5 if ward == "b" else 0.0)
        cost = float(np.clip(40 + 40 * score, 0, 100))
        rows.writerow([f"{age:.3f}", f"{dose:.3f}", ward, "yes" if score > 0.2 else "no", f"{cost:.3f}"])
    return file.getvalue()


class Federation:
    """Three CSV files and a schema in one folder."""

    def __init__(self, folder: Path, records: int = 300) -> None:
        self.folder = folder
        self.schema = folder / "schema.toml"
        self.schema.write_text(SCHEMA)
        self.files = [self.write(name, content) for name, content in _contents(records).items()]

    def write(self, name: str, content: str) -> Path:
        path = self.folder / f"{name}.csv"
        path.write_text(content, newline="")
        return path

    def train(self, *changes: object, target: str = "ill", epsilon: str = "2", exact: bool = True) -> list[object]:
        """Train, and measure without noise too, since these records are nobody's."""
        exactly = ["--exact"] if exact and not {"--held-out", "--test"} & set(changes) else []
        return [
            "train", *self.files, "--schema", self.schema, *aimed(target, changes), "--epsilon", epsilon,
            "--delta", "1e-6", *meant(epsilon), *exactly, *changes,
        ]  # fmt: skip

    def model(self, *changes: object, target: str = "ill", epsilon: str = "2") -> Path:
        """Train, and return the model's file."""
        out = self.folder / f"model-{target}.json"
        ringfence(*self.train(*changes, "--out", out, "--no-report", target=target, epsilon=epsilon, exact=False))
        return out

    def statistics(self, *changes: object, epsilon: str = "2") -> list[object]:
        return [
            "statistics", *self.files, "--schema", self.schema, "--epsilon", epsilon, "--delta", "1e-6",
            *meant(epsilon), *changes,
        ]  # fmt: skip

    def plan(self, *changes: object, target: str = "ill") -> list[object]:
        return [
            "plan", "--schema", self.schema, *aimed(target, changes), "--silo", "north=1000", "--silo",
            "south=3000", "--epsilon", "1", *changes,
        ]  # fmt: skip

    def silo_init(self, folder: Path, *changes: object, name: str = "north") -> list[object]:
        """Make the folder of one of the silos."""
        return [
            "silo", "init", folder, "--name", name, "--data", self.folder / f"{name}.csv", "--schema",
            self.schema, "--epsilon", "3", "--delta", "1e-6", *changes,
        ]  # fmt: skip

    def column(self, name: str) -> list[str]:
        """All silos' cells of one column."""
        cells: list[str] = []
        for path in self.files:
            with path.open(newline="") as file:
                cells += [row[name] for row in csv.DictReader(file)]
        return cells

    def ledgers(self) -> dict[str, bytes]:
        """Everything that stands in the silos' ledgers, byte for byte."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.ledger*"))}


class SiloCommands:
    """`ringfence silo COMMAND FOLDER ...` for the folder of one silo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, command: str, *arguments: object, status: int = 0) -> Finished:
        return ringfence("silo", command, self.folder, *arguments, status=status)

    def json(self, command: str, *arguments: object) -> dict[str, Any]:
        return ringfence_json("silo", command, self.folder, *arguments)

    def refuses(self, says: str, command: str, *arguments: object) -> Finished:
        return refuses(says, "silo", command, self.folder, *arguments)


def aimed(target: str, changes: tuple[object, ...]) -> list[str]:
    """Name the target, unless the changes do."""
    return [] if "--target" in changes else ["--target", target]


def meant(epsilon: str) -> list[str]:
    """Many tests are not about privacy, and want little noise."""
    return ["--unusual-budget"] if float(epsilon) > 20 else []


def epsilon(costs: list[dict[str, Any]], against: str | None = None) -> float:
    """The epsilon that counts, or the one against an observer."""
    (first, *_) = [cost["epsilon"] for cost in costs if against in (None, cost["against"])]
    return float(first)


def spent(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """What stands in a ledger's summary as used, against each observer."""
    return [
        {"epsilon": cost["used"], "delta": summary["delta"], "against": cost["against"]} for cost in summary["costs"]
    ]


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """Three silos with 300 records each."""
    return Federation(tmp_path)


@pytest.fixture
def check_ledgers(federation: Federation) -> Callable[[dict[str, Any]], None]:
    """Compare what a report says of every silo with what stands in that silo's ledger."""

    def check(report: dict[str, Any]) -> None:
        assert set(report["silos"]) == {file.stem for file in federation.files}
        for name, stated in report["silos"].items():
            shown = ringfence_json("ledger", federation.folder / f"{name}.ledger")
            plan = next(plan for plan in shown["plans"] if plan["plan"] == report["plan"])
            assert plan["state"] == "finished"
            assert plan["charged"] == plan["released"] == stated["rounds"]
            assert plan["costs"] == stated["used"]
            assert [{**cost["guarantee"], "against": cost["against"]} for cost in shown["costs"]] == stated["all_runs"]

    return check
