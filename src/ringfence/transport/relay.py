"""One relay for every engine: how `ringfence server run` carries requests through a job that an engine runs.

Our process (`RelayedExchange`) listens on a Unix socket. The engine's server runs a job that calls it (`relay`), hands
every request to the engine, and sends the answers back. The relay holds no state of the training: our process does, and
survives it. Both ends belong to the server's operator and run on one machine. A lost end is a ConnectionError.
"""

import contextlib
import json
import socket
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from ringfence.errors import DeploymentError
from ringfence.transport.exchange import Arrived

_LONGEST = 2**27 + 2**24  # more than any message, with the names of a plan's silos, has
_POLL = 0.5
_HELLO = 5.0
_MOST_LOST = 5


class Wire:
    """Frames (a line of JSON and a body of bytes) on a socket. A peer that is lost or sends none: ConnectionError."""

    def __init__(self, connected: socket.socket) -> None:
        """Take over the socket between `ringfence server run` and the relay in the engine's job."""
        self._connection = Connection(connected.detach())
        self._sending = threading.Lock()

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame over the relay's wire; may be called from several threads."""
        with self._sending:
            self._connection.send_bytes(json.dumps(head).encode() + b"\n" + body)

    def receive(self, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """Return the next frame on the relay's wire, or None if none begins to arrive within the seconds."""
        try:
            if not self._connection.poll(seconds):
                return None
            head, _, body = self._connection.recv_bytes(_LONGEST).partition(b"\n")
            content = json.loads(head)
        except (EOFError, OSError, ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ConnectionError("the other end hung up, or sent something that is not a frame")
        return content, body

    def lost(self) -> bool:
        """Return whether the relay's other end hung up: it sends nothing while an errand is run."""
        return self._connection.poll()

    def close(self) -> None:
        """Hang up the relay's wire."""
        self._connection.close()


class RelayedExchange(ABC):
    """An `Exchange` through an engine's relay, which calls at `path`. Use it in a `with` block.

    An engine supplies `start_relay`. The relay keeps an exchange's time; after `slack` seconds more it counts as lost,
    is started again, and carries the request to silos that have not answered (a silo answers a repeated request with
    the same bytes). `tell` gets what happens.
    """

    def __init__(self, *, slack: float, tell: Callable[[str], None]) -> None:
        """Make an exchange through an engine's relay; `slack` is the time it may take beyond a request's own."""
        self._slack, self._tell = slack, tell
        self._wire: Wire | None = None
        self._exchange = 0
        self._cleanup = contextlib.ExitStack()

    @abstractmethod
    def start_relay(self, silos: Sequence[str]) -> None:
        """Have the engine run a relay for these silos, and `accept` its call."""

    def may_stop(self, missing: set[str], gone: float) -> bool:
        """Whether to end a relayed exchange early; asked twice a second while nothing comes; `gone` is in seconds."""
        return False

    def __enter__(self) -> Self:
        """Listen for the relay's call on a socket in a temporary folder."""
        place = "/tmp" if len(tempfile.gettempdir()) > 70 else None  # noqa: S108 (a socket's address is short)
        self.folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-", dir=place)))
        """Temporary files for the engine; removed at the end."""
        self.path = str(self.folder / "wire")
        self._listener = self._cleanup.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(self.path)
        self._listener.listen(4)
        self._listener.settimeout(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up on the relay, and remove the temporary folder."""
        self.hang_up()
        self._cleanup.close()

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Carry a request to the silos through the engine's relay."""
        self.carry(request, silos, set(silos), arrived, seconds)

    def carry(self, request: bytes, silos: Sequence[str], missing: set[str], arrived: Arrived, seconds: float) -> None:
        """Carry the request to those who are missing, and remove who answers, until the relay's time is up."""
        lost = 0
        while missing:
            try:
                while self._wire is None:
                    self.start_relay(silos)
                self._carry_once(self._wire, request, missing, arrived, seconds)
                return
            except OSError:  # the relay hung up: its job, or the engine's server, is gone
                self.hang_up()
                lost += 1
                if lost > _MOST_LOST:
                    raise DeploymentError(
                        "The engine lost the job repeatedly; see its server's log. Continue the run once that is "
                        "fixed: answered rounds are not lost."
                    ) from None
                self._tell("The engine lost the job: submitting it again.")

    def accept(self) -> bool:
        """Wait a second for a relay to call, and tell whether one has."""
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            return False
        connection.settimeout(None)
        wire = Wire(connection)
        hello = wire.receive(_HELLO)
        if hello is None:
            wire.close()
            raise ConnectionError("the relay sent nothing")
        self._wire = wire
        self._tell(f"The engine runs the job at {', '.join(hello[0]['sites']) or 'no silo yet'}.")
        return True

    def hang_up(self) -> None:
        """Let the relay, and so the engine's job, end."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    def _carry_once(self, wire: Wire, request: bytes, missing: set[str], arrived: Arrived, seconds: float) -> None:
        """Send a request to the relay over one wire, and take the missing silos' answers until time is up."""
        self._exchange += 1
        wire.send({"exchange": self._exchange, "sites": sorted(missing), "seconds": seconds}, request)
        begun = time.monotonic()
        while (gone := time.monotonic() - begun) < seconds + self._slack:
            frame = wire.receive(_POLL)
            if frame is None:
                if self.may_stop(missing, gone):
                    return
            elif frame[0].get("exchange") != self._exchange:
                continue  # late, for an exchange that is over
            elif frame[0].get("done"):
                return
            elif (site := frame[0]["site"]) in missing:
                missing.discard(site)
                arrived(site, frame[1])
        raise ConnectionError("the relay went silent")


@dataclass(frozen=True)
class Errand:
    """What a relay carries: the request's bytes to sites within the seconds, and each answer back by `answer`."""

    sites: list[str]
    request: bytes
    seconds: float
    answer: Callable[[str, bytes], None]
    lost: Callable[[], bool]
    """Whether nobody waits for the answers any more."""


def run_relay(
    path: str, sites: Iterable[str], run: Callable[[Errand], None], stop: Callable[[], bool] = lambda: False
) -> None:
    """Run, in the engine's server, each errand that comes over the socket, until it is closed or `stop` is true."""
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    with contextlib.closing(Wire(connected)) as wire, contextlib.suppress(ConnectionError):
        wire.send({"sites": sorted(sites)})
        while not stop():
            frame = wire.receive(_POLL)
            if frame is None:
                continue
            head, request = frame
            number = {"exchange": head["exchange"]}

            def answer(site: str, content: bytes, number: dict[str, int] = number) -> None:
                """Send a site's answer to an errand back over the relay's wire."""
                wire.send({**number, "site": site}, content)

            run(Errand(head["sites"], request, head["seconds"], answer, wire.lost))
            wire.send({**number, "done": True})
