"""The courier's client: it finds the door, waits for the agent, and shows the latest head that it carried."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence.deployment.door import CarriedHead, Door
from ringfence.errors import DoorError
from ringfence.protocol import Answer, NoisyUpdate, Refusal, RefusalReason, SealedUpdate, SignedHead


@contextmanager
def peer(*scripts: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A program at a port that sends one of the given replies to each caller, in order, and notes their requests."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            for script in scripts:
                connection, _ = listening.accept()
                with connection:
                    content = b""
                    while b"\r\n\r\nask" not in content and (chunk := connection.recv(65536)):
                        content += chunk
                    seen.append(content)
                    connection.sendall(script)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", seen
        thread.join()


def reply(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), size, body)


def test_an_answer_comes_back_byte_for_byte() -> None:
    with peer(reply(b"\x00\xffanswer")) as (address, _):
        assert Door(address, "token").ask(b"ask") == b"\x00\xffanswer"


@pytest.mark.parametrize(
    "broken",
    [b"", b"HTTP/1.1 200 OK\r\nConte", reply(b"half", length=100), b"garbage\r\n\r\n", reply(b"", "503 Busy")],
    ids=["closed", "cut in the head", "cut in the body", "not HTTP", "busy"],
)
def test_an_agent_that_goes_away_in_the_middle_is_asked_again(broken: bytes) -> None:
    with peer(broken, broken, reply(b"whole")) as (address, _):
        assert Door(address).ask(b"ask") == b"whole"


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        ("400 X", b'{"error":"This is not a request for a round."}', r"status 400.*not a request for a round"),
        ("413 X", b'{"error":"Too\\nlong."}', r"Too\?long"),
        ("202 X", b"{}", "may not match"),
        ("500 X", b"<html>", "may not match"),
    ],
)
def test_a_refusal_of_the_request_itself_is_raised_at_once_in_the_agent_s_words(
    status: str, body: bytes, says: str
) -> None:
    with peer(reply(body, status)) as (address, _), pytest.raises(DoorError, match=says):
        Door(address).ask(b"ask")


def test_an_agent_that_is_not_there_is_an_error_of_one_sentence_after_the_patience(tmp_path: Path) -> None:
    for address in (f"unix:{tmp_path / 'door.sock'}", "127.0.0.1:1"):
        door = Door(address, patience=0.2)
        with pytest.raises(DoorError, match=r"did not answer within 0\.2 seconds .* `ringfence silo serve`"):
            door.ask(b"ask")


@pytest.mark.parametrize(
    "address", ["10.0.0.1:80", "evil.example:80", "", "127.0.0.1", "http://127.0.0.1:80", "::1:80"]
)
def test_a_door_on_another_machine_is_refused(address: str) -> None:
    with pytest.raises(DoorError, match="is not a door"):
        Door(address)


def test_a_courier_s_file_names_the_door_relative_to_itself(tmp_path: Path) -> None:
    file = tmp_path / "courier.toml"
    file.write_text('socket = "door.sock"\n')
    assert Door.read(tmp_path).address == f"unix:{tmp_path / 'door.sock'}"
    file.write_text('port = 1234\ntoken_file = "door.token"\n')
    with pytest.raises(DoorError, match=r"door\.token: No such file"):
        Door.read(file)
    (tmp_path / "door.token").write_text("secret\n")
    assert Door.read(file).address == "127.0.0.1:1234"
    for nonsense in ("", "port = 1234\n", "socket = 3\n", "["):
        file.write_text(nonsense)
        with pytest.raises(DoorError, match="does not describe a door"):
            Door.read(file)


def test_a_socket_deep_in_folders_is_found(tmp_path: Path) -> None:
    """A Unix socket's address has room for about a hundred characters only."""
    deep = tmp_path / ("deep" * 20) / ("deeper" * 20)
    deep.mkdir(parents=True)
    door = Door(f"unix:{deep / 'door.sock'}", patience=0.0)
    with pytest.raises(DoorError, match="No such file"):
        door.ask(b"ask")


@pytest.mark.parametrize(("module", "storage"), [("door", ["files", "toml_files"]), ("shuffler_client", [])])
def test_a_courier_and_the_shufflers_client_load_the_standard_library_and_what_carries_bytes(
    module: str, storage: list[str]
) -> None:
    code = f"import sys; import ringfence.deployment.{module}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    ours = {name.removeprefix("ringfence.") for name in loaded if name.startswith("ringfence.")}
    files = {f"storage.{name}" for name in storage} | ({"storage"} if storage else set())
    assert ours == {"errors", "deployment", f"deployment.{module}", "transport", "transport.client", *files}
    assert not {"numpy", "scipy", "pydantic", "sqlite3", "tomli_w"} & set(loaded)


# -- the head that a courier carries --

PLAN, LEDGER = "ab" * 32, "cd" * 32


def head(number: int, ledger: str = LEDGER) -> SignedHead:
    return SignedHead(ledger=ledger, number=number, hash="0" * 64, signature="1" * 128)


def refusal(carried: SignedHead | None) -> bytes:
    return Refusal(plan=PLAN, round=1, silo="s", reason=RefusalReason.BUDGET, head=carried).to_bytes()


def kept(own_state: Path) -> list[Path]:
    return list((own_state / "ringfence" / "couriers").glob("*"))


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
    with peer(*map(reply, answers)) as (address, seen):
        assert [Door(address).ask(b"ask") for _ in answers] == answers
    lines = [[line for line in content.split(b"\r\n") if line.startswith(b"Ringfence")] for content in seen]
    assert lines == [[], [b"Ringfence-Head: " + head(4).canonical()], [b"Ringfence-Head: " + head(6).canonical()]]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 9, b"x" * 5000, b'{"ledger":"a\\n","number":1}\n'])
def test_a_damaged_or_lost_witness_costs_no_answer(own_state: Path, content: bytes) -> None:
    with peer(reply(refusal(head(4))), reply(refusal(head(2))), reply(refusal(head(2)))) as (address, seen):
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
    with peer(reply(refusal(head(4))), reply(refusal(head(5)))) as (address, _):
        assert Door(address).ask(b"ask") == refusal(head(4))
        assert Door(address).ask(b"ask") == refusal(head(5))


def test_a_door_at_a_port_is_known_by_its_file_also_when_the_agent_is_back_at_another(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ab" * 32)
    for number, expected in ((4, b""), (5, head(4).canonical())):
        with peer(reply(refusal(head(number)))) as (address, seen):
            port = address.rpartition(":")[2]
            (tmp_path / "courier.toml").write_text(f'format = 1\nport = {port}\ntoken_file = "token"\n')
            Door.read(tmp_path).ask(b"ask")
        assert expected in seen[0]
        assert (b"Ringfence-Head" in seen[0]) == bool(expected)


def test_a_name_that_is_no_text_is_no_obstacle() -> None:
    CarriedHead(os.fsdecode(b"unix:/\xff")).keep(refusal(head(1)))
