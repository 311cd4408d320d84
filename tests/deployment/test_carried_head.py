"""A courier keeps the latest head that it carried, shows it, and loses nothing by losing it."""

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence.deployment.carried_head import CarriedHead
from ringfence.deployment.door import Door
from ringfence.protocol.head import SignedHead
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RefusalReason, SealedUpdate

PLAN, LEDGER = "ab" * 32, "cd" * 32


def head(number: int, ledger: str = LEDGER) -> SignedHead:
    return SignedHead(ledger=ledger, number=number, hash="0" * 64, signature="1" * 128)


def refusal(carried: SignedHead | None) -> bytes:
    return Refusal(plan=PLAN, round=1, silo="s", reason=RefusalReason.BUDGET, head=carried).to_bytes()


def kept(own_state: Path) -> list[Path]:
    return list((own_state / "ringfence" / "couriers").glob("*"))


@contextmanager
def agent(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A program at a port that gives these answers, and notes what came with each request."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    content = b""
                    while b"\r\n\r\nask" not in content and (chunk := connection.recv(65536)):
                        content += chunk
                    seen.append(content)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

        thread = threading.Thread(target=run)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", seen
        thread.join()


def test_every_kind_of_answer_s_head_is_kept_as_it_was_signed(own_state: Path) -> None:
    answers: list[Answer] = [
        NoisyUpdate(plan=PLAN, round=1, silo='"head":{', vector="AAAAAAAAAAA=", head=head(1)),
        SealedUpdate(plan=PLAN, round=1, silo="s}{", envelope="AAAA", signature="0a" * 64, head=head(2)),
        Refusal(plan=PLAN, round=1, silo="north \u2028", reason=RefusalReason.BUDGET, head=head(3)),
    ]
    for answer in answers:
        door = CarriedHead("unix:/door")
        door.keep(answer.to_bytes())
        assert answer.head is not None
        assert SignedHead.model_validate_json(door.read()) == answer.head
    (file,) = kept(own_state)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_latest_is_kept_and_another_ledger_s_takes_its_place() -> None:
    door = CarriedHead("unix:/door")
    for carried, expected in [(head(5), 5), (head(3), 5), (None, 5), (head(9), 9), (head(2, "ef" * 32), 2)]:
        door.keep(refusal(carried))
        assert json.loads(door.read())["number"] == expected
    assert CarriedHead("unix:/another").read() == ""


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\x00",
        b'{"head":{',
        b'{"head":{}}',
        b'{"head":{"ledger":1,"number":2}}',
        b'{"head":{"ledger":"a","number":"2"}}',
        b'{"head":{"ledger":"a\r\nX: y","number":2}}',
        b'{"head":{"ledger":"\xc3\xa4","number":2}}',
        b'{"head":{"ledger":"' + b"a" * 2000 + b'","number":2}}',
        b'{"head":{"ledger":"a","number":' + b"[" * 900 + b"}}",
    ],
)
def test_what_is_no_head_is_passed_over(own_state: Path, answer: bytes) -> None:
    door = CarriedHead("unix:/door")
    door.keep(answer)
    assert door.read() == ""
    assert kept(own_state) == []


def test_a_door_shows_the_head_with_the_next_request_also_in_another_process_s_door() -> None:
    answers = [refusal(head(4)), refusal(head(6)), refusal(None)]
    with agent(*answers) as (address, seen):
        assert [Door(address).ask(b"ask") for _ in answers] == answers
    lines = [[line for line in content.split(b"\r\n") if line.startswith(b"Ringfence")] for content in seen]
    assert lines == [[], [b"Ringfence-Head: " + head(4).canonical()], [b"Ringfence-Head: " + head(6).canonical()]]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 9, b"x" * 5000, b'{"ledger":"a\\n","number":1}\n'])
def test_a_damaged_or_lost_witness_costs_no_answer(own_state: Path, content: bytes) -> None:
    with agent(refusal(head(4)), refusal(head(2)), refusal(head(2))) as (address, seen):
        Door(address).ask(b"ask")
        (file,) = kept(own_state)
        file.write_bytes(content)
        assert Door(address).ask(b"ask") == refusal(head(2))
        assert json.loads(file.read_bytes())["number"] == 2
        file.unlink()
        assert Door(address).ask(b"ask") == refusal(head(2))
    assert b"Ringfence-Head" not in seen[1] + seen[2]


def test_a_courier_without_a_state_folder_carries_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with agent(refusal(head(4)), refusal(head(5))) as (address, _):
        assert Door(address).ask(b"ask") == refusal(head(4))
        assert Door(address).ask(b"ask") == refusal(head(5))


def test_a_door_at_a_port_is_known_by_its_file_also_when_the_agent_is_back_at_another(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ab" * 32)
    for number, expected in ((4, b""), (5, head(4).canonical())):
        with agent(refusal(head(number))) as (address, seen):
            port = address.rpartition(":")[2]
            (tmp_path / "courier.toml").write_text(f'format = 1\nport = {port}\ntoken_file = "token"\n')
            Door.read(tmp_path).ask(b"ask")
        assert expected in seen[0]
        assert (b"Ringfence-Head" in seen[0]) == bool(expected)


def test_a_name_that_is_no_text_is_no_obstacle() -> None:
    CarriedHead(os.fsdecode(b"unix:/\xff")).keep(refusal(head(1)))
