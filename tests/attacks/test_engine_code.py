"""Code that is sent through the engine, by whoever holds the federation's authority: nothing of it runs at a silo.

A real federation over mutual TLS. Whoever holds the authority issues a certificate with the role `super`, which
NVFlare lets past every rule. Of the three silos west has the policy of version 0.2, to show that the attack works, and
south has our validator without the doorkeeper before it, to show that each holds alone.
"""

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.deployment.nvflare import policy
from ringfence.deployment.nvflare.job import fault_of_job, job_file_bytes, job_files
from ringfence.deployment.nvflare.kit import write_settings
from ringfence.deployment.nvflare.launch import engine_environment
from ringfence.deployment.processes import Family
from ringfence.deployment.tour import SIZES, Ground
from ringfence.protocol import load_plan
from tests.deployment.agents import until
from tests.deployment.kits import administrator, make_kits, run_script

THIEF = """
import os, pathlib
site = pathlib.Path(os.getcwd()).name
rows = pathlib.Path({records!r}, site + ".csv").read_text()
pathlib.Path({loot!r}, site).write_text(rows)
from nvflare.apis.executor import Executor
class Thief(Executor):
    def execute(self, *_): return None
"""

SUBMIT = """
import sys
from nvflare.fuel.flare_api.flare_api import new_secure_session
session = new_secure_session(sys.argv[1], sys.argv[2], timeout=60)
job = session.submit_job(sys.argv[3])
session.monitor_job(job, timeout=240, poll_interval=0.5)
print("status", session.get_job_meta(job)["status"])
session.close()
"""

COMMANDS = """
import sys
from nvflare.fuel.flare_api.flare_api import new_secure_session
session = new_secure_session(sys.argv[1], sys.argv[2], timeout=60)
for site in ("north", "west"):
    for command in (session.cat_target, session.head_target, session.tail_target):
        try:
            print(site, command(site, file="local/authorization.json"))
        except Exception as problem:
            print(site, "refused", type(problem).__name__, problem)
session.close()
"""


def weaken(kit: Path, *, validator: bool) -> None:
    """Take the doorkeeper out of a kit's policy, and maybe the validator, which makes it the policy of version 0.2."""
    file = kit / "local" / "resources.json"
    resources = json.loads(file.read_text())
    if not validator:
        del resources["app_validator"]
    resources["components"] = [part for part in resources["components"] if part["id"] != "app_deployer"]
    write_settings(file, resources)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A federation that runs: the engine's server, three agents, three couriers of which two are careless."""
    folder = tmp_path_factory.mktemp("attacked")
    with Family(folder) as family:
        made = Ground(folder, family)
        made.prepare(rounds=12, epsilon=1.0)
        made.start_server()
        made.start_site(made.sites[0])
        program = [sys.executable, "-u", "-m", "nvflare.private.fed.app.client.client_train"]
        for site in made.sites[1:]:  # which `silo courier` would not start
            weaken(site.kit, validator=site.name == "south")
            family.start(f"agent of {site.name}", ["silo", "serve", site.folder])
            settings = ["--set", "secure_train=true", f"uid={site.name}", "org=ringfence", "config_folder=config"]
            family.start(f"courier of {site.name}", ["-m", site.kit, "-s", "fed_client.json", *settings], program)
        yield made


@pytest.fixture(scope="module")
def attacker(ground: Ground) -> tuple[str, Path]:
    """Whoever holds the authority, with a certificate of the role `super`."""
    settings = json.loads((ground.sites[0].kit / "startup" / "fed_client.json").read_text())
    server = settings["servers"][0]["service"]["target"]
    kit = ground.folder / "attacker"
    return administrator(ground.kits / "authority", kit, server, "super"), kit


def wait_for_everybody(ground: Ground) -> None:
    logs = [site.kit / "log.txt" for site in ground.sites]
    until(lambda: all(log.exists() and "Connected to server" in log.read_text() for log in logs))


def write_job(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write our job, but for a change to a site's settings."""
    for file, content in job_files("/nowhere").items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if file.endswith("client.json"):
            change(content)
        (folder / file).write_bytes(job_file_bytes(content))
    return folder


def test_code_under_a_super_certificate_runs_at_a_site_of_version_0_2_and_nowhere_else_and_our_job_runs_after_it(
    ground: Ground, attacker: tuple[str, Path], tmp_path: Path
) -> None:
    loot = tmp_path / "loot"
    loot.mkdir()
    job = write_job(tmp_path / "job", lambda client: client["executors"][0]["executor"].update(path="thief.Thief"))
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "thief.py").write_text(THIEF.format(records=str(ground.folder), loot=str(loot)))
    wait_for_everybody(ground)
    printed = run_script(SUBMIT, *attacker, job)
    assert "status FINISHED" in printed, printed
    assert {file.name: file.read_text() for file in loot.iterdir()} == {
        "west": (ground.folder / "west.csv").read_text()
    }
    for site in ground.sites[:2]:
        assert "a job was refused: it has f" in (site.kit / "log.txt").read_text()  # files, or folders

    ground.family.run([*ground.server_run(), "--quorum", "all"])
    report = json.loads((ground.folder / "run" / "report.json").read_text())
    rounds = load_plan(ground.plan).rounds
    assert {name: silo["answered"] for name, silo in report["silos"].items()} == dict.fromkeys(SIZES, rounds)


def test_commands_under_a_super_certificate_show_no_file_of_a_site(ground: Ground, attacker: tuple[str, Path]) -> None:
    wait_for_everybody(ground)
    printed = run_script(COMMANDS, *attacker)
    north, west = printed.split("west", 1)
    assert "shell_commands" in west, printed  # which stands in the file
    assert "shell_commands" not in north
    assert north.count("invalid_request") == 3, printed


def test_a_site_keeps_its_settings_when_a_server_names_a_job_after_their_folder(tmp_path: Path) -> None:
    from nvflare.apis.workspace import Workspace

    kits = make_kits(tmp_path / "federation", "localhost", ["north"])
    kit = kits.silos["north"]
    (tmp_path / "silo").mkdir()
    policy.join_kit(tmp_path / "silo", kit, kits.responses["north"])
    packed = tmp_path / "app.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file, content in job_files("/nowhere").items():
            if file.startswith("app/"):
                archive.writestr(file.removeprefix("app/"), job_file_bytes(content))
    done = run_script(
        "import sys\n"
        "from pathlib import Path\n"
        "from nvflare.apis.workspace import Workspace\n"
        "from ringfence.deployment.nvflare.site import Doorkeeper\n"
        "keeper, workspace, app = Doorkeeper(), Workspace(sys.argv[1], 'north'), Path(sys.argv[2]).read_bytes()\n"
        "for job in ('local', 'startup', '../silo', '1b0e5c0e-8c0f-4a53-9d6c-0f2f5b1f9a11'):\n"
        "    print(job, '->', keeper.deploy(workspace, job, {'job_id': job}, 'app', app, None))\n"
        "print('another ->', keeper.deploy(workspace, job, {'job_id': 'local'}, 'app', app, None))\n",
        kit,
        packed,
    )
    assert done.count("refused by the silo: its id") == 4, done
    assert "9a11 -> \n" in done, done  # and one as NVFlare names them is unpacked
    assert Path(Workspace(str(kit), "north").get_app_config_dir("1b0e5c0e-8c0f-4a53-9d6c-0f2f5b1f9a11")).is_dir()
    policy.check_policy(kit, tmp_path / "silo")


OURS = {
    file.removeprefix("app/"): job_file_bytes(content)
    for file, content in job_files("/tmp/wire").items()
    if "app" in file
}
SERVER, CLIENT = "config/config_fed_server.json", "config/config_fed_client.json"


def changed(file: str, **settings: Any) -> dict[str, bytes]:
    """Our job, with other settings in a file."""
    return {**OURS, file: job_file_bytes({**json.loads(OURS[file]), **settings})}


def test_our_own_job_is_admitted_with_any_wire_signed_or_not() -> None:
    signed = dict.fromkeys((".__nvfl_sig.json", "config/.__nvfl_sig.json", "config/.__nvfl_submitter.crt"), b"x")
    assert fault_of_job(OURS) is None
    assert fault_of_job({**OURS, **signed}) is None
    assert fault_of_job({**OURS, SERVER: job_file_bytes(job_files("/another/wire")[f"app/{SERVER}"])}) is None


@pytest.mark.parametrize(
    "app",
    [
        {**OURS, "custom/thief.py": b""},
        {**OURS, "config/thief.py": b""},
        {**OURS, "config/config_fed_client.conf": b"{}"},
        {**OURS, "config/config_fed_client.yml": b"{}"},
        {**OURS, "config/log_config.json": b"{}"},
        {**OURS, "config/resources.json": b"{}"},
        {**OURS, "../config/config_fed_client.json": b"{}"},
        {file: content for file, content in OURS.items() if file != CLIENT},
        {file: content for file, content in OURS.items() if file != SERVER},
        changed(CLIENT, components=[{"id": "a", "path": "subprocess.Popen", "args": {"args": "id"}}]),
        changed(CLIENT, task_result_filters=[{"tasks": ["*"], "filters": [{"path": "a.B", "args": {}}]}]),
        changed(CLIENT, executors=[{"tasks": ["*"], "executor": {"path": "thief.Thief", "args": {}}}]),
        changed(CLIENT, default_task_fetch_interval=True),
        changed(SERVER, components=[]),
        changed(SERVER, workflows=[{"id": "relay", "path": "thief.Thief", "args": {"wire": "/nowhere"}}]),
        {**OURS, CLIENT: OURS[CLIENT][:-1] + b', "executors": []}'},
        {**OURS, CLIENT: OURS[CLIENT] + b"\n"},
        {**OURS, SERVER: b"[" * 100_000},
        {**OURS, SERVER: b"\xff"},
        {},
    ],
    ids=lambda app: "-".join(sorted(set(app) ^ set(OURS)) or [f for f in app if app[f] != OURS[f]])[:40],
)
def test_a_job_that_differs_from_ours_in_anything_is_refused(app: dict[str, bytes]) -> None:
    assert fault_of_job(app)


def test_the_clients_environment_lets_nothing_redirect_python_or_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NVFL_WORKSPACE", "NVFLARE_WORKSPACE_OWNER_FQCN"):
        monkeypatch.setenv(name, "/evil")
    settings = engine_environment()
    assert "/evil" not in settings.values()
    assert settings["PYTHONSAFEPATH"] == settings["PYTHONNOUSERSITE"] == "1"
