"""A courier's way to the silo agent's door, with the standard library alone.

A courier runs in an engine's process, which may run code that the server ships: it knows where the door is and the
token to show there, and nothing of the data, ledger or keys. All it can do is hand over a request's bytes and carry
the answer's back. Asking again is always safe: a round that was answered gets the stored answer, byte for byte.
"""

import http.client
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from ringfence.errors import DoorError
from ringfence.toml_files import read_toml

ANSWER_LIMIT = 64 * 2**20
"""Longest answer that is read."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_SOCKET_PATH_LIMIT = 100
_BUSY = 503
_OK = 200


class Door:
    """The door of one silo's agent.

    `address` is `unix:PATH` or `127.0.0.1:PORT`. While the agent cannot be reached, or goes away in the middle of an
    answer, `ask` tries again for `patience` seconds; an answer may take `seconds`.
    """

    def __init__(
        self, address: str, token: str | None = None, *, patience: float = 30.0, seconds: float = 600.0
    ) -> None:
        self.address = address
        self._token = token
        self._patience = patience
        self._seconds = seconds
        self._socket: Path | None = None
        self._port = 0
        if not fits_a_header(token or ""):
            raise DoorError("The door's token has characters that no request can carry: let the agent write a new one.")
        host, _, port = address.rpartition(":")
        if address.startswith("unix:") and "\0" not in address:
            self._socket = Path(address.removeprefix("unix:"))
        elif host in ("127.0.0.1", "localhost") and port.isdecimal() and len(port) < 6 and int(port) < 2**16:
            self._port = int(port)
        else:
            raise DoorError(
                f"'{address}' is not a door: give unix:PATH or 127.0.0.1:PORT. The agent is on this machine, and "
                "its door is not open to others."
            )

    @classmethod
    def read(cls, path: Path, *, patience: float = 30.0, seconds: float = 600.0) -> Self:
        """Find the door by the `courier.toml` that a silo's agent writes, given as that file or as its folder."""
        file = path / "courier.toml" if path.is_dir() else path
        try:
            content = read_toml(file)
            if "socket" in content:
                return cls(f"unix:{file.absolute().parent / content['socket']}", patience=patience, seconds=seconds)
            token = (file.absolute().parent / content["token_file"]).read_text(encoding="ascii").strip()
            return cls(f"127.0.0.1:{content['port']}", token, patience=patience, seconds=seconds)
        except OSError as problem:
            raise DoorError(
                f"The door described in {file} cannot be used: {problem.filename}: {problem.strerror}. Name the "
                "silo's folder or its courier.toml, and let this user read it."
            ) from None
        except (ValueError, KeyError, TypeError):
            raise DoorError(f"{file} does not describe a door; `ringfence silo serve` writes it anew.") from None

    def ask(self, request: bytes) -> bytes:
        """Hand the request's bytes in and return the answer's bytes: an update or a refusal."""
        return self._exchange("POST", "/answer", request)

    def is_open(self) -> bool:
        """Tell whether the agent is there, without waiting for it."""
        try:
            return self._once("GET", "/health", None)[0] == _OK
        except (OSError, http.client.HTTPException):
            return False

    def _exchange(self, method: str, path: str, body: bytes | None) -> bytes:
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                status, answer = self._once(method, path, body)
                problem = "it is busy"
            except (OSError, http.client.HTTPException) as failed:
                status, answer = _BUSY, b""
                problem = (failed.strerror if isinstance(failed, OSError) else None) or type(failed).__name__
            if status == _OK:
                return answer
            if status != _BUSY:
                raise DoorError(
                    f"The silo's agent at {self.address} did not take the request (status {status}): "
                    f"{_MEANINGS.get(status, 'this courier and the agent do not fit together')}."
                )
            if time.monotonic() + pause > deadline:
                raise DoorError(
                    f"The silo's agent at {self.address} did not answer within {self._patience:g} seconds "
                    f"({problem}). Start it with `ringfence silo serve`, then ask again: nothing is charged twice."
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if self._socket is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._seconds)
        else:
            connection = _SocketConnection(self._socket, self._seconds)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            # The agent may refuse, and say why, before it has read everything.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, headers)
            reply = connection.getresponse()
            whole = reply.length is not None  # else the head was cut off
            content = reply.read(ANSWER_LIMIT + 1)
            if reply.status == _OK and (not whole or reply.length):  # what is left of a body that ended too soon
                raise http.client.IncompleteRead(b"")
        finally:
            connection.close()
        if len(content) > ANSWER_LIMIT:
            raise DoorError(f"The answer from {self.address} is longer than the {ANSWER_LIMIT} bytes allowed.")
        return reply.status, content


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        if len(os.fsencode(self._path)) <= _SOCKET_PATH_LIMIT:
            self.sock.connect(str(self._path))
            return
        folder = os.open(self._path.parent, os.O_PATH)  # a socket's address is short; the path need not be
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


def fits_a_header(token: str) -> bool:
    """Tell whether a token can be shown in a request at all."""
    return token.isascii() and token.isprintable()


_MEANINGS = {
    400: "the bytes are not a round's request",
    401: "the token is missing or wrong; read courier.toml again",
    404: "there is no such door",
    408: "the request came too slowly",
    413: "the request is longer than any approved plan needs",
    421: "it was sent to another host's name",
}
