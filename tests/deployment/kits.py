"""Startup kits for tests: by the parties' own steps, and as versions until 0.2 made them, key and all."""

import contextlib
import datetime
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringfence.deployment.nvflare import federation
from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.authority import Authority


@dataclass(frozen=True)
class Kits:
    """Where the kits are; a silo's has its certificate, and did not join."""

    server: Path
    admin: Path
    silos: dict[str, Path]
    responses: dict[str, kits.Response]


def make_kits(folder: Path, server: str, silos: Sequence[str], *, days: float = federation.DAYS) -> Kits:
    """Found a federation, and let every party ask for its certificate."""
    federation.init(folder, server, silos)
    request, _ = federation.request_server(folder, kits.address(server)[0])
    response, _ = federation.sign(folder, request, days=days)
    federation.join_server(folder, response)
    responses = {}
    for name in silos:
        asked = folder / f"{name}.request"
        asked.write_bytes(kits.request(folder / "silos" / name, name)[0])
        responses[name] = kits.Response.read(federation.sign(folder, asked, days=days)[0])
    return Kits(folder / "server", folder / "admin", {name: folder / "silos" / name for name in silos}, responses)


def administrator(authority: Path, kit: Path, server: str, role: str) -> str:
    """Make a kit for somebody to whom the authority's holder gives any role; return the name."""
    name = "somebody@ringfence.local"
    holder = Authority.read(authority / "cert.json")
    (request,) = kits.read_requests(kits.request(kit, name, "admin")[0])
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    certificate = holder.sign(request, name, role, None, until)
    kits.install(kit, kits.Response(server, holder.root, (certificate,)), "admin")
    return name


def kits_of_version_0_2(folder: Path, server: str, silos: Sequence[str]) -> dict[str, Path]:
    """Make everybody's kit in one place, as NVFlare provisions them and Ringfence 0.2 did."""
    from nvflare.lighter.provision import prepare_builders, prepare_packager, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    host, port = kits.address(server)
    participants = [
        {"name": host, "type": "server", "org": "ringfence", "fed_learn_port": port, "admin_port": port},
        *({"name": silo, "type": "client", "org": "ringfence"} for silo in silos),
        {"name": "admin@ringfence.local", "type": "admin", "org": "ringfence", "role": "project_admin"},
    ]
    path = "nvflare.lighter.impl"
    project = {
        "api_version": 3,
        "name": "ringfence",
        "description": "A federation of version 0.2.",
        "participants": participants,
        "builders": [
            {"path": f"{path}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {
                "path": f"{path}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "require_signed_jobs": True},
            },
            {"path": f"{path}.cert.CertBuilder"},
            {"path": f"{path}.signature.SignatureBuilder"},
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        Provisioner(str(folder / "work"), prepare_builders(project), prepare_packager(project)).provision(
            prepare_project(project)
        )
    made = folder / "work" / "ringfence"
    shutil.move(made / "state", folder / "authority")
    for name, kit in {host: "server", "admin@ringfence.local": "admin", **{s: f"silos/{s}" for s in silos}}.items():
        shutil.move(made / "prod_00" / name, (folder / kit))
    return {"server": folder / "server", "admin": folder / "admin", **{s: folder / "silos" / s for s in silos}}
