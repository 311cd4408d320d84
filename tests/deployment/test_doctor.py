"""`ringfence doctor` finds what is wrong with real folders, says what to do, and shows no record."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.deployment import doctor
from ringfence.deployment.doctor import Diagnosis, examine
from ringfence.deployment.nvflare import policy
from ringfence.shuffler.store import Store
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.setup import create_folder, make_settings
from tests.certificates import write_certificate
from tests.deployment.kits import Kits, make_kits
from tests.processes import ringfence
from tests.shuffler.depositors import set_up
from tests.shuffler.test_witness import opened, two_of_three

SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 120}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""


@pytest.fixture
def silo(tmp_path: Path) -> Path:
    """A silo's folder, and the data beside it."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    data = tmp_path / "records.csv"
    data.write_text("age,ill\n61.25,yes\n48,no\n")
    data.chmod(0o600)
    settings = make_settings(
        name="north", data_file=str(data), schema_file=str(tmp_path / "schema.toml"), port=None,
        courier_group=None,
    )  # fmt: skip
    return create_folder(tmp_path / "silo", settings, Budget(1.0, 1e-6)).path


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return make_kits(tmp_path_factory.mktemp("federation") / "kits", "localhost", ["north"])


@pytest.fixture
def kit(silo: Path, kits: Kits, tmp_path: Path) -> Path:
    own = shutil.copytree(kits.silos["north"], tmp_path / "kit")
    policy.join_kit(silo, own, kits.responses["north"])
    return own


def wrong(*paths: Path) -> list[Diagnosis]:
    """Return what is wrong, but for the owner: who runs the tests may be root."""
    return [finding for finding in examine(list(paths)) if not finding.well and finding.check != "user"]


def test_nothing_is_wrong_with_a_new_silo_its_kit_and_a_shuffler(silo: Path, kit: Path, tmp_path: Path) -> None:
    Store.create(tmp_path / "mixer").close()
    findings = examine([silo, kit, tmp_path / "mixer"])
    assert [finding for finding in findings if not finding.well and finding.check != "user"] == []
    seen = {(finding.place, finding.check) for finding in findings}
    assert {("this machine", "python"), ("this machine", "dependencies"), ("this machine", "state")} <= seen
    assert {(str(silo), check) for check in ("disk", "clock", "permissions", "ledger", "records")} <= seen
    assert {(str(kit), "certificates"), (str(kit), "policy"), (str(tmp_path / "mixer"), "store")} <= seen


def _open_key(silo: Path) -> None:
    (silo / "signing.key").chmod(0o640)


def _lose_group(silo: Path) -> None:
    (silo / "silo.toml").write_text((silo / "silo.toml").read_text() + 'courier_group = "no-such-group"\n')


def _damage_ledger(silo: Path) -> None:
    with closing(sqlite3.connect(silo / "north.ledger")) as ledger, ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            ledger.execute(f"DROP TRIGGER {trigger}")
        ledger.execute("UPDATE entries SET body = '{}' WHERE number = 2")


@pytest.mark.parametrize(
    ("harm", "check", "says"),
    [
        (lambda silo, data: silo.chmod(0o755), "permissions", "chmod 700"),
        (lambda silo, data: _open_key(silo), "permissions", "chmod 600"),
        (lambda silo, data: data.chmod(0o644), "permissions", "Every user of this machine can read the records"),
        (lambda silo, data: _damage_ledger(silo), "ledger", "cannot be trusted"),
        (lambda silo, data: (silo / "signing.key").write_text("short"), "signing key", "restore it"),
        (lambda silo, data: data.write_text("age,ill\nsecret-61.25,yes\n"), "records", "row"),
        (lambda silo, data: data.unlink(), "records", "records.csv"),
        (lambda silo, data: data.write_text("age,ill\n61.25,yes\n48,no\n50,no\n"), "records", "silo update"),
        (lambda silo, data: (silo / "copy").hardlink_to(silo / "north.ledger"), "records", "remove all names but one"),
        (lambda silo, data: os.utime(silo / "silo.toml", (4e9, 4e9)), "clock", "The clock is slow"),
        (lambda silo, data: _lose_group(silo), "couriers", "groupadd no-such-group"),
    ],
)
def test_what_is_wrong_with_a_silo_is_named_with_what_to_do(
    silo: Path, harm: Callable[[Path, Path], None], check: str, says: str
) -> None:
    harm(silo, silo.parent / "records.csv")
    found = wrong(silo)
    assert check in [finding.check for finding in found]
    assert says in " ".join(finding.says for finding in found if finding.check == check)
    assert not any("61.25" in finding.says for finding in found), "a record was shown"


def test_a_shuffler_that_is_an_older_copy_or_open_to_others_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "mixer"
    silos = set_up(folder)
    older = (folder / "shuffler.db").read_bytes()
    with opened(folder, seconds=0.0) as served:
        two_of_three(served, silos)
    assert wrong(folder) == []
    (folder / "shuffler.db").write_bytes(older)
    (folder / "shuffler.key").chmod(0o644)
    assert [finding.check for finding in wrong(folder)] == ["permissions", "store"]


@pytest.mark.parametrize(("days", "says"), [(11, "expires in 10 days"), (-1, "expired on")])
def test_a_kit_whose_certificate_ends_soon_or_has_ended_is_found(
    kit: Path, tmp_path: Path, days: int, says: str
) -> None:
    write_certificate(tmp_path, "north", days=days)[0].replace(kit / "startup" / "client.crt")
    [finding] = wrong(kit)
    assert finding.check == "certificates"
    assert says in finding.says


def test_a_kit_that_is_permissive_open_or_not_joined_is_found(kit: Path) -> None:
    (kit / "startup" / "client.key").chmod(0o640)
    resources = kit / "local" / "resources.json"
    resources.write_text(json.dumps({**json.loads(resources.read_text()), "class_allow_list": ["*"]}))
    assert [finding.check for finding in wrong(kit)] == ["permissions", "policy"]
    (kit / "local" / "ringfence.toml").unlink()
    assert "belongs to no silo yet" in wrong(kit)[-1].says


def test_a_full_disk_is_found_before_the_ledger_meets_it(silo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ROOM", shutil.disk_usage(silo).total)
    assert [finding.check for finding in wrong(silo)] == ["disk"]


def test_a_package_of_another_version_than_is_needed_is_found(tmp_path: Path) -> None:
    """A real environment in which a package says that it is another version."""
    _install(tmp_path, "numpy", "1.2.3")
    done = subprocess.run(
        [sys.executable, "-m", "ringfence", "doctor", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    [finding] = [each for each in json.loads(done.stdout)["findings"] if not each["well"]]
    assert finding["check"] == "dependencies"
    assert "numpy>=2.0 is needed, but 1.2.3 is installed" in finding["says"]


def _install(folder: Path, name: str, version: str, *requires: str) -> None:
    """Put a package's own description there, and nothing else of it."""
    (folder / f"{name}-{version}.dist-info").mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        ({"numpy": "2.1"}, "2 packages as required"),
        ({"numpy": "2.1", "flwr": "1.41.3"}, "click<8.5 is needed, but 8.5.1 is installed"),
        ({}, "numpy>=2.0 is needed, but none is installed"),
    ],
)
def test_what_an_extra_needs_counts_where_all_of_it_is_there(
    tmp_path: Path, installed: dict[str, str], says: str
) -> None:
    """Without Flower, its demand for an older click is nobody's."""
    needs = ["numpy>=2.0", "click>=8", "flwr>=1.41,<1.42; extra == 'flower'", "click<8.5; extra == 'flower'"]
    _install(tmp_path, "ringfence", "0.3.0", *needs)
    for name, version in {"click": "8.5.1", **installed}.items():
        _install(tmp_path, name, version)
    source = Path(doctor.__file__).parents[2]
    look = "from ringfence.deployment.doctor import examine; print(*(found.says for found in examine([])), sep='\\n')"
    printed = subprocess.check_output(
        [sys.executable, "-S", "-c", look], text=True, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{source}"}
    )
    assert says in printed


def test_the_command_prints_all_and_ends_with_the_status_that_scripts_need(silo: Path) -> None:
    well = ringfence("doctor")
    assert (well.returncode, well.stderr) == (0, "")
    assert "ok    python: Python 3" in well.stdout
    _open_key(silo)
    ill = ringfence("doctor", silo)
    assert (ill.returncode, ill.stderr) == (1, "")
    assert f"WRONG permissions: {silo / 'signing.key'} is open to other users" in ill.stdout
    assert [each["check"] for each in json.loads(ringfence("doctor", silo, "--json").stdout)["findings"]][:3] == [
        "python", "dependencies", "state",
    ]  # fmt: skip
    nothing = ringfence("doctor", silo.parent / "nowhere")
    assert nothing.returncode == 1
    assert "is not a folder of Ringfence" in nothing.stderr


def test_a_folder_of_roots_is_found_and_anothers_names_its_owner(silo: Path) -> None:
    owner = silo.stat().st_uid
    [found] = [finding for finding in examine([silo]) if finding.check == "user"]
    assert found.well == (owner != 0)
    if owner == 0:
        assert "belongs to root" in found.says
        shutil.chown(silo, "games")
        [found] = [finding for finding in examine([silo]) if finding.check == "user"]
        assert "runuser -u games" in found.says
