"""A shuffler that kills itself at a chosen point: python -m tests.shuffler.crashing_shuffler FOLDER POINT UPDATES

It deposits the updates in the file, one to a line, and releases round 0; the trap is set for the last deposit or for
the release. What it would answer is printed, a line each.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringfence.protocol import SealedUpdate
from ringfence.shuffler import shuffler as shuffler_module
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store

IN_DEPOSIT = ["before-store", "in-store", "after-store"]
IN_RELEASE = ["before-mix", "before-fix", "in-fix", "before-send"]


def die(*_: object, **__: object) -> Any:
    """End at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with an accident when it has done its work."""

    def wrapped(*given: Any) -> Any:
        function(*given)
        die()

    return wrapped


def arm(point: str) -> None:
    """Place the trap."""
    traps: dict[str, tuple[object, str, Callable[..., Any]]] = {
        "before-store": (Store, "add_deposit", die),
        "in-store": (Store, "add_deposit", dying_after(Store.add_deposit)),  # written, not yet committed
        "after-store": (Shuffler, "_keep", dying_after(Shuffler._keep)),
        "before-mix": (Store, "pooled", die),
        "before-fix": (shuffler_module, "Batch", die),
        "in-fix": (Store, "fix", dying_after(Store.fix)),
        "before-send": (Shuffler, "release", dying_after(Shuffler.release)),
    }
    setattr(*traps[point])


def main(folder: Path, point: str, updates: Path) -> None:
    """Deposit, release, and print what is answered."""
    lines = updates.read_bytes().splitlines()
    with Shuffler.open(folder, seconds=3600.0) as shuffler:
        for number, line in enumerate(lines):
            if point in IN_DEPOSIT and number == len(lines) - 1:
                arm(point)
            print(shuffler.deposit(line), flush=True)
        if point in IN_RELEASE:
            arm(point)
        released = shuffler.release(SealedUpdate.from_bytes(lines[0]).plan, 0)
        print(released.decode() if isinstance(released, bytes) else released, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
