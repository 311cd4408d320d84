"""A shuffler in a process of its own: python -m tests.shuffler.serving FOLDER SECONDS [CERTIFICATE PRIVATE_KEY]"""

import datetime
import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ringfence.deployment.shuffler_client import ShufflerClient
from ringfence.shuffler import service
from ringfence.transport import connections
from ringfence.transport import serving as transport
from tests.nursery import Python

ROOT = Path(__file__).parents[2]
RECEIVE_SECONDS = 1.5


class Served:
    """The process, and what it printed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.printed = folder.parent / f"printed-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "tests.shuffler.serving", str(folder), *options]
        with self.printed.open("wb") as printed:
            self.process = Python(
                command, stdout=printed, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        deadline = time.monotonic() + 60
        while "\n" not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(self.output())
            time.sleep(0.02)

    @property
    def address(self) -> str:
        return self.output().split()[-1]

    @property
    def token(self) -> str:
        return (self.folder / "shuffler.token").read_text().strip()

    def client(self, patience: float = 5.0, certificate: Path | None = None) -> ShufflerClient:
        return ShufflerClient(self.address, self.token, patience=patience, certificate=certificate)

    def output(self) -> str:
        return self.printed.read_text()


@contextmanager
def serving(folder: Path, seconds: float = 3600.0, *options: str) -> Iterator[Served]:
    """Serve the folder in another process."""
    served = Served(folder, str(seconds), *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shuffler")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return folder / "certificate.pem", folder / "key.pem"


def main(folder: Path, seconds: float, *tls: Path) -> None:
    """Serve on a free port; be impatient with slow callers."""
    transport.RECEIVE_SECONDS = connections.HEAD_SECONDS = connections.SEND_SECONDS = RECEIVE_SECONDS
    service.serve(
        folder,
        seconds=seconds,
        certificate=tls[0] if tls else None,
        private_key=tls[1] if tls else None,
        ready=lambda where: print(f"is served at {where}"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), *map(Path, sys.argv[3:]))
