"""Flower carries rounds to three silos: a SuperLink and SuperNodes over TLS with registered keys."""

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ringfence.deployment.flower.exchange import flower_environment
from ringfence.deployment.tour import free_port
from tests.certificates import write_certificate
from tests.deployment.agents import model_of, until
from tests.deployment.shuffled import SILOS, Shuffled
from tests.processes import ForkingFamily


def write_key(file: Path) -> None:
    """Write a node's key pair as OpenSSH does."""
    key = ec.generate_private_key(ec.SECP384R1())
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    file.with_suffix(".pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )


def bring_up(family: ForkingFamily, folder: Path, silos: Mapping[str, Path]) -> None:
    """Start a SuperLink, which is called `here`, and for each silo its agent and a SuperNode."""
    family.environment.update(flower_environment())
    home, port = folder / "flower", free_port()
    home.mkdir()
    certificate, private = write_certificate(folder, "localhost", "127.0.0.1")
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{certificate}"\n'
    )
    family.environment["FLWR_HOME"] = str(home)
    binary = Path(sys.executable).parent

    def start(name: str, program: str, *arguments: str | Path) -> None:
        family.start(name, arguments, [binary / program])

    start("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(port),
          "--ssl-ca-certfile", certificate, "--ssl-certfile", certificate,
          "--ssl-keyfile", private, "--enable-supernode-auth",
          "--database", folder / "state.db", "--disable-runtime-dependency-installation")  # fmt: skip
    for name, silo in silos.items():
        family.start(f"agent of {name}", ["silo", "serve", silo])
        key = folder / f"{name}-key"
        write_key(key)
        register: list[str | Path] = [binary / "flwr", "supernode", "register", key.with_suffix(".pub"), "here"]
        for _ in range(60):
            done = subprocess.run(register, env=family.environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            time.sleep(1)
        assert done.returncode == 0, done.stdout + done.stderr
        start(f"node {name}", "flower-supernode", "--root-certificates", certificate,
              "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", str(free_port()),
              "--auth-supernode-private-key", key,
              "--node-config", f'silo="{name}" courier="{silo / "courier.toml"}"')  # fmt: skip


def test_a_shuffled_plan_is_trained_through_flower_and_a_node_that_is_no_silo_is_left_alone(tmp_path: Path) -> None:
    """The shuffler is behind TLS; whether answers are sealed makes no difference to what carries them."""
    with ForkingFamily(tmp_path) as family:
        parties = Shuffled(tmp_path, family)
        parties.prepare(rounds=3)
        bring_up(family, tmp_path, {name: parties.silo(name) for name in SILOS})
        binary, key = Path(sys.executable).parent, tmp_path / "other-key"
        address = re.findall(r'address = "(.*)"', (tmp_path / "flower" / "config.toml").read_text())[0]
        write_key(key)

        def flwr(*arguments: str | Path) -> str:
            command = [binary / "flwr", "supernode", *arguments]
            return subprocess.run(command, env=family.environment, check=True, capture_output=True, text=True).stdout

        flwr("register", key.with_suffix(".pub"), "here")
        family.start("other", ["--root-certificates", tmp_path / "tls.pem", "--superlink", address,
                               "--host", "127.0.0.1", "--port", str(free_port()), "--auth-supernode-private-key", key],
                     [binary / "flower-supernode"])  # fmt: skip
        until(lambda: flwr("list", "here", "--format", "json").count('"online"') == len(SILOS) + 1)
        run, way = tmp_path / "server" / "run", parties.through_shuffler(parties.serve_shuffler())
        family.run(["server", "run", parties.plan_file, "--folder", run, "--engine", "flower", "--superlink", "here",
                    "--quorum", "all", *way])  # fmt: skip
        parties.check_that_every_round_was_charged_once(run)
        model_of(run)
        family.end()
        assert family.members() == []
