"""A silo's courier for Flower, started from a kit: a folder with its key and where the SuperLink is.

The kit holds `flower.toml` (the silo's name and the SuperLink's address), `node.key` (registered with the SuperLink)
and, unless the system's authorities sign for the SuperLink, `ca.crt`.
"""

import os
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from ringfence.deployment.flower.exchange import flower_environment
from ringfence.deployment.processes import interruptible
from ringfence.deployment.reach import refuse_within_reach
from ringfence.errors import DeploymentError
from ringfence.storage.toml_files import read_toml, toml_text

SETTINGS = "flower.toml"


def join_kit(kit: Path, *, same_user: bool) -> None:
    """Check the kit; `same_user` lets the courier run as a user who can read the silo's private files.

    The caller has recorded that in the ledger before.
    """
    settings = _settings(kit)
    _key(kit)
    if same_user:
        (kit / SETTINGS).write_text(toml_text({**settings, "same_user": True}), encoding="utf-8")


def run_courier(folder: Path, kit: Path) -> None:
    """Carry Flower's messages to the silo's agent and back, until stopped.

    Refused where this user could read what a silo keeps to itself, unless its operator wrote down that it may.
    """
    settings, key, authority = _settings(kit), _key(kit), kit / "ca.crt"
    if settings.get("same_user") is not True:
        refuse_within_reach(folder, settings["silo"])
    os.environ.update(flower_environment())  # which Flower reads when it is imported
    from ringfence.deployment.flower.node import serve

    told = {"silo": settings["silo"], "courier": str(folder.absolute() / "courier.toml")}
    with interruptible():
        serve(settings["address"], str(authority) if authority.exists() else None, key, told)


def _settings(kit: Path) -> dict[str, Any]:
    """Read a Flower kit's settings."""
    try:
        settings = read_toml(kit / SETTINGS)
    except (OSError, ValueError) as problem:
        raise DeploymentError(f"{kit / SETTINGS} cannot be read: {problem}.") from None
    if not all(isinstance(settings.get(key), str) for key in ("silo", "address")):
        raise DeploymentError(f'{kit / SETTINGS} must hold silo = "NAME" and address = "HOST:PORT" of the SuperLink.')
    return settings


def _key(kit: Path) -> EllipticCurvePrivateKey:
    """Read a Flower kit's private key."""
    try:
        key = load_ssh_private_key((kit / "node.key").read_bytes(), None)
    except (OSError, ValueError):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise DeploymentError(
            f"{kit / 'node.key'} is not a node's private key, or cannot be read. Make one with `ssh-keygen -t ecdsa -b "
            "384`, and register its public half with the SuperLink (`flwr supernode register`)."
        )
    return key
