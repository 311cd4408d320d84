"""Flower carries three rounds to three silos: a SuperLink and three SuperNodes over TLS with registered keys."""

import datetime
import ipaddress
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ringfence.deployment.flower.engine import settings
from ringfence.deployment.processes import Family
from ringfence.deployment.tour import Ground, free_port
from ringfence.silo.summary import summarise
from tests.deployment.shuffled import SILOS, Shuffled


def write_certificates(folder: Path) -> None:
    """Write an authority and a server's certificate for 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)

    def certificate(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
    ) -> bytes:
        builder = x509.CertificateBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=1),
        )  # fmt: skip
        own = name == issuer
        builder = builder.add_extension(x509.BasicConstraints(ca=own, path_length=None), critical=True)
        places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(places), critical=False)
        return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (folder / "ca.crt").write_bytes(certificate("authority", authority, "authority", authority))
    (folder / "server.pem").write_bytes(certificate("server", server, "authority", authority))
    (folder / "server.key").write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def write_key(file: Path) -> None:
    """Write a node's key pair as OpenSSH does."""
    key = ec.generate_private_key(ec.SECP384R1())
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    file.with_suffix(".pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )


def bring_up(family: Family, folder: Path, silos: Mapping[str, Path]) -> None:
    """Start a SuperLink, which is called `here`, and for each silo its agent and a SuperNode."""
    family.environment.update(settings())
    home, port = folder / "flower", free_port()
    home.mkdir()
    write_certificates(folder)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder / "ca.crt"}"\n'
    )
    family.environment["FLWR_HOME"] = str(home)
    binary = Path(sys.executable).parent

    def start(name: str, program: str, *arguments: str | Path) -> None:
        family.start(name, arguments, [binary / program])

    start("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(port),
          "--ssl-ca-certfile", folder / "ca.crt", "--ssl-certfile", folder / "server.pem",
          "--ssl-keyfile", folder / "server.key", "--enable-supernode-auth",
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
        start(f"node {name}", "flower-supernode", "--root-certificates", folder / "ca.crt",
              "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", str(free_port()),
              "--auth-supernode-private-key", key,
              "--node-config", f'silo="{name}" courier="{silo / "courier.toml"}"')  # fmt: skip


def test_three_rounds_reach_three_silos_and_their_ledgers(tmp_path: Path) -> None:
    with Family(tmp_path) as family:
        ground = Ground(tmp_path, family)
        ground.prepare(rounds=3)
        bring_up(family, tmp_path, {site.name: site.folder for site in ground.sites})
        family.run(["server", "run", ground.plan, "--folder", tmp_path / "run", "--engine", "flower",
                    "--superlink", "here", "--quorum", "all"])  # fmt: skip
        assert (tmp_path / "run" / "model.json").is_file()
        for site in ground.sites:
            summary = summarise(site.folder / f"{site.name}.ledger")
            assert [plan["charged"] for plan in summary["plans"]] == [2 + 3 + 2]  # survey and evaluation
        family.end()
        assert family.members() == []


def test_a_shuffled_plan_is_trained_through_flower_with_a_shuffler_behind_tls(tmp_path: Path) -> None:
    with Family(tmp_path) as family:
        parties = Shuffled(tmp_path, family)
        parties.prepare(rounds=3)
        bring_up(family, tmp_path, {name: parties.silo(name) for name in SILOS})
        run = tmp_path / "server" / "run"
        way = parties.through_shuffler(parties.serve_shuffler())
        family.run(["server", "run", parties.plan_file, "--folder", run, "--engine", "flower", "--superlink", "here",
                    "--quorum", "all", *way])  # fmt: skip
        parties.check_that_every_round_was_charged_once(run)
        family.end()
        assert family.members() == []
