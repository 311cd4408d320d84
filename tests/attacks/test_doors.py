"""Strangers at the doors of an agent, an operator's page and a shuffler: they cannot keep out those who may come in.

`benchmarks/doors.py` does the same with tens of thousands of connections.
"""

import contextlib
import re
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from ringfence.errors import DoorError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, load_schema, parse_answer
from ringfence.shuffler.store import Store
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.budget import Budget
from ringfence.transport.connections import CONNECTIONS, STRANGERS
from tests.callers import Caller
from tests.certificates import write_certificate
from tests.shuffler import serving as shufflers
from tests.silo.agents import approved, make_silo_folder, request, serving, silo_with
from tests.silo.operator.desk import desk_of

CROWD = 100
"""More than all places together."""

CHURN = 2500
UNFINISHED = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60_000


@dataclass
class Entrance:
    """A service's port and process, and how somebody who may come in asks there."""

    port: int
    pid: int
    ask: Callable[[], int]
    half_a_request: bytes
    """What a stranger can send, and not end, that is read beyond its head if anything is."""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def resident(self) -> float:
        """Return the process's memory in MB."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) / 1024


def entrance_of(caller: Caller, pid: int) -> Entrance:
    return Entrance(caller.port, pid, lambda: caller.send("GET", "/health")[0], UNFINISHED)


@contextlib.contextmanager
def agent_door(folder: Path, *, seed: int = 7) -> Iterator[Entrance]:
    silo_folder = make_silo_folder(folder, seed=seed)
    with serving(silo_folder, "--port", "0") as served:
        yield entrance_of(served.caller(), served.process.pid)


@contextlib.contextmanager
def operator_page(folder: Path) -> Iterator[Entrance]:
    """The one who may come in has entered, and presses the stop button."""
    with desk_of(make_silo_folder(folder, seed=8)) as desk:
        key = desk.key()
        lines = [
            "POST /stop HTTP/1.1", f"Host: 127.0.0.1:{desk.port}", f"Origin: http://127.0.0.1:{desk.port}",
            "Content-Length: 100000", "", "key=",
        ]  # fmt: skip
        half = "\r\n".join(lines).encode()
        yield Entrance(desk.port, desk.process.pid, lambda: desk.post("/stop", {"key": key})[0], half)


@contextlib.contextmanager
def shuffler_service(folder: Path) -> Iterator[Entrance]:
    Store.create(folder / "mixer").close()
    with shufflers.serving(folder / "mixer") as served:
        yield entrance_of(served.caller(), served.process.pid)


@pytest.fixture(scope="module", params=[agent_door, operator_page, shuffler_service])
def entrance(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    with request.param(tmp_path_factory.mktemp("door")) as opened:
        yield opened


def was_dropped(connection: socket.socket) -> bool:
    """Wait until the other side ends the connection; whatever it says before is read."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def test_idle_strangers_do_not_keep_out_who_may_come_in(entrance: Entrance) -> None:
    with contextlib.ExitStack() as held:
        crowd = [held.enter_context(entrance.connect()) for _ in range(CROWD)]
        assert [entrance.ask() for _ in range(5)] == [200] * 5
        assert all(map(was_dropped, crowd[: CROWD - STRANGERS]))


def test_strangers_who_never_end_their_request_do_not_keep_out_who_may_come_in(entrance: Entrance) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(CROWD):
            held.enter_context(entrance.connect()).sendall(entrance.half_a_request)
        assert [entrance.ask() for _ in range(5)] == [200] * 5


def test_strangers_who_come_and_go_leave_nothing_in_memory(entrance: Entrance) -> None:
    """Before, each left its unfinished head there for half a minute: 60 kB, so 150 MB for these."""
    before = entrance.resident()
    for _ in range(CHURN):
        with entrance.connect() as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(UNFINISHED)
    assert entrance.ask() == 200
    assert entrance.resident() < before + 50


def test_those_who_were_let_in_have_a_limit_of_their_own_and_leave_strangers_theirs(tmp_path: Path) -> None:
    with agent_door(tmp_path, seed=9) as entrance, contextlib.ExitStack() as held:
        token = SiloFolder.open(tmp_path / "clinic").token()
        head = f"POST /answer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        inside = [held.enter_context(entrance.connect()) for _ in range(CONNECTIONS)]
        for connection in inside:
            connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: 500\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # it was let in, and its body is waited for
        assert entrance.ask() == 503
        stranger = held.enter_context(entrance.connect())
        stranger.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stranger.recv(100).startswith(b"HTTP/1.1 401 ")
        inside[0].sendall(b"x" * 500)
        assert inside[0].recv(100).startswith(b"HTTP/1.1 400 ")
        assert was_dropped(inside[0])
        assert entrance.ask() == 200


def test_a_handshake_that_never_ends_is_given_up_and_keeps_nobody_out(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    Store.create(tmp_path / "mixer").close()
    with shufflers.serving(tmp_path / "mixer", 3600.0, str(certificate), str(key)) as served:
        place = ("127.0.0.1", urlsplit(served.address).port or 0)
        client = served.client(patience=0.0, certificate=certificate)
        with contextlib.ExitStack() as held:
            crowd = []
            for number in range(CROWD):
                crowd.append(held.enter_context(socket.create_connection(place, timeout=30)))
                crowd[-1].sendall(b"\x16\x03\x01\x02\x00\x01"[: number % 7])  # a handshake begins like this
            with pytest.raises(DoorError, match="has added no plan with this digest"):  # it is heard, at once
                client.batch("0" * 64, 0)
            assert all(map(was_dropped, crowd))
        assert served.output().count("\n") == 1, served.output()


def test_who_never_reads_an_answer_is_dropped(tmp_path: Path) -> None:
    """Over a Unix socket, of which the system buffers less than the answer has."""
    names = [f"n{number}" for number in range(250)]
    listed = ", ".join(f'"{name}"' for name in names)
    columns = [f'columns.{column} = {{type = "categorical", categories = [{listed}]}}' for column in ("what", "ill")]
    rows = [",".join(row) for row in np.random.default_rng(7).choice(names, (40, 2))]
    silo_folder = silo_with(tmp_path, "\n".join(columns), "\n".join(["what,ill", *rows]), Budget(2.0, 1e-6))
    schema = load_schema(tmp_path / "schema.toml", "ill")
    member = Member("clinic", 40, 1.0, 1e-6)
    plan = approved(silo_folder, make_plan(schema, [member], PlanRequest(rounds=2, survey=False)))
    asking = request(plan, 0)
    with serving(silo_folder, "--seconds", "1.5") as served:
        with socket.socket(socket.AF_UNIX) as reader:
            reader.connect(str(silo_folder.socket_path))
            reader.sendall(b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(asking))
            reader.sendall(asking)
            dropped = select.poll()
            dropped.register(reader, 0)  # nothing that could be read is an event, only the connection's end
            assert dropped.poll(60_000)
            got = b""
            with contextlib.suppress(ConnectionResetError):
                while chunk := reader.recv(2**20):
                    got += chunk
        stored = served.door().ask(asking)
        assert isinstance(parse_answer(stored), NoisyUpdate)
        assert 0 < len(got) < len(stored)
