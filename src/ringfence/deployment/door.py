"""A courier's way to the silo agent's door, with the standard library alone.

A courier runs in an engine's process, which may run code that the server ships: it knows where the door is and the
token to show there, and nothing of the data, ledger or keys. All it can do is hand over a request's bytes and carry
the answer's back. Asking again is always safe: a round that was answered gets the stored answer, byte for byte.

It is a witness too. It keeps the latest head of the silo's ledger that it carried (`CarriedHead`), and shows it with
the next request: an agent whose ledger was rolled back meanwhile sees its own signature under what it lacks.
"""

import hashlib
import json
import os
import re
from contextlib import suppress
from functools import cached_property, partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Self

from ringfence.errors import DoorError
from ringfence.storage.files import require_known_format, state_folder
from ringfence.storage.toml_files import read_toml
from ringfence.transport.client import Client, Connect, SocketConnection

ANSWER_LIMIT = 64 * 2**20
"""Longest answer that is read."""

_HEAD = re.compile(rb'"head":(\{[^}]*\})')  # no text of a message can hold these bytes
_LONGEST = 1024


class Door:
    """The door of one silo's agent.

    `address` is `unix:PATH` or `127.0.0.1:PORT`. While the agent cannot be reached, or goes away in the middle of an
    answer, `ask` tries again for `patience` seconds. `known_as` is what the door is remembered by, if its address may
    be another one tomorrow.
    """

    def __init__(
        self, address: str, token: str | None = None, *, patience: float = 30.0, known_as: str | None = None
    ) -> None:
        """Take the address of a silo agent's door: unix:PATH or 127.0.0.1:PORT."""
        self.address = address
        host, _, port = address.rpartition(":")
        if address.startswith("unix:") and "\0" not in address:
            connect: Connect = partial(SocketConnection, Path(address.removeprefix("unix:")))
        elif host in ("127.0.0.1", "localhost") and port.isdecimal() and len(port) < 6 and int(port) < 2**16:
            connect = partial(HTTPConnection, "127.0.0.1", int(port))
        else:
            raise DoorError(
                f"'{address}' is not a door's address: give unix:PATH or 127.0.0.1:PORT. An agent's door can only be "
                "reached from its own machine."
            )
        agent = f"silo's agent at {address}"
        self._client = Client(agent, "ringfence silo serve", connect, token, limit=ANSWER_LIMIT, patience=patience)
        self._head = CarriedHead(known_as or address)

    @classmethod
    def read(cls, path: Path, *, patience: float = 30.0) -> Self:
        """Find the door by the `courier.toml` that a silo's agent writes, given as that file or as its folder."""
        file = path / "courier.toml" if path.is_dir() else path
        try:
            content = read_toml(file)
            require_known_format(f"door ({file})", content.get("format"), 1, DoorError)
            if "socket" in content:
                return cls(f"unix:{file.absolute().parent / content['socket']}", patience=patience)
            token = (file.absolute().parent / content["token_file"]).read_text(encoding="ascii").strip()
            return cls(f"127.0.0.1:{content['port']}", token, patience=patience, known_as=str(file.absolute()))
        except OSError as problem:
            raise DoorError(
                f"The door described in {file} cannot be used: {problem.filename}: {problem.strerror}. Name the "
                "silo's folder or its courier.toml, and let this user read it."
            ) from None
        except (ValueError, KeyError, TypeError):
            raise DoorError(f"{file} does not describe a door; `ringfence silo serve` rewrites it.") from None

    def ask(self, request: bytes) -> bytes:
        """Hand a request's bytes in at the agent's door and return the answer's bytes: an update or a refusal."""
        shown = self._head.read()
        headers = {"Ringfence-Head": shown} if shown else {}
        _, answer = self._client.ask("POST", "/answer", request, headers=headers)
        self._head.keep(answer)
        return answer


class CarriedHead:
    """The latest head of a silo's ledger that came out of one door, in the state folder of the courier's own user.

    It is a help and no more: whatever is lost, damaged or cannot be written here is passed over. A courier checks no
    signature: it can forge no head, and one that is not the silo's own proves nothing to it.
    """

    def __init__(self, door: str) -> None:
        """Name the file in which a courier keeps the ledger's head from the agent behind this door."""
        self._name = hashlib.sha256(os.fsencode(door)).hexdigest()

    @cached_property
    def _file(self) -> Path:
        """The file of the carried head; OSError if this user can have none."""
        folder = state_folder() / "couriers"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / self._name

    def read(self) -> str:
        """Return the ledger's head that the courier carries, as it came from the door, or nothing."""
        with suppress(OSError):
            with self._file.open("rb") as file:
                content = file.read(_LONGEST + 1).rstrip(b" ")
            if _place(content) is not None:
                return content.decode("ascii")
        return ""

    def keep(self, answer: bytes) -> None:
        """Keep the head in the door's answer for the courier, if it is later than the kept one or of another ledger."""
        found = _HEAD.search(answer)
        head = found[1] if found else b""
        new, old = _place(head), _place(self.read().encode())
        if new is None or (old is not None and old[0] == new[0] and old[1] >= new[1]):
            return
        with suppress(OSError):
            # Written over in place, in one length: a new file for every round would keep a busy disk waiting.
            anew = os.O_TRUNC if old is None else 0
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | anew, 0o600)
            try:
                os.pwrite(file, head.ljust(_LONGEST), 0)
            finally:
                os.close(file)


def _place(head: bytes) -> tuple[str, int] | None:
    """Return the ledger and the number of a head that a courier can carry to the door; None if it is none."""
    if len(head) > _LONGEST or not head.isascii():
        return None
    try:
        content = json.loads(head)
        ledger, number = content["ledger"], content["number"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    printable = head.decode("ascii").isprintable()
    return (ledger, number) if printable and isinstance(ledger, str) and isinstance(number, int) else None
