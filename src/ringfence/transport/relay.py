"""The two ends of the wire between `ringfence server run` and the relay that it has an engine's server run.

The relay holds no state of the training: our own end does, and survives it. A lost end is a ConnectionError.
"""

import contextlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

from ringfence.errors import DeploymentError
from ringfence.transport.exchange import Arrived
from ringfence.transport.wire import Wire

_Stop: TypeAlias = Callable[[float], bool]

_LOOK = 0.5
_HELLO = 5.0
_MOST_LOST = 5


class RelayLink:
    """Our end: the relay calls it at `path`, and it carries requests through the relay. Use it in a `with` block.

    The relay keeps an exchange's time; after `slack` seconds more it counts as lost. `tell` gets what happens.
    """

    def __init__(self, *, slack: float, tell: Callable[[str], None]) -> None:
        self._slack, self._tell = slack, tell
        self._wire: Wire | None = None
        self._exchange = 0
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        place = "/tmp" if len(tempfile.gettempdir()) > 70 else None  # noqa: S108 (a socket's address is short)
        self.folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-", dir=place)))
        """A folder for what the engine needs, which goes with the link."""
        self.path = str(self.folder / "wire")
        self._listener = self._cleanup.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(self.path)
        self._listener.listen(4)
        self._listener.settimeout(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self._cleanup.close()

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

    def exchange(
        self,
        request: bytes,
        missing: set[str],
        arrived: Arrived,
        seconds: float,
        start: Callable[[], None],
        stop: _Stop = lambda gone: False,
    ) -> None:
        """Carry the request to those who are missing, and strike out who answers, until the relay's time is up.

        `start` has the engine run a relay, and `accept`s it: also again, after one was lost. `stop` is asked twice a
        second while nothing comes, given the seconds gone, and may end the exchange early.
        """
        lost = 0
        while missing:
            try:
                while self._wire is None:
                    start()
                self._carry(self._wire, request, missing, arrived, seconds, stop)
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

    def _carry(
        self, wire: Wire, request: bytes, missing: set[str], arrived: Arrived, seconds: float, stop: _Stop
    ) -> None:
        self._exchange += 1
        wire.send({"exchange": self._exchange, "sites": sorted(missing), "seconds": seconds}, request)
        begun = time.monotonic()
        while (gone := time.monotonic() - begun) < seconds + self._slack:
            frame = wire.receive(_LOOK)
            if frame is None:
                if stop(gone):
                    return
            elif frame[0].get("exchange") != self._exchange:
                continue  # late, for an exchange that is over
            elif frame[0].get("done"):
                return
            elif (site := frame[0]["site"]) in missing:
                missing.discard(site)
                arrived(site, frame[1])
        raise ConnectionError("the relay went silent")

    def hang_up(self) -> None:
        """Let the relay, and so the engine's job, end."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None


@dataclass(frozen=True)
class Errand:
    """What a relay has to carry: bytes to sites, within the seconds, and each answer back by `answer(site, bytes)`."""

    sites: list[str]
    request: bytes
    seconds: float
    answer: Callable[[str, bytes], None]
    lost: Callable[[], bool]
    """Tells whether nobody waits for the answers any more."""


def relay(
    path: str, sites: Iterable[str], run: Callable[[Errand], None], stop: Callable[[], bool] = lambda: False
) -> None:
    """Be the relay: run errands until the other end hangs up, or `stop` says so."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        wire = Wire(connection)
        with contextlib.suppress(ConnectionError):
            wire.send({"sites": sorted(sites)})
            while not stop():
                frame = wire.receive(_LOOK)
                if frame is None:
                    continue
                head, request = frame
                number = {"exchange": head["exchange"]}

                def answer(site: str, content: bytes, number: dict[str, int] = number) -> None:
                    wire.send({**number, "site": site}, content)

                run(Errand(list(head["sites"]), request, float(head["seconds"]), answer, wire.lost))
                wire.send({**number, "done": True})
