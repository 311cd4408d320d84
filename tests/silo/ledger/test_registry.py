"""The registry of data sets begins once, and is never begun anew where one was lost."""

import os
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import RegistryError
from ringfence.silo.ledger.registry import Registry
from ringfence.silo.records.marks import RowMarks
from ringfence.storage.chain import Draft

ROWS = RowMarks(np.arange(80, dtype=np.uint64).reshape(40, 2))


@pytest.fixture
def folder(own_state: Path) -> Path:
    """Where the user's registry is, which knows one ledger."""
    with Registry() as registry, registry.deciding():
        registry.hold("a" * 64, Path("/data/clinic.ledger"), "clinic", registry.fingerprint(ROWS), settled=True)
    return own_state / "ringfence"


def test_a_reopened_registry_knows_its_ledgers_and_their_data(folder: Path) -> None:
    assert Registry.knows("a" * 64)
    assert not Registry.knows("b" * 64)
    with Registry() as registry:
        [known] = registry.holders(registry.fingerprint(ROWS))
    assert (known.path, known.silo, known.settled) == (Path("/data/clinic.ledger"), "clinic", known.versions[0])


@pytest.mark.parametrize(
    ("lost", "left"), [("registry.sqlite", "fingerprint.key"), ("fingerprint.key", "registry.sqlite")]
)
def test_of_registry_and_key_neither_is_begun_anew_without_the_other(folder: Path, lost: str, left: str) -> None:
    before = (folder / left).read_bytes()
    (folder / lost).rename(aside := folder / "aside")
    with pytest.raises(RegistryError, match=rf"{lost} is missing.*move \S*{left} away"):
        Registry()
    assert (folder / left).read_bytes() == before
    aside.rename(folder / lost)
    assert Registry.knows("a" * 64)


def test_what_a_crash_left_of_a_registry_s_beginning_is_cleared_away(own_state: Path) -> None:
    folder = own_state / "ringfence"
    folder.mkdir(exist_ok=True)
    for name in ("registry.new", "registry.new-journal", "fingerprint.key"):
        (folder / name).write_bytes(b"half of it")
    Registry().close()
    assert {path.name for path in folder.glob("registry.*")} == {"registry.sqlite", "registry.lock"}
    assert len((folder / "fingerprint.key").read_text().strip()) == 64


def test_an_entry_of_a_newer_version_stops_whoever_reads_it(folder: Path) -> None:
    with Registry() as registry, pytest.raises(KeyError), registry.deciding():
        registry._write(Draft("lent", {"ledger": "a" * 64}))
    assert Registry.knows("a" * 64), "nothing was written"
    with Registry() as registry, registry._chain.writing():
        registry._chain.append(Draft("lent", {"ledger": "a" * 64}), registry._number, registry._head)
    with pytest.raises(RegistryError, match="cannot read; nothing is released"):
        Registry()


def test_a_closed_registry_holds_no_file(folder: Path) -> None:
    Registry().close()
    opened = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [path for path in opened if path.startswith(str(folder))]
