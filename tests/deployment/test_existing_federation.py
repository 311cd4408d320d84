"""The recipe of docs/deploy.md: a silo in a federation that NVFlare runs already, beside another site."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from ringfence.cli.first_steps import write_example
from ringfence.deployment.nvflare.job import RELAY
from ringfence.deployment.tour import free_port
from ringfence.silo.ledger.summary import summarise
from tests.deployment.agents import until
from tests.processes import ForkingFamily

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
    places: list[str | Path] = ["-p", folder / "project.yml", "-w", folder / "made"]
    subprocess.run([sys.executable, "-m", "nvflare.cli", "provision", *places], check=True, capture_output=True)
    return folder / "made" / "clinics" / "prod_00"


def start_engine(family: ForkingFamily, name: str, kit: Path, part: str, *settings: str) -> None:
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
    with ForkingFamily(tmp_path) as family:
        family.run(["plan", "--schema", schema, "--target", "ill", "--silo", "north=500", "--epsilon", "1",
                    "--rounds", "3", "--out", plan, "--anyway"])  # fmt: skip
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
