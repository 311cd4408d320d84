"""systemd units: systemd itself reads them and finds little exposed, and they name what they must."""

import json
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.deployment.systemd import Network, SystemdService, write_units
from ringfence.errors import DeploymentError
from tests.deployment.agents import Federation
from tests.deployment.kits import make_kits
from tests.processes import ringfence

EXPOSURE = {"agent": 1.0, "page": 2.0, "shuffler": 2.0, "courier": 2.0, "engine": 2.0, "run": 2.0}
"""The most that `systemd-analyze security` may find, of 10: below 2.0 it says OK, below 1.0 SAFE."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with a silo, a kit for it, an engine's kit and a shuffler; as root, each of a user who is not."""
    made = Path(tempfile.mkdtemp(prefix="ringfence services: 100% ", dir="/tmp"))
    made.chmod(0o755)
    Federation(made, ["north"])
    kits = make_kits(made / "kits", "localhost:8002", ["north"])
    kits.silos["north"].rename(made / "kit")
    kits.server.rename(made / "engine")
    response = made / "kits" / "north.response"
    ringfence("silo", "join", made / "north", made / "kit", response, check=True)
    ringfence("shuffler", "init", made / "mixer", check=True)
    (made / "run").mkdir()
    (made / "plan.json").write_text("{}")
    users = {"north": "games", "kit": "lp", "engine": "www-data", "run": "www-data", "mixer": "backup"}
    for name, user in users.items():
        subprocess.run(["chown", "-R", f"{user}:", made / name], check=True)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def units(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All units, written by our commands."""
    out = tmp_path_factory.mktemp("units")
    written: list[str] = []
    for command in (
        ["silo", "service", folder / "north", "--kit", folder / "kit", "--page", "8080"],
        ["shuffler", "service", folder / "mixer"],
        ["server", "service", folder / "engine", "--", folder / "plan.json", "--folder", folder / "run"],
    ):
        place = command.index("--") if "--" in command else len(command)
        command[place:place] = ["--out", out, "--json"]
        written += json.loads(ringfence(*command, check=True).stdout)["units"]
    return {Path(file).name.split("-")[1].removesuffix(".service"): Path(file) for file in written}


def test_there_is_a_unit_for_every_role(units: dict[str, Path]) -> None:
    assert set(units) == set(EXPOSURE)


@pytest.mark.parametrize("role", EXPOSURE)
def test_systemd_reads_a_unit_without_a_complaint_and_finds_little_exposed(units: dict[str, Path], role: str) -> None:
    read = subprocess.run(["systemd-analyze", "verify", units[role]], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    looked = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", units[role]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", looked.stdout)
    assert found is not None, looked.stderr
    assert float(found[1]) < EXPOSURE[role], looked.stdout


def settings(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] != "#")


def test_each_service_runs_as_its_folders_owner_and_writes_only_there(units: dict[str, Path], folder: Path) -> None:
    owners = {"agent": "games", "page": "games", "courier": "lp", "engine": "www-data", "run": "www-data"}
    owners["shuffler"] = "backup"
    assert {role: settings(unit)["User"] for role, unit in units.items()} == owners
    folders = {"agent": "north", "courier": "kit", "engine": "engine", "run": "run", "shuffler": "mixer"}
    for role, name in folders.items():
        own = settings(units[role])
        assert own["ReadWritePaths"] == f'"{folder / name}"'.replace("%", "%%")
        assert own["StateDirectory"] == f"ringfence-{own['User']}"
    courier = units["courier"].read_text()
    assert "records" not in courier
    assert f"{folder / 'north'}.csv" not in courier, "a courier has no business with the data"


def test_an_agent_behind_a_socket_has_no_network_and_one_at_a_port_has_this_machine(
    units: dict[str, Path], folder: Path
) -> None:
    agent = settings(units["agent"])
    assert (agent["PrivateNetwork"], agent["RestrictAddressFamilies"]) == ("yes", "AF_UNIX")
    page = settings(units["page"])
    assert "PrivateNetwork" not in page
    assert (page["IPAddressDeny"], page["IPAddressAllow"]) == ("any", "localhost")


def test_engine_and_run_share_the_folder_of_the_wire_between_them(units: dict[str, Path]) -> None:
    shared = {settings(units[role])["RuntimeDirectory"] for role in ("engine", "run")}
    assert shared == {"ringfence-server"}
    alone = [settings(units[role])["RuntimeDirectory"] for role in ("agent", "courier", "shuffler")]
    assert len(set(alone)) == 3


def service(folder: Path, **changes: object) -> SystemdService:
    settings = {"name": "ringfence-x", "purpose": "x", "command": ["silo", "serve", folder], "folder": folder}
    return SystemdService(**{**settings, "network": Network.NONE, **changes})  # type: ignore[arg-type]


def test_what_a_path_holds_never_becomes_a_setting_or_a_variable(folder: Path, tmp_path: Path) -> None:
    odd = folder / 'a "b" $HOME \\ c:d'
    odd.mkdir(exist_ok=True)
    shutil.chown(odd, "games")
    [file] = write_units([service(odd)], tmp_path)
    read = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    assert "$HOME" not in settings(file)["ExecStart"].replace("$$HOME", "")
    with pytest.raises(DeploymentError, match="control characters"):
        service(folder / "mixer", command=["x\nExecStartPre=evil"]).unit()


def test_no_service_runs_as_root_and_no_courier_as_the_silos_own_user(folder: Path, tmp_path: Path) -> None:
    root = next(path for path in (Path("/usr"), Path("/etc")) if path.stat().st_uid == 0)
    with pytest.raises(DeploymentError, match="our services never run as root"):
        service(root).unit()
    shutil.chown(folder / "kit", "games")
    try:
        done = ringfence("silo", "service", folder / "north", "--kit", folder / "kit", "--out", tmp_path)
    finally:
        shutil.chown(folder / "kit", "lp")
    assert done.returncode == 1
    assert "the courier could read the records" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_runs_options_is_found_when_the_unit_is_written(folder: Path, tmp_path: Path) -> None:
    wrong = ["--", folder / "plan.json", "--foldr", "x"]
    done = ringfence("server", "service", folder / "engine", "--out", tmp_path, *wrong)
    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_user_with_a_home_has_its_state_there_so_that_its_commands_share_it(folder: Path) -> None:
    owned = next(
        entry for entry in pwd.getpwall()
        if entry.pw_uid != 0 and Path(entry.pw_dir).is_dir() and Path(entry.pw_dir).stat().st_uid == entry.pw_uid
    )  # fmt: skip
    own = folder / "own"
    own.mkdir(exist_ok=True)
    shutil.chown(own, owned.pw_name)
    made = service(own)
    assert made.state() == Path(owned.pw_dir) / ".local" / "state"
    bound = next(line for line in made.unit().splitlines() if line.startswith("BindPaths="))
    assert f"{owned.pw_dir}/.local/state/ringfence" in bound
