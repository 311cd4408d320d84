"""What a deployed round costs, each time beside something known in the same run: python -m benchmarks.deployment"""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.core import gate, seconds
from ringfence.deployment.door import Door
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, Plan, RoundRequest, load_schema, parse_answer
from ringfence.server.conduct import conduct
from ringfence.silo.folder import SiloFolder, SiloSettings
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.operator.setup import create_folder
from ringfence.transport.exchange import DirectExchange

NAMES = ("north", "south", "west")
ROUNDS = 100
COURIERS = 8

ECHO = """
import http.server, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass

class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

with Server(sys.argv[1], Handler) as server:
    print("is served at", sys.argv[1], flush=True)
    server.serve_forever()
"""


def silo_folders(folder: Path, records: int, features: int) -> tuple[dict[str, SiloFolder], Plan, Plan]:
    """Set up three silos that have approved two plans of the same shape."""
    columns = [f"x{i}" for i in range(features - 1)]  # and the intercept
    schema = folder / "schema.toml"
    numeric = 'type = "numeric"\nlower = -1\nupper = 1\n'
    schema.write_text(
        "".join(f"[columns.{name}]\n{numeric}" for name in columns)
        + '[columns.y]\ntype = "categorical"\ncategories = ["a", "b"]\n'
    )
    random = np.random.default_rng(0)
    made = {}
    for name in NAMES:
        data = folder / f"{name}.csv"
        with data.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*columns, "y"])
            cells = random.uniform(-1, 1, (records, features - 1)).round(4).tolist()
            rows.writerows([*row, random.choice(["a", "b"])] for row in cells)
        settings = SiloSettings(name=name, data_file=str(data), schema_file=str(schema))
        made[name] = create_folder(folder / name, settings, Budget(10.0, 1e-6))
    loaded = load_schema(schema, "y")
    members = [Member(name, records, 1.0, 1e-6) for name in NAMES]
    plans = [make_plan(loaded, members, PlanRequest(rounds=ROUNDS, survey=False)) for _ in range(2)]
    for silo_folder in made.values():
        for plan in plans:
            approve_plan(silo_folder, plan)
    return made, plans[0], plans[1]


@contextlib.contextmanager
def serving(commands: list[list[str]]) -> Iterator[list[int]]:
    """Run servers until they are not needed; each says so when it is ready."""
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    try:
        for process in processes:
            assert process.stdout is not None
            assert b"is served at" in process.stdout.readline()
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def rounds_of(exchange: DirectExchange, requests: Iterator[bytes], repeats: int) -> float:
    """Return the median time of a round, all three silos answering."""

    def one() -> None:
        arrived: list[str] = []
        exchange(next(requests), NAMES, lambda name, _: arrived.append(name), 30.0)
        assert sorted(arrived) == sorted(NAMES)

    return seconds(one, repeats)


def deployed(plan: Plan, agents: Mapping[str, Door], echoes: Mapping[str, Door], run: Path) -> dict[str, float]:
    """Time a conducted round (request, three gates, transcript) beside three doors that send the request back."""
    start = RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension)).to_bytes()
    with DirectExchange({name: door.ask for name, door in echoes.items()}) as exchange:
        echo = rounds_of(exchange, iter(lambda: start + os.urandom(4), b""), ROUNDS)
    times = [time.perf_counter()]
    with DirectExchange({name: door.ask for name, door in agents.items()}) as exchange:
        trained = conduct(plan, exchange, run, seconds=30.0, watch=lambda _: times.append(time.perf_counter()))
    assert all(len(outcome.answered) == len(NAMES) for outcome in trained.history)
    conducted = float(np.median(np.diff(times)))
    began = time.perf_counter()
    conduct(plan, DirectExchange({}), run)
    return {
        "three agents, seconds per round": conducted,
        "three echo doors, seconds per round": echo,
        "ratio": conducted / echo,
        "added milliseconds": 1000 * (conducted - echo),
        f"replay of the {ROUNDS} rounds, seconds": time.perf_counter() - began,
    }


def throughput(plan: Plan, door: Door) -> dict[str, float]:
    """Let eight couriers ask one agent at once: the same new round, and then a stored one."""

    def at_once(ask: Callable[[], None]) -> None:
        threads = [threading.Thread(target=ask) for _ in range(COURIERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def new(round: int) -> None:
        request = RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)).to_bytes()
        answers: list[bytes] = []
        at_once(lambda: answers.append(door.ask(request)))
        assert len(answers) == COURIERS
        assert len(set(answers)) == 1
        assert isinstance(parse_answer(answers[0]), NoisyUpdate)

    began = time.perf_counter()
    for round in range(40):
        new(round)
    fresh = time.perf_counter() - began
    stored = RoundRequest.at(plan.digest(), 39, np.zeros(plan.dimension)).to_bytes()

    def again() -> None:
        for _ in range(50):
            door.ask(stored)

    began = time.perf_counter()
    at_once(again)
    repeated = time.perf_counter() - began
    return {
        "rounds per second, each asked for by 8 couriers": 40 / fresh,
        "answers per second, new rounds": 40 * COURIERS / fresh,
        "answers per second, a stored round": 50 * COURIERS / repeated,
    }


def main(records: int = 10_000, features: int = 100) -> dict[str, object]:
    """Measure everything in one folder on this disk."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name  # the same records at every run
        made, first, second = silo_folders(folder, records, features)
        commands = [
            [sys.executable, "-m", "ringfence", "silo", "serve", str(silo_folder.path)] for silo_folder in made.values()
        ]
        echoes = [[sys.executable, "-c", ECHO, str(folder / f"{name}.echo")] for name in NAMES]
        with serving(commands + echoes) as pids:
            agents = {name: Door.read(silo_folder.path, patience=5) for name, silo_folder in made.items()}
            doors = {name: Door(f"unix:{folder / name}.echo", patience=5) for name in NAMES}
            rounds = deployed(first, agents, doors, folder / "run")
            many = throughput(second, agents["north"])
            status = Path(f"/proc/{pids[0]}/status").read_text()
            memory = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        alone = gate(records, features)
    shape = f"n={records} d={features}"
    return {
        f"direct doors, {shape}": rounds,
        f"one agent, {shape}": {**many, "memory at most, MB": memory},
        f"gate alone, {shape}, seconds": alone,
    }


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
