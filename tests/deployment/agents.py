"""A federation of real agents: folders, processes, and taps on the wire between a server and their doors."""

import csv
import http.server
import os
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.accounting import accountant
from ringfence.accounting.charges import task_event
from ringfence.deployment.door import Door
from ringfence.errors import DoorError
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, Plan, RoundRequest, load_schema, parse_answer, unpack
from ringfence.protocol.plan.plan import task
from ringfence.server.conduct import replay
from ringfence.server.rounds import RunResult, Session
from ringfence.silo.folder import SiloFolder, SiloSettings
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.operator.setup import create_folder
from tests.nursery import Python
from tests.processes import RINGFENCE

DELTA = 1e-6
SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 100}
columns.dose = {type = "numeric", lower = 0, upper = 10}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""
RECORDS = 60


@dataclass
class Silo:
    """A silo's folder, and its agent if that is running."""

    silo_folder: SiloFolder
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def name(self) -> str:
        return self.silo_folder.name

    @property
    def door(self) -> Door:
        return Door(f"unix:{self.silo_folder.socket_path}", patience=0)

    def start(self, *, as_forked: bool = True) -> None:
        """Start the agent; `wait` until it serves."""
        begin = Python if as_forked else subprocess.Popen
        self.process = begin([*RINGFENCE, "silo", "serve", str(self.silo_folder.path)], stdout=subprocess.PIPE)

    def wait(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert b"is served at" in line, line

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the agent as a loss of power would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def memory(self) -> float:
        """Return the agent's resident memory in MB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))

    def released(self, plan: Plan) -> dict[int, bytes]:
        """Return the answers that stand in the ledger."""
        with Ledger.open(self.silo_folder.ledger_path) as ledger:
            rounds = ledger.account().plans[plan.digest()].rounds
            return {number: ledger.stored(round.answer) for number, round in rounds.items() if round.answer is not None}

    def check_that_ledger_covers(self, plan: Plan, sent: Iterable[bytes]) -> None:
        """Everything that was seen on the wire was charged, and a round has one vector."""
        updates = [answer for content in sent if isinstance(answer := parse_answer(content), NoisyUpdate)]
        vectors = {(update.round, update.vector) for update in updates}
        rounds = {round for round, _ in vectors}
        assert len(vectors) == len(rounds), "a round was answered with two different vectors"
        with Ledger.open(self.silo_folder.ledger_path) as ledger:
            approved = ledger.account().plans[plan.digest()]
        assert rounds <= set(approved.rounds)
        terms = plan.terms(self.name)
        assert terms is not None
        events = [(task_event(plan, terms, task(plan, terms, round, 0)), 1) for round in rounds]
        assert (
            accountant.epsilon(events, DELTA)
            <= accountant.epsilon(approved.charged(), DELTA)
            <= terms.guarantee.epsilon
        )


class Federation:
    """Silos whose agents are processes; with several `rows` of each, their records are patients."""

    def __init__(
        self, folder: Path, names: Sequence[str], budget: float = 100.0, *, seed: int = 3, rows: int = 1
    ) -> None:
        self.folder, self.rows = folder, rows
        schema = folder / "schema.toml"
        schema.write_text(SCHEMA if rows == 1 else 'person = "patient"\n' + SCHEMA)
        self.schema = load_schema(schema, "ill")
        random = np.random.default_rng(seed)
        self.silos = {name: self._silo(name, schema, random, budget) for name in names}

    def _silo(self, name: str, schema: Path, random: np.random.Generator, budget: float) -> Silo:
        data = self.folder / f"{name}.csv"
        with data.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "dose", "ill", "patient"])
            for number in range(RECORDS * self.rows):
                age, dose = random.uniform(0, 100), random.uniform(0, 10)
                rows.writerow([f"{age:.3f}", f"{dose:.3f}", "yes" if age > 10 * dose else "no", number % RECORDS])
        settings = SiloSettings(name=name, data_file=str(data), schema_file=str(schema))
        return Silo(create_folder(self.folder / name, settings, Budget(budget, DELTA), unusual_budget=True))

    def start(self) -> None:
        """Start all agents at once."""
        for silo in self.silos.values():
            silo.start()
        for silo in self.silos.values():
            silo.wait()

    def stop(self) -> None:
        for silo in self.silos.values():
            silo.kill()

    def plan(self, rounds: int, *, approved: bool = True, **wishes: Any) -> Plan:
        """Make a plan that asks all silos, approve it everywhere, and write it down."""
        members = [Member(name, RECORDS, 1.0, DELTA) for name in self.silos]
        plan = make_plan(self.schema, members, PlanRequest(rounds=rounds, **{"survey": False, **wishes}))
        self.write(plan)
        if approved:
            self.approve(plan)
        return plan

    def write(self, plan: Plan) -> None:
        """Write the plan down."""
        (self.folder / f"{plan.run}.json").write_bytes(plan.content)

    def doors(self) -> list[str]:
        """Return the options that name the agents' doors to a server."""
        return [f"--doors={name}=unix:{silo.silo_folder.socket_path}" for name, silo in self.silos.items()]

    def approve(self, plan: Plan) -> None:
        """Approve the plan everywhere."""
        for silo in self.silos.values():
            approve_plan(silo.silo_folder, plan)

    def from_ledgers(self, plan: Plan) -> RunResult:
        """Return what the answers in the silos' own ledgers give, without a server."""
        released = {name: silo.released(plan) for name, silo in self.silos.items()}
        session = Session(plan, np.random.default_rng(0))
        while not session.finished:
            session.receive({name: parse_answer(answers[session.round]) for name, answers in released.items()})
        return session.result()


@dataclass(frozen=True)
class Seen:
    """One request on its way to a door, and where it stands."""

    silo: str
    round: int
    stage: str
    """'asked', 'answered' (the agent has, the server knows nothing yet) or 'delivered'."""


@dataclass
class Wire:
    """Taps between a server and the doors: they note what passes, and do what `acts` says at that stage."""

    federation: Federation
    folder: Path
    acts: dict[Seen, Callable[[], object]] = field(default_factory=dict)
    log: list[Seen] = field(default_factory=list)
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    one_at_a_time: threading.RLock = field(default_factory=threading.RLock)
    """A delivery and its note are one step, so that on a busy machine the server asks for nothing in between."""
    _servers: list[socketserver.BaseServer] = field(default_factory=list)

    def __enter__(self) -> "Wire":
        self.folder.mkdir()
        for silo in self.federation.silos.values():
            self.sent[silo.name] = []
            server = _Tap(str(self.folder / silo.name), _handler(self, silo))
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def note(self, seen: Seen) -> None:
        with self.one_at_a_time:
            self.log.append(seen)
            if seen in self.acts:
                self.acts[seen]()

    def doors(self) -> list[str]:
        return [f"--doors={name}=unix:{self.folder / name}" for name in self.federation.silos]


class _Tap(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A server that was killed leaves broken connections behind."""


def _handler(wire: Wire, silo: Silo) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            round = RoundRequest.from_bytes(content).round
            wire.note(Seen(silo.name, round, "asked"))
            try:
                answer = silo.door.ask(content)
            except DoorError:
                self.send_response(503)
                self.end_headers()
                return
            wire.sent[silo.name].append(answer)
            wire.note(Seen(silo.name, round, "answered"))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with wire.one_at_a_time:
                self.wfile.write(answer)
                self.wfile.flush()
                wire.note(Seen(silo.name, round, "delivered"))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def server(federation: Federation, plan: Plan, run: Path, doors: list[str], *options: str) -> "subprocess.Popen[bytes]":
    """Start `ringfence server run`."""
    file = federation.folder / f"{plan.run}.json"
    command = [*RINGFENCE, "server", "run", str(file), "--folder", str(run), *doors, *options]
    return Python(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ})


def finish(process: "subprocess.Popen[bytes]") -> bytes:
    """Wait for a run that ends well, and return what it printed."""
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output


def failed(process: "subprocess.Popen[bytes]") -> bytes:
    """Wait for a run that ends with an error, and return what it said."""
    output, errors = process.communicate(timeout=240)
    assert (process.returncode, output) == (1, b"")
    return errors


def model_of(run: Path) -> bytes:
    """Return the weights of a run's model, which must be those that its transcript gives."""
    weights = unpack(Model.load(run / "model.json").weights).tobytes()
    assert weights == replay(run).weights.tobytes()
    return weights


def until(happened: Callable[[], bool], seconds: float = 180.0) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
