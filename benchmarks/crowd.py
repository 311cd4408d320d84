"""How long a round takes of many agents on this machine's loopback interface: python -m benchmarks.crowd [AGENTS]

Real gates, ledgers and doors (a port each, HTTP, tokens), and a real server with its transcript, on this disk. So that
a small machine can hold them, a process serves many agents, each on threads of its own: `PROCESSES` of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.deployment.door import Door
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import load_plan, load_schema
from ringfence.server.conduct import conduct
from ringfence.silo.agent import serve
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.transport.exchange import DirectExchange

AGENTS, PROCESSES, RECORDS, WIDTH, ROUNDS = 200, 4, 100, 10, 5

Serve = Callable[[Path, Callable[[str], None]], None]
"""Serves a folder until the process ends, and calls back with its address once it accepts requests."""


def serve_agent(folder: Path, ready: Callable[[str], None]) -> None:
    """Serve a silo's folder."""
    serve(SiloFolder.open(folder), port=0, ready=ready)


def serve_many(serve_one: Serve, folders: Sequence[str]) -> None:
    """Serve these folders until somebody ends the process."""
    ready = threading.Semaphore(0)
    for folder in folders:
        arguments = (Path(folder), lambda where: ready.release())
        threading.Thread(target=serve_one, args=arguments, daemon=True).start()
    for _ in folders:
        ready.acquire()
    print("all are served", flush=True)
    threading.Event().wait()


@contextmanager
def served(module: str, folders: Sequence[Path]) -> Iterator[list[int]]:
    """Serve the folders with `serve_many` in processes of a module of ours; return the processes."""
    with ExitStack() as running:
        processes = []
        for first in range(min(PROCESSES, len(folders))):
            command = [sys.executable, "-m", module, "serve", *map(str, folders[first::PROCESSES])]
            process = running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            running.callback(process.kill)
            processes.append(process.pid)
            assert process.stdout is not None
            assert process.stdout.readline() == "all are served\n"
        yield processes


def make_folders(folder: Path, agents: int) -> tuple[dict[str, Path], Path]:
    """Set silos up that have approved a plan, and write that plan."""
    names = [f"x{column}" for column in range(WIDTH - 1)]
    number = "type = 'numeric'\nlower = -1.0\nupper = 1.0\n"
    schema = folder / "schema.toml"
    label = "[columns.ill]\ntype = 'categorical'\ncategories = ['no', 'yes']\n"
    schema.write_text("".join(f"[columns.{name}]\n{number}" for name in names) + label)
    members = [Member(f"clinic-{place}", RECORDS, 1.0, 1e-6) for place in range(agents)]
    plan = make_plan(load_schema(schema, "ill"), members, PlanRequest(rounds=ROUNDS, survey=False))
    random, made = np.random.default_rng(0), {}
    for member in members:
        data = folder / f"{member.name}.csv"
        rows = random.uniform(-1, 1, (RECORDS, WIDTH - 1)).round(4).tolist()
        lines = [",".join([*map(repr, row), "yes" if row[0] > 0 else "no"]) for row in rows]
        data.write_text("\n".join([",".join([*names, "ill"]), *lines]) + "\n")
        settings = make_settings(name=member.name, data_file=str(data), schema_file=str(schema), port=0)
        silo = create_folder(folder / member.name, settings, Budget(2.0, 1e-6))
        approve_plan(silo, plan)
        made[member.name] = silo.path
    (folder / "plan.json").write_bytes(plan.content)
    return made, folder / "plan.json"


def processor_seconds(processes: list[int]) -> float:
    """Return what this process and those have taken of processors so far."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def main(agents: int = AGENTS) -> dict[str, Any]:
    """Return the seconds that rounds took."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, ExitStack() as running:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        begun = time.perf_counter()
        made, plan_file = make_folders(folder, agents)
        plan = load_plan(plan_file)
        processes = running.enter_context(served("benchmarks.crowd", list(made.values())))
        prepared = time.perf_counter() - begun
        times, own, all_of_it = [time.perf_counter()], [time.process_time()], [processor_seconds(processes)]

        def watch(_: object) -> None:
            times.append(time.perf_counter())
            own.append(time.process_time())
            all_of_it.append(processor_seconds(processes))

        doors = {name: Door.read(path, patience=0).ask for name, path in made.items()}
        with DirectExchange(doors) as exchange:
            result = conduct(plan, exchange, folder / "run", seconds=60.0, watch=watch)
        assert all(len(outcome.answered) == agents for outcome in result.history)
    return {
        "agents": agents,
        "processes": PROCESSES,
        "seconds to prepare": round(prepared, 1),
        "seconds per round": [round(took, 3) for took in np.diff(times)],
        "processor seconds per round, of server and agents": [round(took, 2) for took in np.diff(all_of_it)],
        "of these, the server's": [round(took, 2) for took in np.diff(own)],
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve_many(serve_agent, sys.argv[2:])
    else:
        print(json.dumps(main(*map(int, sys.argv[1:])), indent=2))
