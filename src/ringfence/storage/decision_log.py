"""A log with one line for each decision: a JSON object, for people and programs that watch over a service.

It says what was decided, about which round of which plan, and why not: public values, and nothing of a record. Times
are whole seconds, so that it tells nothing about how long anything took to compute. It is for the owner of the folder
alone, and it is no evidence: that is the ledger. What is older than the last megabytes is dropped.
"""

import contextlib
import json
import logging
import os
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Protocol

LONGEST = 4 * 2**20
"""Bytes after which a file is put aside."""

KEPT = 4
"""How many files are kept beside the one that is written: decisions.log.1, the last one put aside, and so on."""


class Note(Protocol):
    """Takes note of a decision."""

    def __call__(self, decision: str, *, plan: str = "", round: int | None = None, reason: str = "") -> None:
        """Take note of what was decided about a round of a plan, and why not, as far as these are known."""


def unnoted(decision: str, *, plan: str = "", round: int | None = None, reason: str = "") -> None:
    """Take no note of a decision: for a service without a decision log."""


class DecisionLog(RotatingFileHandler):
    """The file `decisions.log` of a folder, which only its owner may read, and older files of it.

    If it cannot be written, that is reported once, and all else continues.
    """

    def __init__(self, folder: Path) -> None:
        """Write the decision log `decisions.log` in the folder."""
        super().__init__(folder / "decisions.log", maxBytes=LONGEST, backupCount=KEPT, encoding="utf-8", delay=True)
        self._complained = False

    def __call__(
        self, decision: str, *, plan: str = "", round: int | None = None, reason: str = "", head: int | None = None
    ) -> None:
        """Write a line; `head` is the number of the ledger's last entry, where there is a ledger."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        fields = {"time": time, "decision": decision, "reason": reason, "plan": plan, "round": round, "head": head}
        line = json.dumps({name: value for name, value in fields.items() if value not in ("", None)})
        self.handle(logging.makeLogRecord({"msg": line}))

    def _open(self) -> TextIOWrapper:
        """Open the decision log's file, for its owner alone."""
        return open(self.baseFilename, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))

    def handleError(self, record: Any) -> None:  # noqa: N802 (logging's name)
        """Report once that the decision log cannot be written."""
        if self._complained:
            return
        self._complained = True
        problem = sys.exc_info()[1]
        why = problem.strerror if isinstance(problem, OSError) else type(problem).__name__
        with contextlib.suppress(OSError):  # what is printed may go to the same full disk
            print(  # noqa: T201 (to the operator)
                f"ringfence: {self.baseFilename} cannot be written ({why}): decisions continue, but are not logged. "
                "Make room, or let this user write there.",
                file=sys.stderr,
                flush=True,
            )
