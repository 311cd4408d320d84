"""A fleet of Flower: a SuperLink over TLS, and nodes whose keys are registered with it."""

import shutil
import subprocess
import sys
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ringfence.deployment.flower.exchange import flower_environment
from ringfence.deployment.processes import Family
from ringfence.deployment.tour import free_port
from tests.certificates import write_certificate
from tests.deployment.agents import until


def write_key(file: Path) -> None:
    """Write a node's key pair as OpenSSH does."""
    key = ec.generate_private_key(ec.SECP384R1())
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    file.with_suffix(".pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )


class Fleet:
    """A SuperLink, called `here`, and what connects to it."""

    def __init__(self, folder: Path, family: Family) -> None:
        self.folder, self.family, self.port = folder, family, free_port()
        family.environment.update(flower_environment())
        family.environment["FLWR_HOME"] = str(folder / "flower")
        self.certificate, self.private = write_certificate(folder, "localhost", "127.0.0.1")
        (folder / "flower").mkdir()
        (folder / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.certificate}"\n'
        )
        self.start_link()

    def start_link(self) -> None:
        self._start("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
                    "--ssl-ca-certfile", self.certificate, "--ssl-certfile", self.certificate,
                    "--ssl-keyfile", self.private, "--enable-supernode-auth",
                    "--database", self.folder / "state.db", "--disable-runtime-dependency-installation")  # fmt: skip

    def _start(self, name: str, program: str, *arguments: str | Path) -> None:
        self.family.start(name, arguments, [Path(sys.executable).parent / program])

    def flwr(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        command = [Path(sys.executable).parent / "flwr", "supernode", *arguments]
        return subprocess.run(command, env=self.family.environment, capture_output=True, text=True, check=False)

    def kit(self, name: str) -> Path:
        """Make a node's kit, and register its key once the SuperLink is up."""
        kit = self.folder / f"{name}-kit"
        kit.mkdir()
        write_key(kit / "node.key")
        shutil.copy(self.certificate, kit / "ca.crt")
        (kit / "flower.toml").write_text(f'silo = "{name}"\naddress = "localhost:{self.port}"\n')
        until(lambda: self.flwr("register", kit / "node.pub", "here").returncode == 0)
        return kit

    def start_courier(self, name: str, silo: Path) -> "subprocess.Popen[bytes]":
        return self.family.start(f"courier of {name}", ["silo", "courier", silo, self.folder / f"{name}-kit"])

    def start_supernode(self, name: str, *options: str) -> None:
        """Start Flower's own node."""
        self._start(f"node {name}", "flower-supernode", "--root-certificates", self.certificate,
                    "--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(free_port()),
                    "--auth-supernode-private-key", self.folder / f"{name}-kit" / "node.key", *options)  # fmt: skip

    def wait_for(self, nodes: int) -> None:
        until(lambda: self.flwr("list", "here", "--format", "json").stdout.count('"online"') == nodes)
