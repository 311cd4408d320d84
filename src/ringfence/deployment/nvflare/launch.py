"""Starting the engine's own processes from their kits, in place of ours: the process id stays, signals reach them."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.federation import prepare_server
from ringfence.deployment.nvflare.names import ORGANISATION
from ringfence.deployment.nvflare.policy import check, runs_as_the_silo, silo_of
from ringfence.deployment.reach import require_out_of_reach
from ringfence.errors import DeploymentError


def run_client(folder: Path, kit: Path, warn: Callable[[str], None]) -> NoReturn:
    """Become the silo's NVFlare client, if the kit is this silo's, lets nothing but our courier run, and is in date.

    Refused where this user could read what a silo keeps to itself, unless its operator wrote down that it may.
    """
    check(kit, folder)
    kits.check_dates(kit, "client", warn)
    if not runs_as_the_silo(kit):
        require_out_of_reach(folder, silo_of(kit))
    _become(kit, "client", f"uid={silo_of(kit)}")


def run_server(kit: Path, warn: Callable[[str], None]) -> NoReturn:
    """Become the engine's server."""
    if not (kit / "startup" / "fed_server.json").is_file():
        raise DeploymentError(
            f"{kit} is not the kit of an engine's server: `ringfence server request` and `server join` make one."
        )
    kits.check_dates(kit, "server", warn)
    prepare_server(kit)
    _become(kit, "server")


def _become(kit: Path, part: str, *settings: str) -> NoReturn:
    # What the kit's own scripts would do; those may be somebody else's.
    kit = kit.resolve()
    os.chdir(kit)
    sys.stdout.flush()
    program = ["-u", "-m", f"nvflare.private.fed.app.{part}.{part}_train", "-m", str(kit), "-s", f"fed_{part}.json"]
    variables = ["--set", "secure_train=true", *settings, f"org={ORGANISATION}", "config_folder=config"]
    os.execve(sys.executable, [sys.executable, *program, *variables], environment())  # noqa: S606


def environment() -> dict[str, str]:
    """Return an environment in which Python imports what is installed, and nothing redirects it or NVFlare.

    A job's process inherits it. Without PYTHONSAFEPATH, Python would look into the kit first, where jobs are unpacked.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NVFL", "PYTHON"))}
    return {"MALLOC_ARENA_MAX": "4", **kept, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
