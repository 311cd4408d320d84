"""How far a chain has come, kept apart from it: what is read, what is refused, and that it never runs ahead."""

import fcntl
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError, LedgerError, LedgerWriteError
from ringfence.storage import watermark
from ringfence.storage.stored_file import Kind
from ringfence.storage.watermark import Watermark

KIND = Kind("mark", LedgerError, damaged=LedgerDamagedError, unwritable=LedgerWriteError, if_damaged="Compare it.")
FIRST, SECOND = "1" * 64, "2" * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "heads" / "mark"


def said(path: Path) -> tuple[int, str]:
    with Watermark(path, KIND, (99, "9" * 64)) as mark:
        return mark.read()


def test_a_new_one_says_what_it_is_given_and_is_its_owner_s_alone(path: Path) -> None:
    with Watermark(path, KIND, (3, FIRST)) as mark:
        assert mark.read() == (3, FIRST)
    assert said(path) == (3, FIRST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["mark"]
    assert path.stat().st_size < 512


def test_it_is_raised_and_never_lowered(path: Path) -> None:
    with Watermark(path, KIND, (3, FIRST)) as mark:
        mark.raise_to(2, SECOND, lambda number, digest: True)
        assert mark.read() == (3, FIRST)
        mark.raise_to(12345678901234567890, SECOND, lambda number, digest: (number, digest) == (3, FIRST))
    assert said(path) == (12345678901234567890, SECOND)


def test_it_is_not_raised_by_a_chain_that_lacks_what_it_says(path: Path) -> None:
    with Watermark(path, KIND, (3, FIRST)) as mark:
        mark.raise_to(9, SECOND, lambda number, digest: False)
        assert mark.read() == (3, FIRST)
        mark.set(2, SECOND)
        assert mark.read() == (2, SECOND)


def test_a_process_that_stopped_with_the_lock_keeps_nobody_from_reading_nor_from_going_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark, "_PATIENCE", 0.1)
    with Watermark(path, KIND, (3, FIRST)) as mark, path.open() as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        mark.raise_to(9, SECOND, lambda number, digest: True)
        assert mark.read() == (3, FIRST)
        fcntl.flock(stopped, fcntl.LOCK_UN)
        mark.raise_to(9, SECOND, lambda number, digest: True)
        assert mark.read() == (9, SECOND)


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\n",
        lambda content: content.replace(b"3", b"2", 1),
        lambda content: content.replace(b"1" * 64, b"2" * 64),
        lambda content: b"\0" * len(content),
        lambda content: content * 9,
    ],
)
def test_one_that_is_not_as_we_wrote_it_is_refused_and_left_as_it_is(path: Path, edit: object) -> None:
    assert callable(edit)
    Watermark(path, KIND, (3, FIRST)).close()
    path.write_bytes(edit(path.read_bytes()))
    before = path.read_bytes()
    with Watermark(path, KIND, (4, SECOND)) as mark:
        with pytest.raises(LedgerDamagedError, match=r"The mark .* is damaged, or was edited\. Compare it\."):
            mark.read()
        mark.raise_to(5, SECOND, lambda number, digest: True)
    assert path.read_bytes() == before


def test_the_error_for_a_place_where_none_can_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerWriteError, match=r"cannot be written \(.*XDG_STATE_HOME"):
        Watermark(tmp_path / "file" / "mark", KIND, (1, FIRST))


def test_of_many_at_once_the_highest_stands_and_every_reading_is_whole(path: Path) -> None:
    Watermark(path, KIND, (1, FIRST)).close()
    seen: list[tuple[int, str]] = []

    def work(start: int) -> None:
        with closing(Watermark(path, KIND, (1, FIRST))) as mark:
            for number in range(start, 2000, 4):
                mark.raise_to(number, f"{number:064x}", lambda number, digest: True)
                seen.append(mark.read())

    threads = [threading.Thread(target=work, args=(start,)) for start in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said(path) == (1999, f"{1999:064x}")
    assert len(seen) == 1998
    assert all(digest == (FIRST if number == 1 else f"{number:064x}") for number, digest in seen)
