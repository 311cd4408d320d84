"""How cost grows with records, features, columns and silos.

    python -m benchmarks.scale [--out FOLDER] [--only SECTION ...]

Writes `scale.md`, its figure, and the numbers behind both (`scale.json`). Contestants take turns and the fastest turn
of each counts, so that other work on the machine weighs on both alike; where one thread works, processor time is
measured, on which other work weighs least. What is about memory runs in a process of its own. It takes most of an hour
on two busy cores; `--only` renews some sections and keeps the others, and the page says when each was measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import crowd, growth, reading, scale_page
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Logistic, NoisyUpdate, Plan, RoundRequest, Schema, load_plan, parse_schema
from ringfence.protocol.schema.columns.base import Reading
from ringfence.rehearsal.quote import rehearse
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.limits import MEGABYTE, largest_round
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.queries.gradient import clipped_total
from ringfence.silo.records import exact_sums
from ringfence.silo.records.marks import RowMarks
from ringfence.silo.records.reading import TableRows
from ringfence.silo.records.records import DataSet, Records
from ringfence.silo.records.storage import PRECISIONS, GrowingArray, Keeping

WIDTH = 30
RECORDS = (10**4, 10**5, 10**6, 10**7)
WIDTHS = (10, 30, 100, 1000, 10_000, 40_000)
NUMBERS = 4 * 10**7
SILOS = (10, 100, 1000, 10_000)
SIMULATED = (10, 1000, 10_000, 100_000)
AGENTS = (3, 20, 200)
READ = {200_000: 5, 2_000_000: 2}
"""Rows of tables, and how often each is read."""
TURNS = 5

Row = dict[str, Any]


def fastest(contestants: dict[str, Callable[[], object]], clock: Callable[[], float]) -> dict[str, float]:
    """Let contestants take turns, and return the seconds of each one's fastest."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(TURNS):
        for name, contestant in contestants.items():
            begun = clock()
            contestant()
            best[name] = min(best[name], clock() - begun)
    return best


def rounds(precision: str, records: int, width: int) -> Row:
    """Time a round's exact sum of clipped gradients beside the bare products with the same array."""
    random = np.random.default_rng(0)
    features, targets = random.random((records, width), dtype=np.float32), random.choice([-1.0, 1.0], records)
    own = Records(None, features, targets, keeping=Keeping(PRECISIONS[precision]))  # type: ignore[arg-type]
    del features
    kept, weights, chosen = own.features, random.normal(size=(width, 1)) / width, np.ones(records)
    column, row = weights[:, 0].astype(kept.dtype), np.ones(records, kept.dtype)
    add_up = partial(_gradients, weights, 0.3 * width**0.5)
    threads = exact_sums.sum_threads()
    took = fastest(
        {"bare": lambda: (kept @ column, row @ kept), "round": lambda: own.total(add_up, chosen, 1)},
        time.process_time if threads == 1 else time.perf_counter,
    )
    return {"precision": precision, "threads": threads, "records": records, "features": width, **took}


def _gradients(weights: Any, clip: float, records: Records, chosen: Any) -> Any:
    return clipped_total(Logistic(), clip, weights, records, chosen, records)


def schema_of(width: int) -> Schema:
    """A schema of that many features, the intercept among them."""
    number = {"type": "numeric", "lower": -1, "upper": 1}
    columns = {**{f"x{i}": number for i in range(width - 1)}, "y": {"type": "categorical", "categories": ["a", "b"]}}
    return parse_schema({"columns": columns}, target="y")


def plan_of(silos: int, records: int, width: int, **asked: Any) -> Plan:
    """A plan of two rounds, unless something else is asked for."""
    members = [Member(f"silo-{place}", records, 1.0, 1e-8) for place in range(silos)]
    return make_plan(schema_of(width), members, PlanRequest(**(asked or {"rounds": 2, "survey": False})))


class Watched:
    """The most that this process has of memory, and of memory that no file holds, in MB."""

    def __init__(self) -> None:
        self.most: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("VmRSS", "RssAnon"):
                    self.most[name] = max(self.most.get(name, 0.0), int(value.split()[0]) / 1000)

    def end(self) -> dict[str, float]:
        self._ended.set()
        self._thread.join()
        return self.most


def large_silo(records: int, width: int, kept_in: str) -> Row:
    """Let a gate answer a round from a large table in single precision, and tell what the process needs."""
    watched, random, schema = Watched(), np.random.default_rng(0), schema_of(width)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        keeping = Keeping(PRECISIONS["single"], Path(name) if kept_in == "files" else None)
        cells = {column: Reading(_kept(keeping, random.uniform(-1, 1, records)), None) for column in schema.features}
        cells["y"] = Reading(_kept(keeping, random.integers(2, size=records, dtype=np.int8)), None)
        plan = plan_of(3, records, width)
        data = DataSet(schema, TableRows(cells, _Unmarked(records), None), keeping)
        with Ledger.create(Path(name) / "silo-0.ledger", silo="silo-0", budget=Budget(9.0, 1e-8)) as ledger:
            gate = Gate(data, ledger, bytes(32))
            gate.approve(plan)
            first = gate.answer(RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension)))
            begun = time.perf_counter()
            second = gate.answer(RoundRequest.at(plan.digest(), 1, np.zeros(plan.dimension)))
            took = time.perf_counter() - begun
        assert isinstance(first, NoisyUpdate)
        assert isinstance(second, NoisyUpdate)
    return {
        "records": records,
        "features": width,
        "kept in": kept_in,
        "seconds per round": took,
        "MB, all": watched.end()["VmRSS"],
        "MB, in no file": watched.most["RssAnon"],
        "MB, a round's estimate": largest_round(plan, plan.silos[0]).memory / MEGABYTE,
    }


def _kept(keeping: Keeping, values: Any) -> Any:
    column = GrowingArray(keeping)
    column.add(values)
    return column.array()


class _Unmarked(RowMarks):
    """Marks of rows that nobody read."""

    def __init__(self, rows: int) -> None:
        super().__init__(np.zeros((0, 2), np.uint64))
        self._rows = rows

    def __len__(self) -> int:
        return self._rows


def planned(silos: int) -> Row:
    """Make a plan, rehearse it for its quote, and write and read it."""
    rehearse(plan_of(3, 1000, WIDTH, survey=None))  # one-time work of the process
    found: Row = {"silos": silos}
    begun = time.process_time()

    def took(what: str) -> None:
        nonlocal begun
        found[what], begun = time.process_time() - begun, time.process_time()

    plan = plan_of(silos, 1000, WIDTH, survey=None)
    took("seconds")
    rehearse(plan)
    took("quote")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "plan.json"
        file.write_bytes(plan.content)
        load_plan(file)
    took("file")
    return found


def checked(rows: int, tries: int) -> list[Row]:
    """Check a table of that many rows against its schema."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        apart("written", name, rows)
        return growth.check_command(name, rows, tries)


def simulated(silos: int) -> Row:
    """Simulate a plan of two rounds, of silos of twenty records each, and tell what the process needs."""
    from ringfence.simulation import engine

    watched, random, plan = Watched(), np.random.default_rng(0), plan_of(silos, 20, WIDTH)
    rows = [(random.uniform(-1, 1, (20, WIDTH)), random.choice([-1.0, 1.0], 20)) for _ in range(silos)]
    data = engine.federation(rows, [terms.weight for terms in plan.silos])
    rules, (streams, runs) = engine.Rules.of(plan), engine.from_plans([plan], [0])
    np.asarray(engine.simulate(rules, data, streams, runs))  # compiles
    begun = time.process_time()
    np.asarray(engine.simulate(rules, data, streams, runs))
    return {"silos": silos, "seconds per round": (time.process_time() - begun) / 2, "MB": watched.end()["VmRSS"]}


IN_OWN_PROCESS: dict[str, Callable[..., Row]] = {
    "large_silo": large_silo, "simulated": simulated, "rounds": rounds, "planned": planned, "written": growth.written,
}  # fmt: skip


def apart(name: str, *arguments: object, threads: int = 1) -> Row:
    """Measure in a process of its own, with so many threads."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    command = [sys.executable, "-m", "benchmarks.scale", "--one", json.dumps([name, *arguments])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, **limits})
    result: Row = json.loads(done.stdout)
    print(name, result, file=sys.stderr, flush=True)
    return result


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


SHAPES = dict.fromkeys([(count, WIDTH) for count in RECORDS] + [(NUMBERS // width, width) for width in WIDTHS])
SECTIONS: dict[str, Callable[[], list[Any]]] = {
    "plans": lambda: [apart("planned", silos) for silos in SILOS],
    "plan commands": lambda: [growth.plan_command(*each) for each in growth.SILOS.items()],
    "statistics": lambda: [growth.statistics_command(*each) for each in growth.COLUMNS.items()],
    "schema checks": lambda: [row for each in growth.ROWS.items() for row in checked(*each)],
    "rounds": lambda: [apart("rounds", kept, *shape) for kept in PRECISIONS for shape in SHAPES],
    "threaded": lambda: [apart("rounds", kept, 10**7, WIDTH, threads=cores()) for kept in PRECISIONS],
    "large silo": lambda: [apart("large_silo", 10**7, WIDTH, kept, threads=cores()) for kept in ("memory", "files")],
    "simulated": lambda: [apart("simulated", silos) for silos in SIMULATED],
    "agents": lambda: [crowd.main(agents) for agents in AGENTS],
    "reading": lambda: [row for rows, turns in READ.items() for row in reading.measure(rows, WIDTH, turns)],
}


def code() -> str:
    """Return the title of the last commit, with a note if files have changed since."""
    said = [
        subprocess.run(["git", *command], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        for command in (("log", "-1", "--format=%s"), ("status", "--porcelain", "src"))
    ]
    return said[0] + (", with changes" if said[1] else "")


def main() -> None:
    """Measure, and write the page; or measure one thing, for another process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    only = "sections to renew; without a name, the page alone"
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS), help=only)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, *arguments = json.loads(given.one)
        print(json.dumps(IN_OWN_PROCESS[name](*arguments)))
        return
    file = given.out / "scale.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"measured": {}}
    for name in given.only:
        when, title = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), code()
        found[name] = SECTIONS[name]()
        found["measured"][name] = {"when": when, "code": title, "cores": cores(), "load": os.getloadavg()[0]}
        file.write_text(json.dumps(found, indent=1) + "\n")
    scale_page.write(found, given.out)


if __name__ == "__main__":
    main()
