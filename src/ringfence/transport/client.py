"""A small HTTP client for services of ours, with the standard library alone.

Whatever is asked must be safe to ask again: a service that cannot be reached, goes away in the middle of an answer or
is busy is asked until patience ends.
"""

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ringfence.errors import DoorError

Connect: TypeAlias = Callable[..., http.client.HTTPConnection]
"""Makes a connection; the client names the `timeout`."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_ANSWER_SECONDS = 600.0
_SOCKET_PATH_LIMIT = 100
_SENTENCE_LIMIT = 500
_OK, _BUSY = 200, 503


class Client:
    """Asks one service: `service` says which, and where, in messages, and `start` the command that starts it.

    While it cannot be reached it is tried again for `patience` seconds; an answer may have `limit` bytes.
    """

    def __init__(
        self, service: str, start: str, connect: Connect, token: str | None, *, limit: int, patience: float
    ) -> None:
        """Make a client of one of our HTTP services; `start` says how the service is started."""
        token = token or ""
        if not (token.isascii() and token.isprintable()):
            raise DoorError(f"The token for the {service} has characters that no request can carry: copy it again.")
        self._service, self._start, self._connect = service, start, connect
        self._limit, self._patience = limit, patience
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        accept: Container[int] = (_OK,),
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return the status and bytes of the HTTP client's answer; DoorError if the service refuses or stays away."""
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                status, answer = self._once(method, path, body, {**self._headers, **(headers or {})})
                problem = "it is busy"
            except ssl.SSLCertVerificationError:
                raise DoorError(
                    f"The {self._service} does not show a trusted certificate; name its file, or correct the address."
                ) from None
            except (OSError, http.client.HTTPException) as failed:
                status, answer = _BUSY, b""
                problem = (failed.strerror if isinstance(failed, OSError) else None) or type(failed).__name__
            if status in accept:
                return status, answer
            if status != _BUSY:
                raise DoorError(f"The {self._service} refused (status {status}): {refusal_reason(answer)}")
            if time.monotonic() + pause > deadline:
                raise DoorError(
                    f"The {self._service} did not answer within {self._patience:g} seconds ({problem}). Start it with "
                    f"`{self._start}`, then try again: nothing counts twice."
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send the client's HTTP request once, and return the answer's status and body."""
        connection = self._connect(timeout=_ANSWER_SECONDS)
        try:
            # The service may refuse, and say why, before it has read everything.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, headers)
            reply = connection.getresponse()
            whole = reply.length is not None  # else the head was cut off
            content = reply.read(self._limit + 1)
            if reply.status == _OK and (not whole or reply.length):  # what is left of a body that ended too soon
                raise http.client.IncompleteRead(b"")
        finally:
            connection.close()
        if len(content) > self._limit:
            raise DoorError(f"The {self._service} answered with more than the {self._limit} bytes allowed.")
        return reply.status, content


def refusal_reason(answer: bytes) -> str:
    """Return the service's reason for a refusal, or a sentence that it gave none."""
    try:
        sentence = json.loads(answer[: 2 * _SENTENCE_LIMIT])["error"][:_SENTENCE_LIMIT]
        return "".join(character if character.isprintable() else "?" for character in sentence)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "it gives no reason; its version and ours may not match."


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Make the HTTP client's connection to a Unix socket."""
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect the HTTP client to the Unix socket, also if its path is too long for an address."""
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
