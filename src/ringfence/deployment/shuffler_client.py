"""The server's way to the shuffler, with the standard library alone.

It carries silos' sealed updates there and batches back, and can read neither. Handing in the same update again, or
fetching the same batch again, is always safe: the one counts once, the other is the same bytes.
"""

import ssl
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from ringfence.errors import DoorError
from ringfence.transport.client import Client, Connect

BATCH_LIMIT = 2**30
"""Longest batch that is read."""

_OK, _WAITING = 200, 202
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ShufflerClient:
    """The shuffler at an address: `https://HOST:PORT`, or `http://127.0.0.1:PORT` on this machine.

    `certificate` is a file of the authorities, or of the shuffler's own certificate, that TLS trusts; without it, the
    system's. While the shuffler cannot be reached it is tried again for `patience` seconds.
    """

    def __init__(self, address: str, token: str, *, certificate: Path | None = None, patience: float = 30.0) -> None:
        """Take the shuffler's address, which must be https or on this machine, and its token."""
        try:
            parts = urlsplit(address)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        secret = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
        if not (secret and host and not parts.username) or parts.path not in ("", "/") or parts.query:
            raise DoorError(
                f"'{address}' is not a shuffler's address: give https://HOST:PORT, or http://127.0.0.1:PORT if it is "
                "on this machine."
            )
        connect: Connect = partial(HTTPConnection, host, port)
        if parts.scheme == "https":
            connect = partial(HTTPSConnection, host, port, context=_tls(certificate))
        service, start = f"shuffler at {address}", "ringfence shuffler serve"
        self._client = Client(service, start, connect, token, limit=BATCH_LIMIT, patience=patience)

    @classmethod
    def read(cls, address: str, token_file: Path, *, certificate: Path | None = None, patience: float = 30.0) -> Self:
        """Take the token from a file: a copy of the `shuffler.token` in the shuffler's folder."""
        try:
            token = token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise DoorError(f"{token_file} is not a shuffler's token, or this user may not read it.") from None
        return cls(address, token, certificate=certificate, patience=patience)

    def deposit(self, update: bytes) -> None:
        """Hand in a silo's sealed update; when this returns, the shuffler has it on its disk. DoorError if not."""
        self._client.ask("POST", "/deposit", update)

    def batch(self, plan: str, round: int) -> bytes | None:
        """Ask the shuffler for the batch of a round of the plan with that digest; None if it waits for silos."""
        status, content = self._client.ask("GET", f"/batch/{plan}/{round}", accept=(_OK, _WAITING))
        return content if status == _OK else None


def _tls(certificate: Path | None) -> ssl.SSLContext:
    """Return the TLS settings for the connection to the shuffler, with its certificate if given."""
    try:
        return ssl.create_default_context(cafile=certificate)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise DoorError(f"{certificate} is not a file of certificates in PEM, or this user may not read it.") from None
