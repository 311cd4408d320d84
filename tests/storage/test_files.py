"""Files that others may have put there: only regular ones of a stated size are read, and nothing waits for them."""

import os
import socket
from pathlib import Path

import pytest

from ringfence.errors import PlanError
from ringfence.storage.files import read_file
from ringfence.storage.toml_files import read_toml

LIMIT = 1000


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 * 10**9)  # takes no room on the disk


HOSTILE = pytest.mark.parametrize("put", [pipe, endless, folder, listening, huge])


@HOSTILE
def test_what_is_no_file_or_too_large_is_refused_at_once(put: object, tmp_path: Path) -> None:
    assert callable(put)
    put(path := tmp_path / "plan.json")
    with pytest.raises(PlanError, match=r"^The plan .*plan\.json could not be read: .*\.$"):
        read_file(path, "plan", PlanError)
    with pytest.raises(OSError, match=r"plan\.json"):
        read_toml(path)


@pytest.mark.parametrize("length", [0, 1, LIMIT])
def test_a_file_up_to_the_limit_is_read_whole_also_through_a_link(length: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * length)
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert read_file(tmp_path / name, "plan", PlanError, LIMIT) == b"x" * length


def test_a_file_one_byte_beyond_the_limit_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(PlanError, match=f"it has {LIMIT + 1} bytes, more than the {LIMIT} allowed"):
        read_file(tmp_path / "file", "plan", PlanError, LIMIT)
