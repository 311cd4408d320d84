"""A process is stopped before each call that changes a file, and what it had not synced may be lost."""

import mmap
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.crashes.disk import Disk, Tree, read_tree
from tests.crashes.stops import stops


def work(folder: Path) -> None:
    """Write a file, sync it, give it another name, sync that, and write some more."""
    (folder / "sub").mkdir()
    file = os.open(folder / "sub" / "new", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(file, b"a" * 1000)
    os.fsync(file)
    (folder / "sub" / "new").rename(folder / "sub" / "file")
    for path in (folder / "sub", folder):
        opened = os.open(path, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)
    os.pwrite(file, b"b" * 1000, 500)
    threads = [threading.Thread(target=os.pwrite, args=(file, b"c", 0))]
    for thread in threads:
        thread.start()
        thread.join()
    (folder / "sub" / "file").unlink()


POINTS = [
    "mkdir sub", "create sub/new", "write sub/new", "sync sub/new", "rename sub/new as sub/file", "sync sub", "sync .",
    "write sub/file", "write sub/file", "remove sub/file",
]  # fmt: skip


def test_every_call_that_changes_or_syncs_a_file_is_a_point_in_every_thread(tmp_path: Path) -> None:
    assert [str(stop) for stop in stops(lambda: work(tmp_path), tmp_path)] == POINTS
    assert read_tree(tmp_path) == {"sub": None}


@pytest.mark.parametrize("point", range(len(POINTS)))
def test_a_process_that_is_killed_has_made_no_call_from_there_on(tmp_path: Path, point: int) -> None:
    with closing(stops(lambda: work(tmp_path), tmp_path)) as living:
        for _ in range(point + 1):
            next(living)
    old, both = b"a" * 1000, b"a" * 500 + b"b" * 1000
    left: list[Tree] = [
        {}, {"sub": None}, {"sub": None, "sub/new": b""}, *[{"sub": None, "sub/new": old}] * 2,
        *[{"sub": None, "sub/file": old}] * 3,
        {"sub": None, "sub/file": both}, {"sub": None, "sub/file": b"c" + both[1:]},
    ]  # fmt: skip
    assert read_tree(tmp_path) == left[point]


def power_failures_at(folder: Path, point: str, work: Callable[[Path], None] = work) -> dict[str, Tree]:
    """Return what a power failure leaves when this call is about to be made for the last time."""
    disk, left = Disk(folder), {}
    for stop in stops(lambda: work(folder), folder):
        disk.follow(stop)
        if str(stop) == point:
            left = disk.power_failures()
    return left


def test_a_power_failure_loses_names_and_content_that_were_not_synced(tmp_path: Path) -> None:
    old = b"a" * 1000
    assert power_failures_at(tmp_path, "sync sub/new") == {
        "all that was not synced": {},
        "content that was not synced": {"sub": None, "sub/new": b""},
        "half of the last write": {"sub": None, "sub/new": old[:500]},
    }


def test_a_power_failure_may_undo_a_name_that_was_not_synced(tmp_path: Path) -> None:
    def rename(folder: Path) -> None:
        (folder / "old").rename(folder / "new")
        (folder / "end").touch()

    (tmp_path / "old").write_bytes(b"kept")
    assert power_failures_at(tmp_path, "create end", rename) == {"all that was not synced": {"old": b"kept"}}


def test_a_power_failure_tears_a_write_between_sectors_or_in_what_it_appends(tmp_path: Path) -> None:
    """The last two writes were not synced: one over bytes 500 to 1500, the other over the first byte."""
    synced, first = b"a" * 1000, b"a" * 500 + b"b" * 1000
    assert power_failures_at(tmp_path, "remove sub/file") == {
        "all that was not synced": {"sub": None, "sub/file": synced},
        "half of the last write": {"sub": None, "sub/file": first},
        "all that was not synced but the last write": {
            "sub": None, "sub/file": b"c" + b"a" * 499 + b"b" * 12 + b"a" * 488,
        },
    }  # fmt: skip


def test_a_change_that_is_no_point_is_noticed(tmp_path: Path) -> None:
    def map_into_memory(folder: Path) -> None:
        with (folder / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            content[:3] = b"new"
        (folder / "end").touch()

    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(AssertionError, match="a change before create end is no point"):
        power_failures_at(tmp_path, "create end", map_into_memory)


def test_a_process_that_fails_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    living = stops((tmp_path / "nowhere").rmdir, tmp_path)
    with pytest.raises(StopIteration) as ended:
        next(living)
    assert ended.value.value == 1
    assert "FileNotFoundError" in capfd.readouterr().err
