"""The exchange without an engine: straight to the doors of agents on this machine, for tours, tests and scale.

A thread per request and silo, and one request at a time at a silo's door: one that hangs for ten rounds is asked for
the current one when it comes back, since those in between have given up by then.
"""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from ringfence.errors import DoorError
from ringfence.transport.exchange import Arrived

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


class Asks(Protocol):
    """What is needed of a door (`deployment.door.Door`)."""

    def ask(self, request: bytes) -> bytes:
        """Return the answer's bytes; DoorError if there is none."""


class DirectExchange:
    """An `Exchange` over doors. A silo without a door is left out; one that is away is tried until time is up.

    Give it doors that do not try for long by themselves (`Door(..., patience=0)`).
    """

    def __init__(self, doors: Mapping[str, Asks]) -> None:
        self._doors = doors
        self._free = {name: threading.Lock() for name in doors}
        self._inbox: queue.SimpleQueue[tuple[str, bytes, bytes]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._failed: dict[str, str] = {}
        self._problems: dict[str, str] = {}

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Carry the request to the silos' doors and their answers back."""
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
        self._problems = {name: self._failed[name] for name in missing if name in self._failed}

    def _carry(self, silo: str, request: bytes, deadline: float) -> None:
        """Try the silo's door until it answers or time is up, once an earlier request is through."""
        free = self._free[silo]
        if not free.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return
        try:
            pause = _FIRST_PAUSE
            while (left := deadline - time.monotonic()) > 0 and not self._closed.is_set():
                try:
                    answer = self._doors[silo].ask(request)
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

    def problems(self) -> dict[str, str]:
        """Say why silos of the last exchange could not be reached."""
        return self._problems

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Carry nothing more; a thread that waits for a silo ends when that answers, or with the process."""
        self._closed.set()
