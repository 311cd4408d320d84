"""The one thing that Ringfence asks of an engine: bytes to silos, bytes back.

Server side: an engine's adapter offers an `Exchange`. Silo side: its courier hands every request to the silo agent's
door (`deployment.door.Door.ask`) and carries the answer back. Neither side looks inside the bytes.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Arrived: TypeAlias = Callable[[str, bytes], None]
"""Is called with a silo's name and its answer."""


class Exchange(Protocol):
    """Carries one round's request to silos and their answers back."""

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Send the request to the named silos, and call `arrived(name, answer)` for each answer as it comes.

        Return when all have answered or the seconds have passed; a silo that is slow, dead or unknown is left out.
        `arrived` is called from one thread at a time.
        """
