"""Power cuts at chosen moments of a ledger's writing, inside one process.

`tests.crashes` kills real processes at every point, which shows that SQLite keeps its word. This is for the many
crashes that generated tests need.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ringfence.silo.channels import own_noise, shuffler
from ringfence.silo.gate import mechanism, sampling
from ringfence.storage.chain import Chain, Draft, Entry

MOMENTS = ("before-append", "after-append", "before-commit", "after-commit")
"""Of an entry that is written: only after the commit is it there."""

STEPS = ("draw", "release", "message")
"""Of a round, between charging and storing."""


class PowerCutError(BaseException):
    """Nothing may catch it, as nothing catches a power cut."""


class _Connection:
    """A connection to SQLite that fails at the commit, before or after it."""

    def __init__(self, real: Any, problem: BaseException, *, committed: bool) -> None:
        self._real = real
        self._problem = problem
        self._committed = committed

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement != "COMMIT":
            return self._real.execute(statement, *parameters)
        if self._committed:
            self._real.execute(statement)
        raise self._problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _fail(*_: Any, **__: Any) -> Any:
    raise PowerCutError


@contextmanager
def power_cut(kind: str, moment: str) -> Iterator[None]:
    """Let the power fail when an entry of this kind is written, or at this step of a round; it must be reached."""
    append = Chain.append

    def watched(self: Chain, draft: Draft, *rest: Any) -> Entry:
        if draft.kind != kind:
            return append(self, draft, *rest)
        if moment == "before-append":
            raise PowerCutError
        entry = append(self, draft, *rest)
        if moment == "after-append":
            raise PowerCutError
        failing: Any = _Connection(self._database._connection, PowerCutError(), committed=moment == "after-commit")
        self._database._connection = failing
        return entry

    with pytest.MonkeyPatch.context() as patch:
        if moment in MOMENTS:
            patch.setattr(Chain, "append", watched)
        elif moment == "draw":
            patch.setattr(sampling, "draw", _fail)
        elif moment == "release":
            patch.setattr(mechanism, "release", _fail)
        else:
            for channel in (own_noise, shuffler):
                patch.setattr(channel, "message", _fail)
        with pytest.raises(PowerCutError):
            yield


@contextmanager
def full_disk(kind: str) -> Iterator[None]:
    """Let SQLite find no room for an entry of this kind at its commit; afterwards there is room again."""
    append, databases = Chain.append, []

    def watched(self: Chain, draft: Draft, *rest: Any) -> Entry:
        entry = append(self, draft, *rest)
        if draft.kind == kind:
            problem = sqlite3.OperationalError("database or disk is full")
            problem.sqlite_errorcode = sqlite3.SQLITE_FULL
            databases.append((self._database, self._database._connection))
            failing: Any = _Connection(self._database._connection, problem, committed=False)
            self._database._connection = failing
        return entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chain, "append", watched)
        yield
    assert databases, "nothing of the kind was written"
    for database, connection in databases:
        database._connection = connection
