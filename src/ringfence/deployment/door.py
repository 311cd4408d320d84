"""A courier's way to the silo agent's door, with the standard library alone.

A courier runs in an engine's process, which may run code that the server ships: it knows where the door is and the
token to show there, and nothing of the data, ledger or keys. All it can do is hand over a request's bytes and carry
the answer's back. Asking again is always safe: a round that was answered gets the stored answer, byte for byte.

It is a witness too. It keeps the latest head of the silo's ledger that it carried (`deployment.carried_head`), and
shows it with the next request: an agent whose ledger was rolled back meanwhile sees its own signature under what it
lacks.
"""

from pathlib import Path
from typing import Self

from ringfence.deployment.carried_head import CarriedHead
from ringfence.errors import DoorError
from ringfence.storage.formats import require_known_format
from ringfence.storage.toml_files import read_toml
from ringfence.transport.client import Client, over_network, over_socket

ANSWER_LIMIT = 64 * 2**20
"""Longest answer that is read."""


class Door:
    """The door of one silo's agent.

    `address` is `unix:PATH` or `127.0.0.1:PORT`. While the agent cannot be reached, or goes away in the middle of an
    answer, `ask` tries again for `patience` seconds. `known_as` is what the door is remembered by, if its address may
    be another one tomorrow.
    """

    def __init__(
        self, address: str, token: str | None = None, *, patience: float = 30.0, known_as: str | None = None
    ) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        if address.startswith("unix:") and "\0" not in address:
            connect = over_socket(Path(address.removeprefix("unix:")))
        elif host in ("127.0.0.1", "localhost") and port.isdecimal() and len(port) < 6 and int(port) < 2**16:
            connect = over_network("127.0.0.1", int(port))
        else:
            raise DoorError(
                f"'{address}' is not a door's address: give unix:PATH or 127.0.0.1:PORT. An agent's door can only be "
                "reached from its own machine."
            )
        self._client = Client(
            f"silo's agent at {address}",
            "ringfence silo serve",
            connect,
            token,
            limit=ANSWER_LIMIT,
            patience=patience,
        )
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
        """Hand the request's bytes in and return the answer's bytes: an update or a refusal."""
        shown = self._head.read()
        headers = {"Ringfence-Head": shown} if shown else {}
        _, answer = self._client.ask("POST", "/answer", request, headers=headers)
        self._head.keep(answer)
        return answer
