"""The public keys that a plan pins, where its answers go through a shuffler."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationError

from ringfence.errors import PlanError
from ringfence.protocol.public import Public, explain
from ringfence.storage.toml_files import read_toml

Key: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A public key of 32 bytes in hexadecimal: X25519 for sealing, Ed25519 for signatures."""

_PRIME = 2**255 - 19
_EDWARDS = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826  # y of Ed25519
_ORDER_EIGHT = (
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,  # u of X25519
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    _EDWARDS,
    _PRIME - _EDWARDS,
)
_LOW_ORDER = frozenset({0, 1, _PRIME - 1, *_ORDER_EIGHT})


def is_low_order(key: Key) -> bool:
    """Return whether the key is a point of small order, in any encoding.

    With such a key, signatures fit anything (Ed25519), and what is sealed to it has a secret that everyone knows
    (X25519). No private key has such a public key, so naming one is an attack. A coordinate may be written with the
    prime added to it, and the top bit is a sign or is not read: both are undone first. A true key is among the points
    of the other curve with probability 2⁻²⁵².
    """
    return (int.from_bytes(bytes.fromhex(key), "little") & (2**255 - 1)) % _PRIME in _LOW_ORDER


class PublicKeys(Public):
    """The public keys of the server, of the shuffler, and of every silo."""

    server: Key
    shuffler: Key
    silos: dict[str, Key]

    def low_order(self) -> str:
        """Return the first party whose key is of low order; empty if there is none."""
        parties = {"the server": self.server, "the shuffler": self.shuffler}
        parties |= {f"silo '{name}'": key for name, key in self.silos.items()}
        return next((party for party, key in parties.items() if is_low_order(key)), "")


def load_keys(path: Path) -> PublicKeys:
    """Read public keys from a TOML file: `server`, `shuffler`, and a table `silos` by name."""
    try:
        keys = PublicKeys.model_validate(read_toml(path))
    except OSError as problem:
        raise PlanError(f"The keys {path} could not be read: {problem.strerror}.") from None
    except ValidationError as refused:
        raise PlanError(f"{path} does not hold the public keys of all parties: {explain(refused)}.") from None
    except ValueError as problem:
        raise PlanError(f"{path} is not valid TOML: {problem}.") from None
    weak = keys.low_order()
    if weak:
        raise PlanError(f"In {path}, the key of {weak} is not a valid key; ask its owner for it again.")
    return keys
