"""The agent's door and the shuffler's service, called with any bytes: every reply is a constant or of the protocol."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Refusal, Schema, parse_answer
from ringfence.shuffler import service
from ringfence.shuffler.shuffler import Shuffler, ShufflerRefusal
from ringfence.shuffler.store import Store
from ringfence.silo import agent
from tests.callers import Caller
from tests.fuzz.hostile import damaged, rewritten
from tests.generated import examples
from tests.shuffler import serving as shufflers
from tests.shuffler.depositors import depositors
from tests.silo import agents

STATUSES = {200, 202, 400, 401, 404, 405, 408, 413, 421, 422, 503}


@dataclass
class Peer:
    """A service in another process, and a request that it takes."""

    caller: Caller
    body: bytes
    constants: set[str]
    printed: Path

    def request(self, body: bytes) -> bytes:
        """Return a whole HTTP request."""
        return self.caller.head(f"Content-Length: {len(body)}", "Connection: close") + body

    def send(self, content: bytes, *, whole: bool) -> bytes:
        """Send bytes as they are, and return all that comes back until the service closes.

        A whole request is answered without another byte from us. For the rest of what is not, a service may wait: so
        if nothing comes for a moment, it is told that nothing more will. No test relies on how long that is.
        """
        reply = b""
        with socket.create_connection(("127.0.0.1", self.caller.port), timeout=60 if whole else 0.2) as connection:
            try:
                connection.sendall(content)
                while chunk := self._receive(connection):
                    reply += chunk
            except (ConnectionResetError, BrokenPipeError):  # it closes before it has read everything
                pass
        return reply.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _receive(self, connection: socket.socket) -> bytes:
        try:
            return connection.recv(65536)
        except TimeoutError:
            connection.settimeout(60)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(65536)

    def check(self, reply: bytes) -> None:
        """Nothing comes back but nothing, an error of HTTP itself, a constant, or a message of the protocol."""
        if not reply:
            return
        head, _, body = reply.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        assert status in STATUSES, head
        if body in (b"", b"Invalid HTTP request received."):
            return
        document = json.loads(body)
        if "error" in document:
            assert document["error"] in self.constants
        elif "kind" in document:
            assert isinstance(parse_answer(body), Refusal)
        else:
            assert document in ({"status": "serving"}, {"receipt": "stored"}, {"receipt": "already-there"})


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, schema: Schema) -> Iterator[Peer]:
    silo_folder = agents.make_silo_folder(tmp_path_factory.mktemp("silo"))
    plan = make_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(rounds=3, survey=False))
    with agents.serving(silo_folder, "--port", "0") as served:
        yield Peer(
            served.caller(),
            agents.request(plan, 0),  # which nobody has approved: whatever is asked, no round is answered
            set(agent._SENTENCES.values()),
            served.printed,
        )
        assert served.process.poll() is None, "the agent did not survive"


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("shuffler") / "folder"
    with Shuffler(Store.create(folder)) as made:
        silos = depositors(made.public_key)
        made.add(silos.plan)
    with shufflers.serving(folder) as served:
        yield Peer(
            served.caller(),
            silos.update(silos.names[0]),
            {*service._SENTENCES.values(), *(reason.explanation for reason in ShufflerRefusal)},
            served.printed,
        )
        assert served.process.poll() is None, "the shuffler did not survive"


@pytest.fixture(params=["door", "shuffler"])
def peer(request: pytest.FixtureRequest) -> Peer:
    made: Peer = request.getfixturevalue(request.param)
    return made


def test_the_request_that_is_changed_below_is_taken_as_it_is(peer: Peer) -> None:
    reply = peer.send(peer.request(peer.body), whole=True)
    assert reply.startswith(b"HTTP/1.1 200 ")
    peer.check(reply)


@examples(80)
@given(data=st.data())
def test_a_changed_body_gets_a_constant_or_a_refusal(data: st.DataObject, peer: Peer) -> None:
    changed = data.draw(damaged(peer.body) | rewritten(peer.body))
    peer.check(peer.send(peer.request(changed), whole=True))


@examples(80)
@given(data=st.data())
def test_changed_http_gets_a_constant_or_nothing(data: st.DataObject, peer: Peer) -> None:
    whole = peer.request(peer.body)
    head = data.draw(damaged(whole[: whole.index(b"\r\n\r\n") + 4]))
    peer.check(peer.send(head + peer.body, whole=False))


@examples(40)
@given(st.text(max_size=80), st.text(max_size=30))
def test_any_path_gets_a_constant(peer: Peer, plan: str, round: str) -> None:
    for path in (f"/batch/{quote(plan)}/{quote(round)}", f"/{quote(plan)}?{quote(round)}"):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {peer.caller.token}\r\n\r\n"
        reply = peer.send(head.encode(), whole=True)
        assert reply
        peer.check(reply)


@pytest.mark.parametrize(
    "lines",
    [
        [f"Content-Length: {'9' * 5000}"],
        ["Content-Length: -1"],
        ["Content-Length: 1e3"],
        ["Content-Length: ١"],
        ["Transfer-Encoding: chunked"],
        ["X: " + "y" * 100_000],
        ["Expect: 100-continue"],
        ["Authorization: Bearer x"],
    ],
    ids=range(8),
)
def test_a_strange_header_gets_a_constant_or_nothing(peer: Peer, lines: list[str]) -> None:
    head = peer.caller.head(*lines)
    peer.check(peer.send(head + b"ffffffffffffffff\r\n" + peer.body, whole=False))


def test_after_all_that_nothing_was_printed_but_where_it_is_served(peer: Peer) -> None:
    """Neither a traceback nor a word of what came in: what a caller can write, it could fill a disk with."""
    assert peer.printed.read_text().count("\n") == 1, peer.printed.read_text()
