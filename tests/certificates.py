"""Certificates that sign themselves."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def write_certificate(folder: Path, *places: str, days: int = 1) -> tuple[Path, Path]:
    """Write a certificate for these names and addresses that ends after so many days, and its key; return the files."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, places[0])])
    begin, end = now - datetime.timedelta(days=90), now + datetime.timedelta(days=days)
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(place)) if place[0].isdigit() else x509.DNSName(place) for place in places
    ]
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
    made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "tls.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(encoding))
    (folder / "tls.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return folder / "tls.pem", folder / "tls.key"
