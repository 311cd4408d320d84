"""Starting the engine's own processes from their kits, in place of ours: the process id stays, signals reach them.

An engine's client does what its server sends, as far as the site's policy goes (`policy`). Whatever gets past that has
the rights of the client's user, who must not be able to read a silo's data, ledger, keys and settings.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.authority import ORGANISATION
from ringfence.deployment.nvflare.job import RELAY
from ringfence.deployment.nvflare.policy import check_policy, may_run_as_silo, silo_of_kit
from ringfence.deployment.reach import refuse_within_reach
from ringfence.errors import DeploymentError


def run_client(folder: Path, kit: Path, warn: Callable[[str], None]) -> NoReturn:
    """Become the silo's NVFlare client, if the kit is this silo's, lets nothing but our courier run, and is in date.

    Refused where this user could read what a silo keeps to itself, unless its operator wrote down that it may.
    """
    check_policy(kit, folder)
    kits.check_kit_dates(kit, "client", warn)
    if not may_run_as_silo(kit):
        refuse_within_reach(folder, silo_of_kit(kit))
    _become(kit, "client", f"uid={silo_of_kit(kit)}")


def run_server(kit: Path, warn: Callable[[str], None]) -> NoReturn:
    """Become the NVFlare server, started from its kit."""
    if not (kit / "startup" / "fed_server.json").is_file():
        raise DeploymentError(
            f"{kit} is not the kit of an engine's server: `ringfence server request` and `server join` make one."
        )
    kits.check_kit_dates(kit, "server", warn)
    prepare_server(kit)
    _become(kit, "server")


def _become(kit: Path, part: str, *settings: str) -> NoReturn:
    """Replace this process by NVFlare's client or server, started from the kit."""
    # What the kit's own scripts would do; those may be somebody else's.
    kit = kit.resolve()
    os.chdir(kit)
    sys.stdout.flush()
    program = ["-u", "-m", f"nvflare.private.fed.app.{part}.{part}_train", "-m", str(kit), "-s", f"fed_{part}.json"]
    variables = ["--set", "secure_train=true", *settings, f"org={ORGANISATION}", "config_folder=config"]
    os.execve(sys.executable, [sys.executable, *program, *variables], engine_environment())  # noqa: S606


def engine_environment() -> dict[str, str]:
    """Return an environment in which Python imports what is installed, and nothing redirects it or NVFlare.

    A job's process inherits it. Without PYTHONSAFEPATH, Python would look into the kit first, where jobs are unpacked.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NVFL", "PYTHON"))}
    return {"MALLOC_ARENA_MAX": "4", **kept, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}


def prepare_server(kit: Path) -> None:
    """Write the engine server's own settings: our relay may run, and nothing is kept in the system's temporary folder.

    Paths are absolute, so this is done where the kit lives, at every start.
    """
    local = kit / "local"
    resources = kits.read_settings(local / "resources.json.default")
    resources["class_allow_list"] = [RELAY]
    resources["class_list_enforcement_mode"] = "enforce"
    store = kit.resolve() / "store"
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(store / "jobs")
    resources["components"] = [c for c in resources["components"] if c["id"] != "log_receiver"]
    kits.write_settings(local / "resources.json", resources)
