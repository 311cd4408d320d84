"""The server's way to the shuffler, with the standard library alone.

It carries silos' sealed updates there and batches back, and can read neither. Handing in the same update again, or
fetching the same batch again, is always safe: the one counts once, the other is the same bytes.
"""

import http.client
import json
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from ringfence.deployment.door import fits_a_header
from ringfence.errors import DoorError

BATCH_LIMIT = 2**30
"""Longest batch that is read."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_OK, _WAITING, _BUSY = 200, 202, 503
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SENTENCE_LIMIT = 500


class ShufflerClient:
    """The shuffler at an address: `https://HOST:PORT`, or `http://127.0.0.1:PORT` on this machine.

    `certificate` is a file of the authorities, or of the shuffler's own certificate, that TLS trusts; without it, the
    system's. While the shuffler cannot be reached it is tried again for `patience` seconds; an answer may take
    `seconds`.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        certificate: Path | None = None,
        patience: float = 30.0,
        seconds: float = 600.0,
    ) -> None:
        if not fits_a_header(token):
            raise DoorError("The shuffler's token has characters that no request can carry: copy it again.")
        self.address = address
        self._token = token
        self._patience = patience
        self._seconds = seconds
        try:
            parts = urlsplit(address)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host = urlsplit(""), ""
        secret = parts.scheme == "https" or (parts.scheme == "http" and self._host in _LOOPBACK)
        if not (secret and self._host and not parts.username) or parts.path not in ("", "/") or parts.query:
            raise DoorError(
                f"'{address}' is not a shuffler's address: give https://HOST:PORT, or http://127.0.0.1:PORT if it is "
                "on this machine."
            )
        self._tls = _tls(certificate) if parts.scheme == "https" else None

    @classmethod
    def read(cls, address: str, token_file: Path, *, certificate: Path | None = None, patience: float = 30.0) -> Self:
        """Take the token from a file: a copy of the `shuffler.token` in the shuffler's folder."""
        try:
            token = token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise DoorError(f"{token_file} is not a shuffler's token that this user may read.") from None
        return cls(address, token, certificate=certificate, patience=patience)

    def deposit(self, update: bytes) -> None:
        """Hand in a silo's sealed update; when this returns, the shuffler has it on its disk. DoorError if not."""
        self._exchange("POST", "/deposit", update)

    def batch(self, plan: str, round: int) -> bytes | None:
        """Return the batch of a round of the plan with that digest, or None if it waits for silos."""
        status, content = self._exchange("GET", f"/batch/{plan}/{round}", None)
        return content if status == _OK else None

    def is_open(self) -> bool:
        """Tell whether the shuffler is there, and takes our token, without waiting for it."""
        try:
            return self._once("GET", "/health", None)[0] == _OK
        except (OSError, http.client.HTTPException):
            return False

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                status, content = self._once(method, path, body)
                problem = "it is busy"
            except ssl.SSLCertVerificationError:
                raise DoorError(
                    f"The shuffler at {self.address} does not show a certificate that is trusted here; name its file, "
                    "or correct the address."
                ) from None
            except (OSError, http.client.HTTPException) as failed:
                status, content = _BUSY, b""
                problem = (failed.strerror if isinstance(failed, OSError) else None) or type(failed).__name__
            if status in (_OK, _WAITING):
                return status, content
            if status != _BUSY:
                raise DoorError(f"The shuffler at {self.address} refused: {_meaning(status, content)}")
            if time.monotonic() + pause > deadline:
                raise DoorError(
                    f"The shuffler at {self.address} did not answer within {self._patience:g} seconds ({problem}). "
                    "Start it with `ringfence shuffler serve`, then try again: nothing counts twice."
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._seconds, context=self._tls)
        headers = {
            "Content-Type": "application/json",
            "Connection": "close",
            "Authorization": f"Bearer {self._token}",
        }
        try:
            # The shuffler may refuse, and say why, before it has read everything.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, headers)
            reply = connection.getresponse()
            whole = reply.length is not None  # else the head was cut off
            content = reply.read(BATCH_LIMIT + 1)
            if reply.status == _OK and (not whole or reply.length):  # what is left of a body that ended too soon
                raise http.client.IncompleteRead(b"")
        finally:
            connection.close()
        if len(content) > BATCH_LIMIT:
            raise DoorError(f"The batch from {self.address} is longer than the {BATCH_LIMIT} bytes allowed.")
        return reply.status, content


def _tls(certificate: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise DoorError(f"{certificate} is not a file of certificates, in PEM, that this user may read.") from None


def _meaning(status: int, content: bytes) -> str:
    """Say why, in the shuffler's words if it gives a sentence."""
    try:
        sentence = json.loads(content[: 2 * _SENTENCE_LIMIT])["error"][:_SENTENCE_LIMIT]
        return "".join(character if character.isprintable() else "?" for character in sentence)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"status {status}, which this server does not know."
