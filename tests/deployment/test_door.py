"""The courier's client: it finds the door, waits for the agent, and knows nothing else."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence.deployment.door import Door
from ringfence.errors import DoorError


@contextmanager
def peer(*scripts: bytes) -> Iterator[str]:
    """A program at a port that reads a request and sends one of the given replies to each caller, in order."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            for script in scripts:
                connection, _ = listening.accept()
                with connection:
                    content = b""
                    while b"\r\n\r\nask" not in content and (chunk := connection.recv(65536)):
                        content += chunk
                    connection.sendall(script)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def reply(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), size, body)


def test_an_answer_comes_back_byte_for_byte() -> None:
    with peer(reply(b"\x00\xffanswer")) as address:
        assert Door(address, "token").ask(b"ask") == b"\x00\xffanswer"


@pytest.mark.parametrize(
    "broken",
    [b"", b"HTTP/1.1 200 OK\r\nConte", reply(b"half", length=100), b"garbage\r\n\r\n", reply(b"", "503 Busy")],
    ids=["closed", "cut in the head", "cut in the body", "not HTTP", "busy"],
)
def test_an_agent_that_goes_away_in_the_middle_is_asked_again(broken: bytes) -> None:
    with peer(broken, broken, reply(b"whole")) as address:
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
def test_a_refusal_of_the_request_itself_is_told_at_once_in_the_agent_s_words(
    status: str, body: bytes, says: str
) -> None:
    with peer(reply(body, status)) as address, pytest.raises(DoorError, match=says):
        Door(address).ask(b"ask")


def test_an_agent_that_is_not_there_is_told_in_one_sentence_after_the_patience(tmp_path: Path) -> None:
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


def test_a_courier_loads_the_standard_library_and_our_errors_alone() -> None:
    code = "import sys; import ringfence.deployment.door; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    ours = {name for name in loaded if name.startswith("ringfence.")}
    rooms = {f"ringfence.{name}" for name in ("deployment", "storage", "transport")}
    ways = {"deployment.carried_head", "deployment.door", "transport.client"}
    files = {f"storage.{name}" for name in ("files", "formats", "private_files", "state_folder", "toml_files")}
    parts = {f"ringfence.{name}" for name in ways | files}
    assert ours == {"ringfence.errors", *rooms, *parts}
    assert not {"numpy", "scipy", "pydantic", "sqlite3", "tomli_w"} & set(loaded)
