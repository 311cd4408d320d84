"""`ringfence silo backup` and `restore`, and `verify` of what is not alone: in words and for machines."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Federation, Json, Ringfence, check_one_sentence


@pytest.fixture
def folder(federation: Federation, ringfence: Ringfence) -> Path:
    """The folder of silo 'north', newly made."""
    made = federation.folder / "north-silo"
    done = ringfence(
        "silo", "init", str(made), "--name", "north", "--data", str(federation.files[0]), "--schema",
        str(federation.schema), "--epsilon", "3", "--delta", "1e-6",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


def grant(ringfence: Ringfence, folder: Path, epsilon: float) -> None:
    done = ringfence("silo", "budget", str(folder), "--epsilon", str(epsilon), "--delta", "1e-6")
    assert done.returncode == 0, done.stderr


def test_a_backup_is_made_lost_sight_of_and_restored(
    folder: Path, ringfence: Ringfence, ringfence_json: Json, tmp_path: Path
) -> None:
    out = tmp_path / "backup.ledger"
    made = ringfence_json("silo", "backup", str(folder), "--out", str(out))
    assert (made["out"], made["silo"], made["entries"]) == (str(out), "north", 2)
    (folder / "north.ledger").unlink()
    restored = ringfence_json("silo", "restore", str(folder), str(out))
    assert restored == {"silo": "north", "entries": 2, "head": made["head"], "replaced": None}
    again = ringfence("silo", "restore", str(folder), str(out))
    assert again.returncode == 0
    assert made["head"] in again.stdout
    assert "north.ledger.replaced-" in again.stdout
    assert ringfence("silo", "status", str(folder)).returncode == 0


def test_what_cannot_be_backed_up_or_restored_is_told_in_a_sentence(
    folder: Path, ringfence: Ringfence, tmp_path: Path
) -> None:
    out = tmp_path / "backup.ledger"
    assert ringfence("silo", "backup", str(folder), "--out", str(out)).returncode == 0
    check_one_sentence(ringfence("silo", "backup", str(folder), "--out", str(out)), "a backup overwrites nothing")
    check_one_sentence(
        ringfence("silo", "backup", str(folder), "--out", "nowhere/file"), "the folder nowhere does not exist"
    )
    check_one_sentence(ringfence("silo", "restore", str(folder), "none.ledger"), "No such file")
    grant(ringfence, folder, 4.0)
    check_one_sentence(ringfence("silo", "restore", str(folder), str(out)), "would forget what was released since")


def test_several_certificates_are_compared_and_a_fork_ends_with_status_1(
    folder: Path, ringfence: Ringfence, ringfence_json: Json, tmp_path: Path, own_state: Path
) -> None:
    older, names = tmp_path / "older.ledger", ("first", "second", "other")
    first, second, other = (str(tmp_path / f"{name}.json") for name in names)
    shutil.copyfile(folder / "north.ledger", older)
    ringfence_json("silo", "certificate", str(folder), "--out", first)
    grant(ringfence, folder, 4.0)
    ringfence_json("silo", "certificate", str(folder), "--out", second)
    shutil.copyfile(older, folder / "north.ledger")
    shutil.rmtree(own_state / "ringfence")
    grant(ringfence, folder, 5.0)
    ringfence_json("silo", "certificate", str(folder), "--out", other)
    assert ringfence_json("verify", second, first)["entries"] == 3
    assert "The 2 certificates are from one ledger" in ringfence("verify", first, second).stdout
    check_one_sentence(ringfence("verify", first, second, other), "differ from entry 3 on (budget")
    check_one_sentence(ringfence("verify", first, "--transcript", str(tmp_path)), "holds no run")
