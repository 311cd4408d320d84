"""The head that a courier shows at an agent's door, in a header that anybody with the token may fill."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.protocol.messages import NoisyUpdate, parse_answer
from ringfence.protocol.plan import Plan
from tests.silo.agents import Served, approved, make_silo_folder, request, serving
from tests.support import MakePlan


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(make_silo_folder(tmp_path, epsilon=50.0), "--port", "0") as running:
        yield running


@pytest.fixture
def plan(served: Served, plan_of: MakePlan) -> Plan:
    return approved(served.silo_folder, plan_of(rounds=30))


def test_whatever_stands_in_the_header_an_answer_comes_and_nothing_is_said_of_it(served: Served, plan: Plan) -> None:
    def ask(round: int, *shown: bytes) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", int(served.door().address.rpartition(":")[2]), timeout=60)
        try:
            connection.putrequest("POST", "/answer")
            connection.putheader("Authorization", f"Bearer {served.silo_folder.token()}")
            for content in shown:
                connection.putheader("Ringfence-Head", content)
            body = request(plan, round)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return connection.getresponse().read()
        finally:
            connection.close()

    own = parse_answer(ask(0)).head
    assert own is not None
    written = own.canonical()
    strange = [
        (b"",),
        (b"\xff\xfe",),
        (b"null",),
        (b"[" * 5000,),
        (b"{" * 9,),
        (written[:-1],),
        (written.replace(b'"number":', b'"number":9'),),
        (written.replace(b'"format":1', b'"format":9'),),
        (b"x" * 9000,),
        (written, b"junk"),
        (b"junk", written),
    ]
    for round, shown in enumerate(strange, start=1):
        answer = parse_answer(ask(round, *shown))
        assert isinstance(answer, NoisyUpdate), shown
    assert served.output().count("\n") == 1, served.output()
