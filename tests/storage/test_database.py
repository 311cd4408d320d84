"""A SQLite file: which ones are opened, and how others are refused."""

import resource
import shutil
import signal
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError, LedgerError, LedgerWriteError
from ringfence.storage.database import Database
from ringfence.storage.stored_file import Kind

KIND = Kind("book", LedgerError, damaged=LedgerDamagedError, unwritable=LedgerWriteError, if_damaged="Find another.")
TABLES = "CREATE TABLE pages (text TEXT);"
OURS = 0x626F6F6B


def numbers(path: Path, *statements: str) -> tuple[int, int]:
    """Run statements on a file, as another program would; return its application's number and its format."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (stated,) = connection.execute("PRAGMA user_version").fetchone()
    return application, stated


def opened(path: Path) -> Database:
    return Database(path, KIND, application=OURS)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Path]:
    """A file with one page."""
    path = tmp_path / "book.db"
    with closing(Database(path, KIND, application=OURS, tables=TABLES)) as database:
        with database.transaction():
            database.execute("INSERT INTO pages VALUES ('one')")
        yield path


def test_a_new_file_is_its_owner_s_alone_and_states_whose_it_is_and_its_format(book: Path) -> None:
    assert stat.S_IMODE(book.stat().st_mode) == 0o600
    assert numbers(book) == (OURS, 1)
    with pytest.raises(LedgerError, match="There is already a book at"):
        Database(book, KIND, application=OURS, tables=TABLES)


def test_a_file_of_a_newer_format_is_left_alone_and_the_error_says_what_to_install(book: Path) -> None:
    numbers(book, "PRAGMA user_version = 2", "PRAGMA wal_checkpoint(TRUNCATE)")
    before = book.read_bytes()
    with pytest.raises(
        LedgerError, match=r"This book \(.*\) has format 2, and this version .* up to 1: install a newer"
    ):
        opened(book)
    assert book.read_bytes() == before


@pytest.mark.parametrize(("application", "stated"), [(7, 99), (OURS, 0)])
def test_another_program_s_file_is_no_file_of_a_newer_version(book: Path, application: int, stated: int) -> None:
    numbers(book, f"PRAGMA application_id = {application}", f"PRAGMA user_version = {stated}")
    with pytest.raises(LedgerDamagedError, match=r"another program, or was not completed\. Find another"):
        opened(book)


def test_a_missing_file_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="There is no book at"):
        opened(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerWriteError, match="No book can be made at"):
        Database(tmp_path / "nowhere" / "book.db", KIND, tables=TABLES)


def test_a_file_that_is_none_of_sqlite_s_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "book.db").write_bytes(b"once upon a time " * 100)
    with pytest.raises(LedgerDamagedError, match="SQLite cannot read it"):
        opened(tmp_path / "book.db")


def test_what_fails_within_a_transaction_is_undone(book: Path) -> None:
    def write_half(database: Database) -> None:
        with database.transaction():
            database.execute("INSERT INTO pages VALUES ('two')")
            raise KeyboardInterrupt

    with closing(opened(book)) as database:
        with pytest.raises(KeyboardInterrupt):
            write_half(database)
        with database.snapshot():
            assert database.execute("SELECT count(*) FROM pages").fetchone() == (1,)


def test_a_file_that_was_replaced_while_in_use_is_written_no_more(book: Path) -> None:
    with closing(opened(book)) as database:
        book.rename(book.with_name("elsewhere.db"))
        with pytest.raises(LedgerDamagedError, match="moved or replaced while it was in use"), database.transaction():
            pass


def test_between_two_transactions_everything_stands_in_the_one_file(book: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "book.db"
    copy.parent.mkdir()
    with closing(opened(book)) as database:
        for number in range(20):
            with database.transaction():
                database.execute("INSERT INTO pages VALUES (?)", (f"page {number}",))
            shutil.copyfile(book, copy)
            with closing(opened(copy)) as copied, copied.snapshot():
                assert copied.execute("SELECT count(*) FROM pages").fetchone() == (number + 2,)
            assert [file.name for file in copy.parent.iterdir()] == ["book.db"]


def test_a_file_with_a_write_ahead_log_is_taken_into_one_file(book: Path) -> None:
    with closing(sqlite3.connect(book)) as older:
        assert older.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    with closing(opened(book)) as database, database.snapshot():
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert database.execute("SELECT text FROM pages").fetchall() == [("one",)]


def test_a_copy_is_its_owner_s_alone_and_overwrites_nothing(book: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.db"
    with closing(opened(book)) as database:
        database.copy_to(out)
        with pytest.raises(FileExistsError):
            database.copy_to(out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with closing(opened(out)) as copied, copied.snapshot():
        assert copied.execute("SELECT text FROM pages").fetchall() == [("one",)]


def test_of_a_copy_that_fails_nothing_is_left(book: Path, tmp_path: Path) -> None:
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with closing(opened(book)) as database:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, old_limit[1]))
            with pytest.raises(LedgerWriteError):
                database.copy_to(tmp_path / "copy.db")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
            signal.signal(signal.SIGXFSZ, old_handler)
    assert [file.name for file in tmp_path.iterdir()] == ["book.db"]
