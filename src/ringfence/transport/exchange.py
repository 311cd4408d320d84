"""What Ringfence asks of an engine: carry bytes to silos, and their answers back.

At the server, an engine's adapter is an `Exchange`. At a silo, its courier hands every request to the agent
(`deployment.door.Door.ask`) and carries the answer back. Neither side looks inside the bytes. `DirectExchange` needs no
engine: it asks agents on this machine, for tours, tests and scale.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self, TypeAlias

from ringfence.errors import DoorError

Arrived: TypeAlias = Callable[[str, bytes], None]
"""Called with a silo's name and its answer."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


class Exchange(Protocol):
    """Carries one round's request to silos and their answers back."""

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float, /) -> None:
        """Send the request through the exchange to the named silos, and call `arrived(name, answer)` as answers come.

        Return when all have answered or the seconds have passed; a silo that is slow, dead or unknown is left out.
        `arrived` is called from one thread at a time.
        """


class DirectExchange:
    """An `Exchange` over `Door.ask` of each silo. A silo without a door is left out; one that is away is retried.

    Use doors that do not retry by themselves (`Door(..., patience=0)`). Each request to a silo has a thread, and a door
    gets one request at a time: a silo that hangs for ten rounds is asked for the current one when it comes back, since
    the requests in between have given up by then.
    """

    def __init__(self, doors: Mapping[str, Callable[[bytes], bytes]]) -> None:
        """Carry requests to silos' doors directly, without an engine."""
        self._doors = doors
        self._free = {name: threading.Lock() for name in doors}
        self._inbox: queue.SimpleQueue[tuple[str, bytes, bytes]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._failed: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        """Why silos of the last exchange could not be reached."""

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Ask the silos' doors directly, each in a thread, until all have answered or time is up."""
        deadline = time.monotonic() + seconds
        missing = {name for name in silos if name in self._doors}
        for name in missing:
            threading.Thread(
                target=self._carry, args=(name, request, deadline), name=f"door of {name}", daemon=True
            ).start()
        while missing and (left := deadline - time.monotonic()) > 0:
            try:
                name, asked, answer = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if asked == request:  # else it is late: its round is closed
                missing.discard(name)
                arrived(name, answer)
        self.problems = {name: self._failed[name] for name in missing if name in self._failed}

    def _carry(self, silo: str, request: bytes, deadline: float) -> None:
        """Try the silo's door directly until it answers or time is up, once an earlier request is through."""
        free = self._free[silo]
        if not free.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return
        try:
            pause = _FIRST_PAUSE
            while (left := deadline - time.monotonic()) > 0 and not self._closed.is_set():
                try:
                    answer = self._doors[silo](request)
                except DoorError as problem:
                    self._failed[silo] = str(problem)
                    self._closed.wait(min(pause, left))
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                self._failed.pop(silo, None)
                self._inbox.put((silo, request, answer))
                return
        finally:
            free.release()

    def __enter__(self) -> Self:
        """Begin a block in which the direct exchange carries requests."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the direct exchange; a thread that waits for a silo ends when that answers, or with the process."""
        self._closed.set()
