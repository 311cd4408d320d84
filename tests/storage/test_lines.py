"""A file of lines only grows, belongs to one process at a time, and loses no more than its torn end."""

import os
from pathlib import Path

import pytest

from ringfence.errors import OutputError, TranscriptError
from ringfence.storage.lines import Lines
from ringfence.storage.stored_file import Kind

KIND = Kind("list", TranscriptError, unwritable=OutputError)


def test_a_new_file_begins_with_its_header_and_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "new" / "list"
    with Lines(path, KIND) as lines:
        lines.recover(0, b"header\n")
        lines.append(b"one\ntwo\n", sync=False)
    path.write_bytes(path.read_bytes() + b"tor")
    with Lines(path, KIND) as lines:
        lines.recover(len(b"header\none\ntwo\n"), b"another header\n")
        lines.append(b"three\n")
    assert path.read_bytes() == b"header\none\ntwo\nthree\n"


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with Lines(tmp_path / "list", KIND), pytest.raises(TranscriptError, match="Another process is writing"):
        Lines(tmp_path / "list", KIND)
    Lines(tmp_path / "list", KIND).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be opened \(Is a directory\)"):
        Lines(tmp_path, KIND)


def test_what_is_synced_is_synced_and_what_need_not_be_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with Lines(tmp_path / "list", KIND) as lines:
        lines.recover(0, b"header\n")
        assert len(synced) == 2, "the file and its folder"
        lines.append(b"one\n", sync=False)
        assert len(synced) == 2
        lines.append(b"two\n")
        assert len(synced) == 3
