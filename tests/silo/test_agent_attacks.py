"""What a hostile courier, or another program on the machine, can do at the agent's door: nothing."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence.protocol import Answer, Ball, Guarantee, NoisyUpdate, Plan, Refusal, RefusalReason, parse_answer
from ringfence.silo.agent import SMALL_REQUEST, Agent
from ringfence.silo.gate.gate import Gate
from tests.callers import TOKENS, Caller
from tests.hostile_server import forged_request, hostile_bodies, hostile_weights
from tests.silo.agents import Served, approved, make_silo_folder, request, serving
from tests.support import MakePlan, refusal

NOT_A_REQUEST = b'{"error":"This is not a request for a round."}'


@contextmanager
def surviving(folder: Path, *options: str, seed: int = 7) -> Iterator[Served]:
    """Serve a silo that must be there at the end as it was in the beginning, and have complained about nothing."""
    silo_folder = make_silo_folder(folder, epsilon=50.0, seed=seed)
    with serving(silo_folder, "--port", "0", *options) as running:
        yield running
        assert running.process.poll() is None, "the agent did not survive"
        assert running.output().count("\n") == 1, running.output()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with surviving(tmp_path_factory.mktemp("silo")) as running:
        yield running


@pytest.fixture
def caller(served: Served) -> Caller:
    return served.caller()


@pytest.fixture
def plan(served: Served, plan_of: MakePlan) -> Plan:
    return approved(served.silo_folder, plan_of())


def spent(served: Served) -> tuple[Guarantee, ...]:
    with served.silo_folder.ledger() as ledger:
        return ledger.account().spent()


def charged_rounds(served: Served, plan: Plan) -> set[int]:
    with served.silo_folder.ledger() as ledger:
        return set(ledger.account().plans[plan.digest()].rounds)


@pytest.mark.parametrize("shown", TOKENS)
def test_without_the_token_nothing_is_answered(caller: Caller, served: Served, plan: Plan, shown: str) -> None:
    before = spent(served)
    header = shown.format(caller.token)
    for method, path in [("POST", "/answer"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/other")]:
        status, body, _ = caller.send(method, path, request(plan, 0), Authorization=header)
        assert (status, body) == (401, b'{"error":"Show the door\'s token."}')
    assert spent(served) == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "0.0.0.0", "127.0.0.2"])
def test_a_foreign_host_name_is_turned_away(caller: Caller, plan: Plan, host: str) -> None:
    assert caller.post(request(plan, 0), Host=host)[0] == 421
    assert caller.post(request(plan, 0), Host=f"localhost:{caller.port}")[0] == 200


def test_the_port_is_open_to_this_machine_only(caller: Caller, served: Served) -> None:
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    places = {line.split()[1] for line in listening.splitlines()[1:] if line.split()[3] == "0A"}
    assert [place for place in places if place.endswith(f":{caller.port:04X}")] == [f"0100007F:{caller.port:04X}"]


@pytest.mark.parametrize("body", hostile_bodies(), ids=range(len(hostile_bodies())))
def test_what_is_not_a_request_gets_the_same_sentence_whatever_it_is(caller: Caller, body: bytes) -> None:
    assert caller.post(body) == (400, NOT_A_REQUEST)


@pytest.mark.parametrize("fault", hostile_weights(4))
def test_weights_that_do_not_fit_the_plan_are_refused_and_cost_nothing(
    caller: Caller, served: Served, plan_of: MakePlan, fault: str
) -> None:
    plan = approved(served.silo_folder, plan_of(domain=Ball(radius=10.0)))
    before = spent(served)
    status, body = caller.post(forged_request(plan.digest(), 0, hostile_weights(plan.dimension)[fault]))
    assert status == 200
    wrong_length = len(hostile_weights(plan.dimension)[fault]) != plan.dimension
    assert refusal(parse_answer(body)) is (RefusalReason.MALFORMED if wrong_length else RefusalReason.OUTSIDE_DOMAIN)
    assert spent(served) == before


def test_whatever_a_courier_shows_as_a_head_an_answer_comes(caller: Caller, served: Served, plan_of: MakePlan) -> None:
    plan = approved(served.silo_folder, plan_of(rounds=30))

    def ask(round: int, *shown: str) -> Answer:
        body = request(plan, round)
        lines = [f"Ringfence-Head: {content}" for content in shown]
        reply = caller.raw(caller.head(*lines, f"Content-Length: {len(body)}") + body)
        return parse_answer(reply.partition(b"\r\n\r\n")[2])

    own = ask(0).head
    assert own is not None
    written = own.canonical().decode()
    edited = [written[:-1], written.replace('"number":', '"number":9'), written.replace('"format":1', '"format":9')]
    strange = [(text,) for text in ("", "\xff\xfe", "null", "[" * 5000, "{" * 9, *edited, "x" * 9000)]
    for round, shown in enumerate([*strange, (written, "junk"), ("junk", written)], start=1):
        assert isinstance(ask(round, *shown), NoisyUpdate), shown


def test_an_oversized_body_is_refused_while_it_is_read(caller: Caller, plan: Plan) -> None:
    """Whether its length is declared or not, and with no more than the limit in memory."""
    declared = caller.raw(caller.head(f"Content-Length: {10**12}") + b"x" * 1000)
    assert declared.startswith(b"HTTP/1.1 413 ")
    chunk = b"%x\r\n" % 2**16 + b"x" * 2**16 + b"\r\n"
    pieces = SMALL_REQUEST // 2**16
    streamed = caller.raw(caller.head("Transfer-Encoding: chunked") + chunk * (pieces + 1))
    assert streamed.startswith(b"HTTP/1.1 413 ")
    assert caller.post(b"x" * SMALL_REQUEST) == (400, NOT_A_REQUEST)


def test_a_truncated_body_is_no_request_and_costs_nothing(caller: Caller, served: Served, plan: Plan) -> None:
    body = request(plan, 0)
    before = spent(served)
    caller.raw(caller.head(f"Content-Length: {len(body)}") + body[:-5], finish=True)
    assert spent(served) == before
    assert isinstance(parse_answer(caller.post(body)[1]), NoisyUpdate)


def test_a_body_that_comes_drop_by_drop_is_given_up(plan_of: MakePlan, tmp_path: Path) -> None:
    """By an agent of its own, less patient than others: on a slow machine those must not be given up on."""
    with surviving(tmp_path, "--seconds", "1.5", seed=8) as impatient:
        caller = impatient.caller()
        body = request(approved(impatient.silo_folder, plan_of()), 0)
        begun = time.monotonic()
        reply = caller.raw(caller.head(f"Content-Length: {len(body)}") + body[:10])
        assert reply.startswith(b"HTTP/1.1 408 ")
        silent = caller.raw(b"POST /answer HTTP/1.1\r\nHost: loc")
        assert silent == b""
        assert time.monotonic() - begun > 2


def test_while_some_are_slow_others_are_answered(caller: Caller, plan: Plan) -> None:
    slow = [socket.create_connection(("127.0.0.1", caller.port)) for _ in range(10)]
    for connection in slow:
        connection.sendall(caller.head("Content-Length: 500") + b"{")
    status, body = caller.post(request(plan, 0))
    for connection in slow:
        connection.close()
    assert status == 200
    assert isinstance(parse_answer(body), NoisyUpdate)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_not_allowed(caller: Caller, method: str) -> None:
    status, _, headers = caller.send(method, "/answer")
    assert status in (404, 405)
    assert not {name.lower() for name in headers} - {"content-type", "content-length", "connection", "allow"}


@pytest.mark.parametrize(
    "path", ["/", "/answer/", "/answers", "/docs", "/openapi.json", "/../silo.toml", "//answer", "/%2e%2e/x", "*"]
)
def test_there_is_nothing_at_other_paths(caller: Caller, plan: Plan, path: str) -> None:
    status, body, _ = caller.send("POST", path, request(plan, 0))
    assert (status, body) == (404, b'{"error":"There is nothing here."}')


def test_health_is_a_constant(caller: Caller) -> None:
    assert caller.send("GET", "/health")[:2] == (200, b'{"status":"serving"}')


def test_replies_tell_neither_the_time_nor_the_software(caller: Caller, plan: Plan) -> None:
    for body in (request(plan, 0), b"", request(plan, 99)):
        _, _, headers = caller.send("POST", "/answer", body)
        assert {name.lower() for name in headers} == {"content-type", "content-length", "connection"}


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /answer HTTP/9.9\r\n\r\n",
        b"POST /answer HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"POST /answer HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /answer HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=range(7),
)
def test_broken_http_is_not_answered_with_more_than_a_constant(caller: Caller, content: bytes) -> None:
    try:
        reply = caller.raw(content, finish=True)
    except ConnectionResetError:
        return
    assert reply == b"" or int(reply.split()[1]) in (400, 401, 421)
    assert b"Traceback" not in reply


def test_two_requests_in_one_connection_are_one(caller: Caller, served: Served, plan: Plan) -> None:
    """No request is smuggled behind another: the connection ends with the first answer."""
    body = request(plan, 0)
    once = caller.head(f"Content-Length: {len(body)}") + body
    second = request(plan, 1)
    reply = caller.raw(once + caller.head(f"Content-Length: {len(second)}") + second)
    assert reply.count(b"HTTP/1.1") == 1
    assert 1 not in charged_rounds(served, plan)


def test_many_callers_who_leave_before_the_answer_do_no_harm(caller: Caller, served: Served, plan: Plan) -> None:
    body = request(plan, 1)

    def leave() -> None:
        with socket.create_connection(("127.0.0.1", caller.port)) as connection:
            connection.sendall(caller.head(f"Content-Length: {len(body)}") + body)

    with ThreadPoolExecutor(20) as callers:
        for _ in range(20):
            callers.submit(leave)
    answers = {caller.post(body)[1] for _ in range(3)}
    assert len(answers) == 1
    assert not isinstance(parse_answer(answers.pop()), Refusal)


def test_an_agent_is_one_gate_and_no_more() -> None:
    assert {name for name in vars(Agent) if not name.startswith("_")} == set()
    assert {name for name in vars(Gate) if not name.startswith("_")} == {"approve", "check", "end", "answer"}
