"""A site's own policy: only our courier may run there, whatever a job or the server says, and whoever signed it.

`join` completes the silo's startup kit, writes the policy into it and ties the kit to the silo's folder; `check` reads
it back, and nothing of ours starts the client while anything is more permissive. NVFlare as provisioned runs code that
a job ships.

NVFlare's own rules (`authorization.json`, the list of classes) hold for most roles and not for `super`; what `site`
does holds for all. The wall behind both is the client's user, who must not be able to read what the silo keeps
(`launch`): the kit lies outside the silo's folder, and the data out of the client's reach.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.authority import common_name
from ringfence.deployment.nvflare.job import COURIER
from ringfence.deployment.nvflare.kit import POINTER
from ringfence.errors import DeploymentError, visible
from ringfence.storage.files import require_known_format
from ringfence.storage.toml_files import read_toml, toml_text

COURIER_FILE = "courier.toml"

_DOORKEEPER = "ringfence.deployment.nvflare.site.Doorkeeper"
_COMPONENTS = {
    "resource_manager": "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
    "resource_consumer": "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
    "process_launcher": "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher",
    "app_deployer": _DOORKEEPER,
}
_RESOURCES: dict[str, Any] = {
    "class_list_enforcement_mode": "enforce",
    "class_allow_list": [COURIER],
    "allow_log_streaming": False,
    "app_validator": {"path": "ringfence.deployment.nvflare.site.OnlyOurJob", "args": {}},
}
_LOCAL = {
    "authorization.json",
    "authorization.json.default",
    "log_config.json.default",
    "privacy.json.sample",
    "resources.json",
    "resources.json.default",
    POINTER,
}
_STARTUP = {"fed_client.json", "client.crt", "client.key", "rootCA.pem"}
_NEVER = ("byoc", "operate", "shell_commands", "server-predeployed-flwr")
_ROLE = {"submit_job": "any", "manage_job": "any", "view": "any", **dict.fromkeys(_NEVER, "none")}
_AUTHORIZATION = {"format_version": "1.0", "permissions": {"project_admin": _ROLE, "lead": _ROLE}}


def join_kit(folder: Path, kit: Path, response: kits.Response | None = None, *, same_user: bool = False) -> None:
    """Make the kit this silo's: complete it with the authority's response, write the policy and the way to the door.

    Without a response the certificate in the kit is kept, and all else is rewritten. `same_user` lets the courier run
    as a user who can read the silo's private files; the caller has recorded that in the ledger before.
    """
    folder, kit = folder.resolve(), kit.resolve()
    if not folder.is_dir():
        raise DeploymentError(f"There is no silo folder {folder}: make it first.")
    if kit.is_relative_to(folder) or folder.is_relative_to(kit):
        raise DeploymentError("The kit and the silo's folder must be separate: the engine may show files in the kit.")
    response = response or kits.Response.of_kit(kit)
    _require_same_name(folder, common_name(kits.certificate_for(kit, response)))
    kits.install_certificate(kit, response)
    default = kits.read_settings(kit / "local" / "resources.json.default")
    components = [c for c in default.get("components", []) if c.get("path") == _COMPONENTS.get(c.get("id"))]
    components.append({"id": "app_deployer", "path": _DOORKEEPER, "args": {}})
    kits.write_settings(kit / "local" / "resources.json", {**default, **_RESOURCES, "components": components})
    kits.write_settings(kit / "local" / "authorization.json", _AUTHORIZATION)
    pointer = {"format": 1, "courier": str(folder / COURIER_FILE), **({"same_user": True} if same_user else {})}
    (kit / "local" / POINTER).write_text(toml_text(pointer), encoding="utf-8")
    (kit / "startup" / "client.key").chmod(0o600)
    for part in ("startup", "local"):
        for file in (kit / part, *(kit / part).iterdir()):
            file.chmod(stat.S_IMODE(file.stat().st_mode) & ~0o022)
    check_policy(kit, folder)


def check_policy(kit: Path, folder: Path) -> None:
    """Raise DeploymentError, naming every fault, unless the kit is this silo's and lets nothing but our courier run."""
    faults = [
        *_faults_of_resources(kits.read_settings(kit / "local" / "resources.json")),
        *_faults_of_authorization(kits.read_settings(kit / "local" / "authorization.json")),
        *_faults_of_startup(kit),
    ]
    if courier_file(kit) != folder.resolve() / COURIER_FILE:
        faults.append(f"local/{POINTER} points to another silo's folder")
    if faults:
        raise DeploymentError(
            f"The kit {kit} is more permissive than allowed: {'; '.join(faults)}. Run `ringfence silo join` again."
        )


def silo_of_kit(kit: Path) -> str:
    """Return the name of the silo that a kit with our policy was made for."""
    return str(kits.read_settings(kit / "startup" / "fed_client.json").get("client", {}).get("fqsn"))


def may_run_as_silo(kit: Path) -> bool:
    """Whether the silo's operator lets the courier run as a user who can read the silo's private files."""
    return _pointer(kit).get("same_user") is True


def _require_same_name(folder: Path, issued: str) -> None:
    """Raise DeploymentError if a kit's certificate names another silo than the folder's: NVFlare goes by that name."""
    try:
        own = read_toml(folder / "silo.toml").get("name")
    except (OSError, ValueError):
        return
    if own != issued:
        raise DeploymentError(f"This kit was made for silo '{visible(issued)}', but {folder} is silo '{own}'.")


def _faults_of_resources(resources: dict[str, Any]) -> list[str]:
    """Return where a kit's resources.json departs from our policy."""
    faults = [
        f"resources.json: {key} must be {own}"
        for key, own in _RESOURCES.items()
        if _canonical(resources.get(key)) != _canonical(own)  # 0 is not false
    ]
    components = resources.get("components", [])
    if {component.get("id"): component.get("path") for component in components} != _COMPONENTS:
        others = [c.get("id") for c in components if _COMPONENTS.get(c.get("id")) != c.get("path")]
        faults.append(f"resources.json: the components must be ours, all and no others: {others or 'one is missing'}")
    strange = sorted(set(resources) - {"format_version", "client", "components", *_RESOURCES})
    return [*faults, *(f"resources.json: '{key}' does not belong there" for key in strange)]


def _faults_of_authorization(authorization: dict[str, Any]) -> list[str]:
    """Return where a kit's authorization.json departs from our policy."""
    permissions = authorization.get("permissions")
    if not isinstance(permissions, dict) or not permissions:
        return ["authorization.json: there are no permissions"]
    faults = []
    for role, rights in permissions.items():
        if not isinstance(rights, dict):
            faults.append(f"authorization.json: '{role}' must list its rights explicitly")
            continue
        faults += [
            f"authorization.json: '{right}' must be 'none' for '{role}'"
            for right in _NEVER
            if rights.get(right) != "none"
        ]
    return faults


def _faults_of_startup(kit: Path) -> list[str]:
    """Return where a kit's startup folder departs from our policy."""
    startup = kits.read_settings(kit / "startup" / "fed_client.json")
    faults = []
    if startup.get("require_signed_jobs") is not True:
        faults.append("fed_client.json: require_signed_jobs must be true")
    if startup.get("client", {}).get("connection_security") != "mtls":
        faults.append("fed_client.json: connection_security must be 'mtls'")
    if not (kit / "startup" / "rootCA.pem").is_file():
        faults.append("startup/rootCA.pem is missing")
    key = kit / "startup" / "client.key"
    if not key.is_file() or stat.S_IMODE(key.stat().st_mode) & 0o077:
        faults.append("startup/client.key must be there, readable by its owner only")
    for part, known in (("startup", _STARTUP), ("local", _LOCAL)):
        # NVFlare reads more settings from files of many names, and imports what is in `local/custom`.
        strange = sorted({file.name for file in (kit / part).iterdir()} - known)
        faults += [f"{part}/{name} does not belong there" for name in strange]
    if not courier_file(kit).parent.is_dir():
        faults.append(f"local/{POINTER} does not point to a silo's folder")
    faults += [
        f"{part}/ can be changed by other users of this machine"
        for part in ("startup", "local")
        if any(stat.S_IMODE(os.stat(file).st_mode) & 0o022 for file in (kit / part, *(kit / part).iterdir()))
    ]
    return faults


def _canonical(setting: Any) -> str:
    """Return a setting of the site's policy as text, so that two can be compared."""
    return json.dumps(setting, sort_keys=True)


def _pointer(kit: Path) -> dict[str, Any]:
    """Read the kit's file that names its silo's courier.toml; DeploymentError if it belongs to no silo."""
    try:
        content = read_toml(kit / "local" / POINTER)
        require_known_format(f"kit ({kit})", content.get("format"), 1, DeploymentError)
    except (OSError, ValueError):
        content = {}
    if not isinstance(content.get("courier"), str):
        raise DeploymentError(f"{kit} belongs to no silo yet: run `ringfence silo join FOLDER {kit}` first.")
    return content


def courier_file(kit: Path) -> Path:
    """Return the courier.toml of the silo that the kit belongs to."""
    return Path(_pointer(kit)["courier"])
