"""Starting the engine's own processes from their kits, in place of ours: the process id stays, signals reach them."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from ringfence.deployment.nvflare.federation import prepare_server
from ringfence.deployment.nvflare.policy import check
from ringfence.errors import DeploymentError


def run_client(folder: Path, kit: Path) -> NoReturn:
    """Become the silo's NVFlare client, if the kit is this silo's and lets nothing but our courier run."""
    check(kit, folder)
    _become(kit)


def run_server(kit: Path) -> NoReturn:
    """Become the engine's server."""
    if not (kit / "startup" / "fed_server.json").is_file():
        raise DeploymentError(f"{kit} is not the kit of an engine's server: `ringfence federation init` makes one.")
    prepare_server(kit)
    _become(kit)


def _become(kit: Path) -> NoReturn:
    script = kit.resolve() / "startup" / "sub_start.sh"
    if not script.is_file():
        raise DeploymentError(f"{script} is missing: this is not a startup kit as provisioned.")
    os.chdir(kit)
    sys.stdout.flush()
    os.execve("/bin/bash", ["bash", str(script), "--once"], environment())  # noqa: S606


def environment() -> dict[str, str]:
    """Return an environment in which the kit's script finds this Python, and nothing redirects it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NVFL_WORKSPACE", "PYTHONPATH")}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept
