"""Provisioning: one startup kit per silo, one for the engine's server, one for the administrator who submits jobs.

`init` makes the certificates and kits in a folder of the organiser's. Each kit is then handed to its owner.
A kit for a silo holds its own key and nothing of Ringfence's server.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.deployment.nvflare.names import RELAY
from ringfence.errors import DeploymentError

PORT = 8002
_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
_PROJECT = "ringfence"
_ORGANISATION = "ringfence"


@dataclass(frozen=True)
class Kits:
    """Where the kits are."""

    server: Path
    admin: Path
    silos: Mapping[str, Path]


def init(folder: Path, server: str, silos: Sequence[str], admin: str = "admin") -> Kits:
    """Make the kits of a new federation in the folder, which must be empty or absent.

    `server` is HOST or HOST:PORT as the silos reach it; the host's name goes into the server's certificate.
    """
    host, port = _address(server)
    names = [*silos, admin]
    for name in names:
        if not _NAME.match(name):
            raise DeploymentError(f"'{name}' is not a name: use letters, digits, dots, dashes and underscores.")
    if not silos or len(set(names)) < len(names) or host in names:
        raise DeploymentError("A federation needs one silo at least, and every name (server's host included) once.")
    if folder.exists() and any(folder.iterdir()):
        raise DeploymentError(f"{folder} is not empty: name a new folder, for it will hold the federation's keys.")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".work-") as work:
        _provision(Path(work), host, port, silos, admin)
        production = Path(work) / _PROJECT / "prod_00"
        kits = Kits(folder / "server", folder / "admin", {name: folder / "silos" / name for name in silos})
        (folder / "silos").mkdir()
        shutil.move(production / host, kits.server)
        shutil.move(production / _user(admin), kits.admin)
        for name, kit in kits.silos.items():
            shutil.move(production / name, kit)
        # The certificate authority's key: whoever holds it can admit another site.
        shutil.move(Path(work) / _PROJECT / "state", folder / "authority")
    return kits


def prepare_server(kit: Path) -> None:
    """Write the engine server's own settings: our relay may run, and nothing is kept in the system's temporary folder.

    Paths are absolute, so this is done where the kit lives, at every start.
    """
    local = kit / "local"
    resources = _read(local / "resources.json.default")
    resources["class_allow_list"] = [RELAY]
    resources["class_list_enforcement_mode"] = "enforce"
    store = kit.resolve() / "store"
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(store / "jobs")
    resources["components"] = [c for c in resources["components"] if c["id"] != "log_receiver"]
    write_json(local / "resources.json", resources)


def user_of(kit: Path) -> str:
    """Return the administrator's name in a kit."""
    return str(_read(kit / "startup" / "fed_admin.json")["admin"]["username"])


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a settings file as a whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        raise DeploymentError(f"{file} is missing or not readable: this is not a startup kit as provisioned.") from None
    if not isinstance(content, dict):
        raise DeploymentError(f"{file} is not a settings file as provisioned.")
    return content


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.partition(":")
    if not _NAME.match(host) or (port and not (port.isdigit() and 0 < int(port) < 65536)):
        raise DeploymentError(f"'{server}' is not HOST or HOST:PORT.")
    return host, int(port) if port else PORT


def _user(admin: str) -> str:
    return f"{admin}@ringfence.local"


def _provision(work: Path, host: str, port: int, silos: Sequence[str], admin: str) -> None:
    # The steps of `nvflare provision`, without that command's side effects in the user's home folder.
    from nvflare.lighter.provision import prepare_builders, prepare_packager, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    project = {
        "api_version": 3,
        "name": _PROJECT,
        "description": "Private federated learning: every silo enforces its own guarantee.",
        "participants": [
            {"name": host, "type": "server", "org": _ORGANISATION, "fed_learn_port": port, "admin_port": port},
            *[{"name": silo, "type": "client", "org": _ORGANISATION, "allow_log_streaming": False} for silo in silos],
            {"name": _user(admin), "type": "admin", "org": _ORGANISATION, "role": "project_admin"},
        ],
        "builders": [
            {
                "path": "nvflare.lighter.impl.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "require_signed_jobs": True},
            },
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ],
    }
    context = Provisioner(str(work), prepare_builders(project), prepare_packager(project)).provision(
        prepare_project(project)
    )
    if not (work / _PROJECT / "prod_00" / host).is_dir():
        raise DeploymentError(f"NVFlare could not provision: {context.get('errors') or 'no kit came out'}.")
