"""A startup kit: the folder from which one party's part of the engine runs.

Its owner makes the key in it (`request`), where it is used, and sends a certificate request. The authority's response
holds certificates, which are public, and the server's address. All else in the kit is made here from what is installed
(`install`): no settings and no script of the organiser's comes into a silo. A kit that `nvflare provision` made for an
existing federation also keeps the name of its project, by which that federation's server knows its clients.
"""

import contextlib
import datetime
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from ringfence.deployment.nvflare.authority import ORGANISATION, common_name, fingerprint, make_key
from ringfence.errors import WHY, DeploymentError, os_error_as, visible
from ringfence.storage.files import read_file, require_known_format, write_private

KitPart = Literal["client", "server", "admin"]

WARNING = datetime.timedelta(days=30)
"""A certificate that ends sooner is warned about."""

_RENEWAL: dict[KitPart, str] = {
    "client": "To renew it: `ringfence silo request KIT --name NAME`, let the organiser sign that (`ringfence "
    "federation sign`), and give the response to `ringfence silo join FOLDER KIT RESPONSE`.",
    "server": "To renew it: `ringfence server request FOLDER --host HOST`, let the organiser sign that (`ringfence "
    "federation sign`), and give the response to `ringfence server join FOLDER RESPONSE`.",
}

POINTER = "ringfence.toml"
"""In a client kit's `local` folder: where the silo's `courier.toml` is."""

PORT = 8002
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""What the engine can use as the name of a host or of a party."""
_PROJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,99}")
"""Accepted project names of other federations: the name becomes a folder's name and part of a settings file."""

_BUILDERS = [
    {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
    {
        "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
        "args": {"config_folder": "config", "require_signed_jobs": True},
    },
]


@dataclass(frozen=True)
class Response:
    """What the authority answers: the server's address, its own certificate, and one certificate for every request.

    `project` is the name of the federation's project. It is in no file: our own federations all have the same.
    """

    server: str
    root: x509.Certificate
    certificates: tuple[x509.Certificate, ...]
    project: str = ORGANISATION

    def to_bytes(self) -> bytes:
        """Return the file of the authority's response to a kit's certificate request."""
        content = {
            "format": 1,
            "server": self.server,
            "root": _pem(self.root),
            "certificates": [_pem(certificate) for certificate in self.certificates],
        }
        return json.dumps(content, indent=2).encode() + b"\n"

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the file of the authority's response to a kit's certificate request."""
        try:
            content = json.loads(read_file(file, "response", DeploymentError))
            require_known_format(f"response ({file})", content.get("format"), 1, DeploymentError)
            certificates = tuple(_certificate(text) for text in content["certificates"])
            return cls(str(content["server"]), _certificate(content["root"]), certificates)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DeploymentError(
                f"{file} is not a response of `ringfence federation sign`; ask the organiser for it again."
            ) from None

    @classmethod
    def of_kit(cls, kit: Path) -> Self:
        """Return what a kit of another NVFlare federation, with key and certificate inside, holds already."""
        startup = kit / "startup"
        try:
            settings = json.loads((startup / "fed_client.json").read_bytes())
            server, project = str(settings["servers"][0]["service"]["target"]), str(settings["servers"][0]["name"])
            certificate, root = _certificate_in(startup / "client.crt"), _certificate_in(startup / "rootCA.pem")
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            raise DeploymentError(
                f"{kit} holds no certificate yet: make a request (`ringfence silo request {kit} --name NAME`), let the "
                f"organiser sign it, and give the response (`ringfence silo join FOLDER {kit} RESPONSE`)."
            ) from None
        if not _PROJECT.fullmatch(project):
            raise DeploymentError(
                f"The project name in {startup / 'fed_client.json'} must have 1 to 100 letters, digits, spaces, '_', "
                "'.' and '-', so the kit cannot be used: ask its organiser for one whose project has such a name."
            )
        return cls(server, root, (certificate,), project)


def make_request(kit: Path, name: str, part: KitPart = "client") -> tuple[bytes, str]:
    """Make the kit's key, unless it has one, and return a certificate request for it and its fingerprint."""
    file = key_file(kit, part)
    with os_error_as(DeploymentError, f"The kit {kit} cannot be made: {WHY}."):
        if not file.exists():
            if kit.exists() and any(kit.iterdir()):
                raise DeploymentError(f"{kit} is neither empty nor a kit with a key: name a new folder.")
            file.parent.mkdir(parents=True, exist_ok=True)
            kit.chmod(0o700)
            from nvflare.lighter.utils import serialize_pri_key

            write_private(file, serialize_pri_key(make_key()), end=b"")
        key = _key(file)
    whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    asked = x509.CertificateSigningRequestBuilder().subject_name(whose).sign(key, hashes.SHA256())
    return asked.public_bytes(Encoding.PEM), fingerprint(key.public_key())


def certificate_for(kit: Path, response: Response, part: KitPart = "client") -> x509.Certificate:
    """Return the response's certificate for the kit's key; whatever others it holds are nobody's here."""
    key = _key(key_file(kit, part)).public_key()
    certificate = next((each for each in response.certificates if each.public_key() == key), None)
    if certificate is None:
        raise DeploymentError(f"The response holds no certificate for the key in {kit}: it answers another request.")
    return certificate


def install_certificate(kit: Path, response: Response, part: KitPart = "client") -> str:
    """Complete the kit with the certificate for its key, and return its owner's name.

    A kit stays with its authority and keeps its name: a certificate of another one, or for another, is refused.
    """
    certificate = certificate_for(kit, response, part)
    name = common_name(certificate)
    try:
        certificate.verify_directly_issued_by(response.root)
    except (ValueError, TypeError, InvalidSignature):
        raise DeploymentError("The response's certificate was not signed by the authority named in it.") from None
    startup = kit / "startup"
    with contextlib.suppress(OSError, ValueError):
        if _certificate_in(startup / "rootCA.pem").public_key() != response.root.public_key():
            raise DeploymentError(
                f"The response does not come from the authority of {kit}. For a new federation, make a new kit."
            )
        if (own := common_name(_certificate_in(certificate_file(kit, part)))) != name:
            raise DeploymentError(f"{kit} belongs to '{visible(own)}', and this response is for '{visible(name)}'.")
    _build(kit, response, name, part)
    (startup / "rootCA.pem").write_bytes(response.root.public_bytes(Encoding.PEM))
    certificate_file(kit, part).write_bytes(certificate.public_bytes(Encoding.PEM))
    if part == "admin":  # NVFlare makes it at every login if it is not there, and a service's kit is closed to it
        (kit / "transfer").mkdir(exist_ok=True)
    return name


def check_kit_dates(kit: Path, part: KitPart, warn: Callable[[str], None]) -> datetime.datetime:
    """Return when the first of a kit's certificates, its own and its authority's, ends; warn for the last 30 days.

    A kit is refused if one of them has ended, or has not begun.
    """
    remedy = _RENEWAL["client" if part == "client" else "server"]
    try:
        held = (_certificate_in(certificate_file(kit, part)), _certificate_in(kit / "startup" / "rootCA.pem"))
    except (OSError, ValueError):
        raise DeploymentError(f"{kit} holds no readable certificate. {remedy}") from None
    begin = max(certificate.not_valid_before_utc for certificate in held)
    end = min(certificate.not_valid_after_utc for certificate in held)
    now = datetime.datetime.now(datetime.UTC)
    left = end - now
    if now < begin:
        raise DeploymentError(
            f"The certificate in {kit} is not valid before {begin:%Y-%m-%d}: check this machine's clock."
        )
    if left < datetime.timedelta():
        raise DeploymentError(f"The certificate in {kit} expired on {end:%Y-%m-%d}. {remedy}")
    if left < WARNING:
        warn(f"The certificate in {kit} expires in {left.days} days, on {end:%Y-%m-%d}. {remedy}")
    return end


def authority_fingerprint(kit: Path) -> str:
    """Return the fingerprint of the authority that a kit belongs to."""
    return fingerprint(_certificate_in(kit / "startup" / "rootCA.pem").public_key())


def key_file(kit: Path, part: KitPart) -> Path:
    """Return where a kit's private key is."""
    return certificate_file(kit, part).with_suffix(".key")


def certificate_file(kit: Path, part: KitPart) -> Path:
    """Return where a kit's certificate is."""
    return kit / "startup" / ("server.crt" if part == "server" else "client.crt")


def parse_address(server: str) -> tuple[str, int]:
    """Return host and port of HOST or HOST:PORT, the NVFlare server's address in a kit."""
    host, _, port = server.partition(":")
    if not NAME.fullmatch(host) or (port and not (port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536)):
        raise DeploymentError(f"'{server}' is not HOST or HOST:PORT.")
    return host, int(port) if port else PORT


def user_of(kit: Path) -> str:
    """Return the administrator's name in NVFlare, from the administrator's kit."""
    return str(read_settings(kit / "startup" / "fed_admin.json")["admin"]["username"])


def read_settings(file: Path) -> dict[str, Any]:
    """Read one of a startup kit's JSON files."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise DeploymentError(
            f"{file} is missing or not readable: this is not a startup kit, or it has not joined yet (`ringfence silo "
            "join FOLDER KIT` or `ringfence server join FOLDER RESPONSE`)."
        )
    return content


def write_settings(file: Path, content: Mapping[str, Any]) -> None:
    """Write one of a startup kit's JSON files as a whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(file)


def _build(kit: Path, response: Response, name: str, part: KitPart) -> None:
    """Write the kit's settings by the steps of `nvflare provision`, without its key, scripts and other side effects."""
    from nvflare.lighter.provision import prepare_builders, prepare_packager, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    host, port = parse_address(response.server)
    participants: list[dict[str, Any]] = [
        {"name": host, "type": "server", "org": ORGANISATION, "fed_learn_port": port, "admin_port": port}
    ]
    if part == "client":
        participants.append({"name": name, "type": "client", "org": ORGANISATION, "allow_log_streaming": False})
    if part == "admin":
        participants.append({"name": name, "type": "admin", "org": ORGANISATION, "role": "project_admin"})
    project: Mapping[str, Any] = {
        "api_version": 3,
        "name": response.project,
        "description": "Private federated learning: every silo enforces its own guarantee.",
        "participants": participants,
        "builders": _BUILDERS,
    }
    with tempfile.TemporaryDirectory(dir=kit, prefix=".work-") as work, contextlib.redirect_stdout(io.StringIO()):
        made = Provisioner(work, prepare_builders(project), prepare_packager(project))
        try:
            context = made.provision(prepare_project(project))
        except ValueError:
            raise DeploymentError(
                f"NVFlare can make no kit for '{visible(name)}': ask the organiser for a certificate for a name of "
                "letters, digits, dashes and underscores that is not the server's host."
            ) from None
        built = Path(work) / response.project / "prod_00" / name
        if not (built / "startup").is_dir():
            raise DeploymentError(f"NVFlare could not make the kit: {context.get('errors') or 'it wrote nothing'}.")
        shutil.rmtree(kit / "local", ignore_errors=True)
        shutil.move(built / "local", kit / "local")
        for file in (kit / "startup").iterdir():
            if file.suffix != ".key":
                file.unlink()
        for file in (built / "startup").iterdir():
            if file.suffix == ".json":
                shutil.move(file, kit / "startup" / file.name)


def _key(file: Path) -> Any:
    """Read a kit's private key; DeploymentError if it cannot be read."""
    try:
        return load_pem_private_key(file.read_bytes(), None)
    except OSError as problem:
        raise DeploymentError(
            f"The key {file} cannot be read ({problem.strerror}): `ringfence silo request` or `ringfence server "
            "request` makes one on the machine that uses it."
        ) from None
    except (ValueError, TypeError):
        raise DeploymentError(f"{file} is not a private key; make a new kit.") from None


def _certificate(text: Any) -> x509.Certificate:
    """Read a certificate from the text in a kit's response."""
    return x509.load_pem_x509_certificate(str(text).encode())


def _certificate_in(file: Path) -> x509.Certificate:
    """Read a certificate from a kit's file."""
    return x509.load_pem_x509_certificate(file.read_bytes())


def _pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM text, for a kit's response."""
    return certificate.public_bytes(Encoding.PEM).decode()


def read_requests(content: bytes) -> Sequence[x509.CertificateSigningRequest]:
    """Return the certificate requests in a file that kits' owners sent."""
    end = b"-----END CERTIFICATE REQUEST-----\n"
    try:
        return [x509.load_pem_x509_csr(part + end) for part in content.split(end) if part.strip()]
    except ValueError:
        return []
