"""A door that is opened to a group: nothing else may be open to it."""

import grp
import os
import sys
from pathlib import Path

import pytest

from ringfence.errors import SiloError
from ringfence.silo.folder import SiloFolder, SiloSettings
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.setup import create_folder, make_settings
from tests.nursery import completed
from tests.silo.agents import ROOT, SCHEMA

OWN = os.getgid()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "records file.csv"
    path.write_text("a,b,c,ill\n0.1,0.2,0.3,yes\n0.3,0.2,0.1,no\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    path.chmod(0o600)
    return path


def settings_of(data: Path, group: int | None = OWN, **more: str) -> SiloSettings:
    name, schema = None if group is None else grp.getgrgid(group).gr_name, str(data.parent / "schema.toml")
    return make_settings(
        **{"name": "clinic", "data_file": str(data), "courier_group": name, **more}, schema_file=schema
    )


def create(data: Path, group: int | None = OWN) -> SiloFolder:
    return create_folder(data.parent / "clinic", settings_of(data, group), Budget(1.0, 1e-6))


def another_group() -> int:
    return next(entry.gr_gid for entry in grp.getgrall() if entry.gr_gid != OWN)


@pytest.mark.parametrize(
    ("mode", "own_group"), [(0o640, True), (0o644, True), (0o660, True), (0o604, False), (0o644, False)]
)
def test_data_that_couriers_may_read_are_refused_with_what_to_run(data: Path, mode: int, own_group: bool) -> None:
    data.chmod(mode)
    with pytest.raises(SiloError) as refused:
        create(data, OWN if own_group else another_group())
    assert f"run `chmod 600 '{data}'` first" in str(refused.value)
    assert not (data.parent / "clinic").exists()


@pytest.mark.parametrize(("mode", "group"), [(0o600, OWN), (0o400, OWN), (0o604, OWN), (0o644, None)])
def test_data_that_couriers_may_not_read_are_fine_and_without_couriers_all_are(
    data: Path, mode: int, group: int | None
) -> None:
    """Mode 604 too: whoever is in a file's group is not among the others."""
    data.chmod(mode)
    assert (create(data, group).settings.courier_group is None) == (group is None)


@pytest.mark.parametrize("which", ["data", "ledger", "key"])
def test_an_agent_does_not_serve_while_couriers_may_read_what_they_must_not(data: Path, which: str) -> None:
    folder = create(data)
    opened = {"data": data, "ledger": folder.ledger_path, "key": folder.key_path}[which]
    opened.chmod(0o640)
    command = [sys.executable, "-m", "ringfence", "silo", "serve", str(folder.path)]
    done = completed(command, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(opened) in done.stderr
    assert "chmod 600" in done.stderr
