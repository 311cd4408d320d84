"""Startup kits for tests, by the parties' own steps."""

import datetime
import subprocess
import sys
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
    federation.found_federation(folder, server, silos)
    request, _ = federation.request_server(folder, kits.parse_address(server)[0])
    response, _ = federation.sign_requests(folder, request, days=days)
    federation.join_server(folder, response)
    responses = {}
    for name in silos:
        asked = folder / f"{name}.request"
        asked.write_bytes(kits.make_request(folder / "silos" / name, name)[0])
        responses[name] = kits.Response.read(federation.sign_requests(folder, asked, days=days)[0])
    return Kits(folder / "server", folder / "admin", {name: folder / "silos" / name for name in silos}, responses)


def run_script(content: str, *arguments: str | Path) -> str:
    """Run a script of an administrator's, and return what it printed."""
    command = [sys.executable, "-c", content, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    return done.stdout + done.stderr


def administrator(authority: Path, kit: Path, server: str, role: str) -> str:
    """Make a kit for somebody to whom the authority's holder gives any role; return the name."""
    name = "somebody@ringfence.local"
    holder = Authority.read(authority / "cert.json")
    (request,) = kits.read_requests(kits.make_request(kit, name, "admin")[0])
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    certificate = holder.sign(request, name, role, None, until)
    kits.install_certificate(kit, kits.Response(server, holder.root, (certificate,)), "admin")
    return name
