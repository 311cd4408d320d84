"""The exchange without an engine: straight to the doors of agents on this machine, for tours, tests and scale.

A thread per silo carries one request at a time. What a silo is asked next replaces what it was asked before, so one
that hangs for ten rounds is asked for the current one when it comes back.
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
        self._inbox: queue.SimpleQueue[tuple[str, bytes, bytes]] = queue.SimpleQueue()
        self._couriers = {name: _Courier(name, door, self._inbox) for name, door in doors.items()}
        self._problems: dict[str, str] = {}

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Carry the request to the silos' doors and their answers back."""
        deadline = time.monotonic() + seconds
        missing = {name for name in silos if name in self._couriers}
        for name in missing:
            self._couriers[name].carry(request, deadline)
        while missing and (left := deadline - time.monotonic()) > 0:
            try:
                name, asked, answer = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if asked == request:  # else it is late: its round is closed
                missing.discard(name)
                arrived(name, answer)
        self._problems = {name: problem for name in missing if (problem := self._couriers[name].problem)}

    def problems(self) -> dict[str, str]:
        """Say why silos of the last exchange could not be reached."""
        return self._problems

    def close(self) -> None:
        """Carry nothing more; a thread that waits for a silo ends when that answers, or with the process."""
        for courier in self._couriers.values():
            courier.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Courier:
    """One silo's thread, begun when it is first needed."""

    def __init__(self, silo: str, door: Asks, inbox: "queue.SimpleQueue[tuple[str, bytes, bytes]]") -> None:
        self.problem = ""
        self._silo = silo
        self._door = door
        self._inbox = inbox
        self._changed = threading.Condition()
        self._request: bytes | None = None
        self._deadline = 0.0
        self._stopped = False
        self._thread: threading.Thread | None = None

    def carry(self, request: bytes, deadline: float) -> None:
        """Carry this request until the deadline, and no other any more."""
        with self._changed:
            self._request, self._deadline = request, deadline
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"door of {self._silo}", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread as soon as it is free."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while (request := self._next()) is not None:
            try:
                answer = self._door.ask(request)
            except DoorError as problem:
                self.problem = str(problem)
                self._rest(request, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause, self.problem = _FIRST_PAUSE, ""
            with self._changed:
                if self._request == request:
                    self._request = None
            self._inbox.put((self._silo, request, answer))

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._request is not None)
            return None if self._stopped else self._request

    def _rest(self, request: bytes, pause: float) -> None:
        """Wait before the next try; forget the request if there will be none in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._request != request, pause)
            if self._request == request and time.monotonic() > self._deadline:
                self._request = None
