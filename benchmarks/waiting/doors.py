"""What deployed rounds take over direct doors, without an engine: three silos to their model, and rounds of a crowd.

Bare doors are what both stand beside: the same requests, carried in the same way to the same HTTP service, which syncs
two transactions of the same database, as an agent must, and answers with the request.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import median

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks import crowd, doors
from benchmarks.waiting import Row, cost
from benchmarks.waiting.commands import CORE, RINGFENCE
from ringfence.cli.first_steps import SIZES, write_example
from ringfence.deployment.door import Door
from ringfence.errors import RingfenceError
from ringfence.planning.propose import propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol import RoundRequest, load_schema
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.storage.database import Database
from ringfence.storage.stored_file import Kind
from ringfence.transport import serving
from ringfence.transport.exchange import DirectExchange

AGENTS, TRIES = 50, 3
NUMBERS = 10
"""As many as a request of the crowd carries."""

FOR_AGENT = f"{CORE}, scipy, uvicorn, starlette.routing"
TELL_MEMORY = "import re; print(re.search(r'VmRSS:\\s+(\\d+) kB', open('/proc/self/status').read())[1])"


def rows() -> Iterator[Row]:
    """Measure a whole run of three silos, what an agent of it holds, and a round of many."""
    whole, rounds, memory = min(run_of_three() for _ in range(TRIES))
    yield Row(
        "`server run` to the model, 3 silos, 16 rounds, direct doors",
        whole,
        "s",
        2.0,
        f"{rounds:.2f} s of it in rounds; {16 * least_bare(len(SIZES)):.2f} s at bare doors",
    )
    told = subprocess.check_output([sys.executable, "-c", f"import {FOR_AGENT}; {TELL_MEMORY}"], text=True)
    beside = f"Python with the packages that it uses: {int(told) / 1024:.0f} MB"
    yield Row("an agent's memory after this run", memory, "MB", 90, beside)
    found = (crowd.main(AGENTS)["seconds per round"] for _ in range(TRIES))
    took = min(median(seconds) for seconds in found)
    yield Row(f"a round of {AGENTS} agents on loopback", took, "s", 0.15, f"{least_bare(AGENTS):.2f} s at bare doors")


def run_of_three() -> tuple[float, float, float]:
    """Return the seconds of a `server run` of three agents, how many of them its rounds took, and an agent's MB."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, ExitStack() as running:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        write_example(folder)
        plan = propose_for(PlanRequest(epsilon=1.0), load_schema(folder / "schema.toml", "ill"), SIZES).plan
        (folder / "plan.json").write_bytes(plan.content)
        command = [RINGFENCE, "server", "run", folder / "plan.json", "--folder", folder / "run"]
        agents: list[int] = []
        for silo in SIZES:
            data = {"data_file": str(folder / f"{silo}.csv"), "schema_file": str(folder / "schema.toml")}
            made = create_folder(folder / silo, make_settings(name=silo, port=0, **data), Budget(2.0, 1e-5))
            approve_plan(made, plan)
            agents.append(running.enter_context(doors.served("silo", "serve", made.path))[0])
            command += ["--doors", f"{silo}={made.path}"]
        whole = cost(command, tries=1).wall
        lines = (folder / "run" / "transcript.jsonl").read_bytes().splitlines()
        begun, ended = (datetime.fromisoformat(json.loads(lines[at])["entry"]["time"]) for at in (0, -1))
        return whole, (ended - begun).total_seconds(), max(map(doors.resident, agents))


def least_bare(count: int) -> float:
    """Return the seconds of a round of so many bare doors."""
    return min(bare_round(count) for _ in range(TRIES))


def bare_round(count: int, rounds: int = 16) -> float:
    """Return the median seconds of a round in which bare doors are asked."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        os.environ["XDG_STATE_HOME"] = name
        folders = [Path(name) / f"{number}" for number in range(count)]
        for folder in folders:
            folder.mkdir()
        with crowd.served("benchmarks.waiting.doors", folders):
            asked = {folder.name: Door.read(folder, patience=0).ask for folder in folders}
            with DirectExchange(asked) as exchange:
                return median(_seconds(exchange, list(asked), round) for round in range(rounds))


def _seconds(exchange: DirectExchange, names: Sequence[str], round: int) -> float:
    request = RoundRequest.at("0" * 64, round, np.zeros(NUMBERS)).to_bytes()
    answered: list[str] = []
    begun = time.perf_counter()
    exchange(request, names, lambda name, _: answered.append(name), 60.0)
    took = time.perf_counter() - begun
    if len(answered) != len(names):
        raise RuntimeError("A bare door did not answer.")
    return took


def serve_bare(folder: Path, ready: Callable[[str], None]) -> None:
    """Serve a bare door, and write into the folder where it is."""
    table = "CREATE TABLE kept (content BLOB NOT NULL) STRICT;"
    with Database(folder / "kept", Kind("file", RingfenceError), tables=table) as database:

        def keep(content: bytes) -> None:
            for _ in range(2):
                with database.transaction():
                    database.execute("INSERT INTO kept VALUES (?)", (content,))

        async def answer(request: Request) -> Response:
            content = await request.body()
            await run_in_threadpool(keep, content)
            return serving.json_reply(200, content)

        service = serving.Service({}, lambda scope: None, Route("/answer", answer, methods=["POST"]))
        listening = serving.open_port("127.0.0.1", 0, "door", RingfenceError)
        (folder / "token").write_text("")
        port = listening.getsockname()[1]
        (folder / "courier.toml").write_text(f'format = 1\nport = {port}\ntoken_file = "token"\n')
        serving.serve_application(service, listening, lambda: ready(""))


if __name__ == "__main__":
    crowd.serve_many(serve_bare, sys.argv[2:])
