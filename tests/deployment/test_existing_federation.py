"""The recipes of docs/recipes.md: silos in federations that NVFlare or Flower runs already, beside other sites."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from ringfence.deployment.nvflare.names import RELAY
from ringfence.deployment.processes import Family
from ringfence.deployment.tour import Ground, free_port
from ringfence.example import write_example
from ringfence.silo.summary import summarise
from tests.deployment.agents import until
from tests.deployment.test_flower import bring_up, write_key

PROJECT = """\
api_version: 3
name: clinics
description: a federation that is used for other jobs too
participants:
  - {{name: localhost, type: server, org: clinics, fed_learn_port: {port}, admin_port: {port}}}
  - {{name: north, type: client, org: clinics}}
  - {{name: other, type: client, org: clinics}}
  - {{name: admin@clinics.org, type: admin, org: clinics, role: project_admin}}
builders:
  - {{path: nvflare.lighter.impl.workspace.WorkspaceBuilder, args: {{template_file: master_template.yml}}}}
  - {{path: nvflare.lighter.impl.static_file.StaticFileBuilder, args: {{config_folder: config}}}}
  - {{path: nvflare.lighter.impl.cert.CertBuilder, args: {{}}}}
"""
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def provisioned(folder: Path) -> Path:
    """Let NVFlare's own tool make the kits of a federation, and return where they are."""
    (folder / "project.yml").write_text(PROJECT.format(port=free_port()))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "nvflare.cli",
        "provision",
        "-p",
        folder / "project.yml",
        "-w",
        folder / "made",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "made" / "clinics" / "prod_00"


def start_engine(family: Family, name: str, kit: Path, part: str, *settings: str) -> None:
    """Start NVFlare as the kit's own script does."""
    program: list[str | Path] = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{part}.{part}_train", "-m", kit]
    family.start(name, ["-s", f"fed_{part}.json", "--set", "secure_train=true", *settings, "org=clinics",
                        "config_folder=config"], program)  # fmt: skip


def test_a_site_of_an_nvflare_federation_becomes_a_silo_and_no_other_site_is_sent_the_job(tmp_path: Path) -> None:
    kits, plan, silo = provisioned(tmp_path), tmp_path / "plan.json", tmp_path / "silo"
    write_example(tmp_path / "example")
    schema, data = tmp_path / "example" / "schema.toml", tmp_path / "example" / "north.csv"
    resources = json.loads((kits / "localhost" / "local" / "resources.json.default").read_text())
    resources["class_allow_list"].append(RELAY)
    (kits / "localhost" / "local" / "resources.json").write_text(json.dumps(resources))
    with Family(tmp_path) as family:
        family.run(["plan", "--schema", schema, "--target", "ill", "--silo", "north=500", "--epsilon", "1",
                    "--rounds", "3", "--out", plan])  # fmt: skip
        family.run(["silo", "init", silo, "--name", "north", "--data", data, "--schema", schema,
                    "--epsilon", "3", "--delta", "1e-5"])  # fmt: skip
        family.run(["silo", "approve", silo, plan, "--digest", hashlib.sha256(plan.read_bytes()).hexdigest()])
        family.run(["silo", "join", silo, kits / "north", "--same-user"])
        start_engine(family, "engine", kits / "localhost", "server")
        start_engine(family, "other", kits / "other", "client", "uid=other")
        family.start("agent", ["silo", "serve", silo])
        family.start("courier", ["silo", "courier", silo, kits / "north"])
        until(lambda: "Successfully registered client:other" in (tmp_path / "other.log").read_text())
        family.run(["server", "run", plan, "--folder", tmp_path / "run", "--engine", "nvflare",
                    "--kit", kits / "admin@clinics.org", "--quorum", "all"])  # fmt: skip
        assert [own["charged"] for own in summarise(silo / "north.ledger")["plans"]] == [2 + 3 + 2]
        assert any(JOB.fullmatch(folder.name) for folder in (kits / "north").iterdir())
        assert not any(JOB.fullmatch(folder.name) for folder in (kits / "other").iterdir())
        family.end()
        assert family.members() == []


def test_a_node_of_a_flower_federation_that_is_no_silo_is_left_alone(tmp_path: Path) -> None:
    with Family(tmp_path) as family:
        ground = Ground(tmp_path, family)
        ground.prepare(rounds=3)
        bring_up(family, tmp_path, {site.name: site.folder for site in ground.sites})
        binary = Path(sys.executable).parent
        key, home = tmp_path / "other-key", tmp_path / "flower" / "config.toml"
        address = re.findall(r'address = "(.*)"', home.read_text())[0]
        write_key(key)

        def flwr(*arguments: str | Path) -> str:
            command = [binary / "flwr", "supernode", *arguments]
            return subprocess.run(command, env=family.environment, check=True, capture_output=True, text=True).stdout

        flwr("register", key.with_suffix(".pub"), "here")
        family.start("other", ["--root-certificates", tmp_path / "ca.crt", "--superlink", address,
                               "--host", "127.0.0.1", "--port", str(free_port()), "--auth-supernode-private-key", key],
                     [binary / "flower-supernode"])  # fmt: skip
        nodes = [*(site.name for site in ground.sites), "other"]
        until(lambda: flwr("list", "here", "--format", "json").count('"online"') == len(nodes))
        family.run(["server", "run", ground.plan, "--folder", tmp_path / "run", "--engine", "flower",
                    "--superlink", "here", "--quorum", "all"])  # fmt: skip
        for site in ground.sites:
            summary = summarise(site.folder / f"{site.name}.ledger")
            assert [own["charged"] for own in summary["plans"]] == [2 + 3 + 2]
        family.end()
        assert family.members() == []
