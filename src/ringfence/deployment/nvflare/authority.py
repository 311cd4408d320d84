"""The federation's certificate authority: it signs what parties ask for, and never sees a key of theirs.

Its holder can admit a site, or somebody who poses as one, and can give itself any role of the engine's. So no
guarantee rests on it: a silo's own gate, validator and users do (`docs/threat-model.md`).
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from ringfence.errors import DeploymentError
from ringfence.storage.files import replace_private

ORGANISATION = "ringfence"
"""In every certificate of the engine's, and in its project."""

_ROOT_DAYS = 3650
_LEEWAY = timedelta(hours=1)
"""Certificates are valid from this long before now, since clocks differ."""
_BITS = 3072


def make_key() -> rsa.RSAPrivateKey:
    """Return a new private key for the authority or a kit; RSA, which is what NVFlare signs jobs with."""
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def fingerprint(key: Any) -> str:
    """Return the SHA-256 of a public key in groups of eight digits, which two people can compare by telephone."""
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    return " ".join(digest[place : place + 8] for place in range(0, 64, 8))


def common_name(named: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return whose certificate or request it is, by its X.509 name."""
    names = named.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


@dataclass(frozen=True)
class Authority:
    """The authority's key, and its certificate, by which every party knows the others."""

    key: rsa.RSAPrivateKey
    root: x509.Certificate

    @classmethod
    def create(cls, key: rsa.RSAPrivateKey | None = None, name: str = ORGANISATION) -> "Authority":
        """Make a new authority, or a new certificate for an authority's key."""
        from nvflare.lighter.utils import Identity, generate_cert

        key, whose = key or make_key(), Identity(name)
        dates = _dates(_now() + timedelta(days=_ROOT_DAYS))
        return cls(key, generate_cert(whose, whose, key, key.public_key(), ca=True, **dates))

    @classmethod
    def read(cls, file: Path) -> "Authority":
        """Read an authority's file, which is NVFlare's."""
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            content = json.loads(file.read_text())
            key = load_pem_private_key(content["root_pri_key"].encode(), None)
            root = x509.load_pem_x509_certificate(content["root_cert"].encode())
        except OSError as problem:
            raise DeploymentError(
                f"The authority's key {file} cannot be read ({problem.strerror}): give the folder that `ringfence "
                "federation init` made."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DeploymentError(f"{file} does not hold an authority's key and certificate; restore it.") from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise DeploymentError(f"{file} holds a key that is not RSA, which the engine cannot use.")
        return cls(key, root)

    def write(self, file: Path) -> None:
        """Write the authority's file where only its owner can read it, in place of what was there."""
        from nvflare.lighter.utils import serialize_cert, serialize_pri_key

        content = {
            "root_cert": serialize_cert(self.root).decode(),
            "root_pri_key": serialize_pri_key(self.key).decode(),
        }
        replace_private(file, json.dumps(content).encode())

    def covering(self, until: datetime) -> "Authority":
        """Return an authority that lasts until then: this one, or one with the same key and a later certificate.

        What the one signed is good under the other's certificate as well.
        """
        return self if self.root.not_valid_after_utc >= until else self.create(self.key, common_name(self.root))

    def sign(
        self, request: x509.CertificateSigningRequest, name: str, role: str | None, host: str | None, until: datetime
    ) -> x509.Certificate:
        """Return a certificate for the request's key: for this name and role, whatever the request says of itself."""
        from nvflare.lighter.utils import Identity, generate_cert

        key = request.public_key()
        if not request.is_signature_valid or not isinstance(key, rsa.RSAPublicKey) or key.key_size < 2048:
            raise DeploymentError(f"The request for '{name}' is not signed by an RSA key of 2048 bits or more.")
        whose, signer = Identity(name, ORGANISATION, role), Identity(common_name(self.root))
        made: x509.Certificate = generate_cert(whose, signer, self.key, key, server_default_host=host, **_dates(until))
        return made


def _dates(until: datetime) -> dict[str, datetime]:
    """Return from when until when a certificate of the authority is valid, as NVFlare names the two dates."""
    return {"not_valid_before": min(_now(), until) - _LEEWAY, "not_valid_after": until}


def _now() -> datetime:
    """Return the time now, for the dates of the authority's certificates."""
    return datetime.now(UTC)
