"""The public keys that a plan pins, where its answers go through a shuffler."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationError

from ringfence.errors import PlanError
from ringfence.protocol.public import Public, explain
from ringfence.storage.toml_files import read_toml

Key: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A public key of 32 bytes in hexadecimal: X25519 for sealing, Ed25519 for signatures."""


class PublicKeys(Public):
    """The public keys of the server, of the shuffler, and of every silo."""

    server: Key
    shuffler: Key
    silos: dict[str, Key]


def load_keys(path: Path) -> PublicKeys:
    """Read public keys from a TOML file: `server`, `shuffler`, and a table `silos` by name."""
    try:
        return PublicKeys.model_validate(read_toml(path))
    except OSError as problem:
        raise PlanError(f"The keys {path} could not be read: {problem.strerror}.") from None
    except ValidationError as refused:
        raise PlanError(f"{path} does not hold everybody's public keys: {explain(refused)}.") from None
    except ValueError as problem:
        raise PlanError(f"{path} is not valid TOML: {problem}.") from None
