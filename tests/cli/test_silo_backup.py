"""`ringfence silo backup` and `restore`, and `verify` of what is not alone: in words and for machines."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json


@pytest.fixture
def folder(federation: Federation) -> Path:
    """The folder of silo 'north', newly made."""
    made = federation.folder / "north-silo"
    ringfence(*federation.silo_init(made))
    return made


def grant(folder: Path, epsilon: float) -> None:
    ringfence("silo", "budget", folder, "--epsilon", epsilon, "--delta", "1e-6", "--note", "a test")


def test_a_backup_is_made_lost_sight_of_and_restored(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "backup.ledger"
    made = ringfence_json("silo", "backup", folder, "--out", out)
    assert (made["out"], made["silo"], made["entries"]) == (str(out), "north", 2)
    (folder / "north.ledger").unlink()
    restored = ringfence_json("silo", "restore", folder, out)
    assert restored == {"silo": "north", "entries": 2, "head": made["head"], "replaced": None}
    again = ringfence("silo", "restore", folder, out)
    assert made["head"] in again.stdout
    assert "north.ledger.replaced-" in again.stdout
    ringfence("silo", "status", folder)


def test_what_cannot_be_backed_up_or_restored_is_refused_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "backup.ledger"
    ringfence("silo", "backup", folder, "--out", out)
    refuses("a backup overwrites nothing", "silo", "backup", folder, "--out", out)
    refuses("the folder nowhere does not exist", "silo", "backup", folder, "--out", "nowhere/file")
    refuses("No such file", "silo", "restore", folder, "none.ledger")
    grant(folder, 4.0)
    refuses("would forget what was released since", "silo", "restore", folder, out)


def test_several_certificates_are_compared_and_a_fork_ends_with_status_1(
    folder: Path, tmp_path: Path, own_state: Path
) -> None:
    older, names = tmp_path / "older.ledger", ("first", "second", "other")
    first, second, other = (str(tmp_path / f"{name}.json") for name in names)
    shutil.copyfile(folder / "north.ledger", older)
    ringfence_json("silo", "certificate", folder, "--out", first)
    grant(folder, 4.0)
    ringfence_json("silo", "certificate", folder, "--out", second)
    shutil.copyfile(older, folder / "north.ledger")
    shutil.rmtree(own_state / "ringfence")
    grant(folder, 5.0)
    ringfence_json("silo", "certificate", folder, "--out", other)
    assert ringfence_json("verify", second, first)["entries"] == 3
    assert "The 2 certificates are from one ledger" in ringfence("verify", first, second).stdout
    refuses("differ from entry 3 on (budget", "verify", first, second, other)
    refuses("holds no run", "verify", first, "--transcript", tmp_path)
