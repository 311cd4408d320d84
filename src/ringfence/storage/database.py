"""A durable SQLite file.

A transaction is on the disk when it ends, all of it or nothing. Several threads and processes may use one file; each
transaction sees all earlier ones. A file that is missing, damaged, moved or replaced is an error, never a fresh start.

Between two transactions everything is in the one file: SQLite keeps a rollback journal, which exists while a
transaction ends, and no write-ahead log, which a copy of the file would leave behind. `synchronous = EXTRA` syncs the
folder too when the journal is deleted, or a loss of power might bring it back and undo what was committed."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ringfence.errors import RingfenceError
from ringfence.storage.files import require_known_format, sync, write_private
from ringfence.storage.stored_file import Closing, Kind

FORMAT = 1
"""The format that is written, and the newest that is read."""

_BUSY_SECONDS = 10.0
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


class Database(Closing):
    """An open file. Given `tables`, it is created first, readable by its owner alone, and never overwrites another.

    `application` identifies a finished file of this kind."""

    def __init__(self, path: Path, kind: Kind, *, application: int = 0, tables: str | None = None) -> None:
        """Open a durable SQLite file, or create it if `tables` are given."""
        self.path = path
        self._kind = kind
        self._lock = threading.RLock()
        self._owner = os.getpid()
        if tables is not None:
            self._claim()
        self._file = self._identity()
        with self._errors_translated():
            # mode=rw: a missing file is an error, not a fresh start that has forgotten what was done.
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(application, tables)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, application: int, tables: str | None) -> None:
        """Create the SQLite file's tables, or check that the file is ours, of a known format and intact."""
        if tables is None:
            is_ours = self.execute("PRAGMA application_id").fetchone() == (application,)
            (stated,) = self.execute("PRAGMA user_version").fetchone()  # the format
            if is_ours:
                require_known_format(f"{self._kind.name} ({self.path})", stated, FORMAT, self._kind.error)
            if not (is_ours and stated):
                raise self.damaged("it belongs to another program, or was not completed")
            if self.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise self.damaged("its pages contradict each other")
        # A write-ahead log, which somebody may have switched on, is taken into the file: copies would leave it behind.
        if self.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):
            raise self._busy()
        for pragma in ("synchronous = EXTRA", "secure_delete = ON", "foreign_keys = ON"):
            self.execute(f"PRAGMA {pragma}").fetchone()
        if tables is not None:
            numbers = f"PRAGMA application_id = {application}; PRAGMA user_version = {FORMAT};"
            self._connection.executescript(f"BEGIN; {tables} {numbers} COMMIT;")

    def _claim(self) -> None:
        """Create the empty SQLite file, for its owner alone; an error if there is one."""
        # O_EXCL: of two processes that make the same file, one fails here.
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise self._kind.error(f"There is already a {self._kind.name} at {self.path}; open it instead.") from None
        except OSError as problem:
            message = f"No {self._kind.name} can be made at {self.path}: {problem.strerror}."
            raise self._kind.unwritable(message) from None

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode of the SQLite file, to notice that it was replaced; None if it is missing."""
        with suppress(OSError):  # opening it says why
            found = os.stat(self.path)
            return found.st_dev, found.st_ino
        return None

    def close(self) -> None:
        """Close the SQLite file; closing twice is fine."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the SQLite file's write lock. What is written inside is synced when the block ends, or is undone."""
        with self._lock, self._errors_translated():
            if self._identity() != self._file:  # what is written now would not be found again
                raise self.damaged("the file was moved or replaced while it was in use")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See one state of the SQLite file in several statements, whatever other processes write meanwhile."""
        with self._lock, self._errors_translated():
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run an SQL statement: only inside `transaction`, or to read inside `snapshot`."""
        return self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run an SQL statement once for each row: only inside `transaction`."""
        self._connection.executemany(statement, rows)

    def copy_to(self, out: Path) -> None:
        """Write one state of the SQLite file to a new, private and synced one, whatever others write meanwhile.

        Nothing that exists is overwritten; of a copy that fails, nothing is left.
        """
        write_private(out, b"", end=b"")
        try:
            with self._lock, self._errors_translated(), closing(sqlite3.connect(out)) as copy:
                self._connection.backup(copy)
            sync(out.parent)  # or the journal, with which SQLite would undo the copy, might come back
        except BaseException:
            out.unlink()
            raise

    def damaged(self, finding: str) -> RingfenceError:
        """Return the error for an SQLite file that cannot be trusted."""
        return self._kind.damaged(
            f"The {self._kind.name} {self.path} cannot be trusted: {finding}. {self._kind.if_damaged}"
        )

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        """Raise our own errors in place of SQLite's while the block runs."""
        if os.getpid() != self._owner:
            raise self._kind.error(f"A {self._kind.name} cannot be used in a forked process: open it again there.")
        try:
            yield
        except sqlite3.Error as problem:
            raise self._translate(problem) from None
        # SQLite's messages about a damaged file need not be text, nor need what stands in it be JSON.
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            raise self.damaged("its content is not readable") from None

    def _busy(self) -> RingfenceError:
        """Return the error that another process is writing the SQLite file."""
        return self._kind.busy(
            f"The {self._kind.name} {self.path} is being written by another process; try again when it has finished."
        )

    def _translate(self, problem: sqlite3.Error) -> RingfenceError:
        """Return our own error in place of SQLite's."""
        name, code = self._kind.name, getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return self._busy()
        if code in _UNWRITABLE:
            return self._kind.unwritable(
                f"The {name} {self.path} could not be written (disk full or write-protected?); nothing was "
                "released. Make room and try again."
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return self._kind.error(f"There is no {name} at {self.path} that this user may open.")
        return self.damaged("SQLite cannot read it")
