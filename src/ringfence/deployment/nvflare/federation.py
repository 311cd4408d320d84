"""A federation's organiser: an authority, a list of who takes part, and certificates for those who ask.

    federation.toml   where the engine's server is, the silos' names, the administrator's
    authority/        the authority's own key, the only private key that the organiser makes for others' sake
    admitted/         the certificates that were signed, by name

Every party makes its key where it is used (`kit.request`) and sends a request; `sign` answers it.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.authority import Authority, common_name, fingerprint
from ringfence.deployment.nvflare.names import RELAY
from ringfence.errors import DeploymentError
from ringfence.storage.files import read_file
from ringfence.storage.formats import require_known_format
from ringfence.storage.toml_files import read_toml, toml_text

DAYS = 360
"""For how long a certificate holds, unless the organiser says otherwise."""

_FILE = "federation.toml"


@dataclass(frozen=True)
class Federation:
    """Who takes part, as its organiser wrote it down."""

    server: str
    silos: tuple[str, ...]
    admin: str

    def role(self, name: str) -> str | None:
        """Return the engine's role for a name: the administrator's, or none for a silo and the server."""
        host, _ = kits.address(self.server)
        if name not in (host, user(self.admin), *self.silos):
            raise DeploymentError(
                f"'{name}' is not a party of this federation ({', '.join((host, user(self.admin), *self.silos))}). If "
                f"it should be one, add it to the silos in {_FILE}."
            )
        return "project_admin" if name == user(self.admin) else None


@dataclass(frozen=True)
class Signed:
    """A certificate that was signed, and what its owner must find equal."""

    name: str
    fingerprint: str
    until: datetime.datetime


def init(folder: Path, server: str, silos: Sequence[str], admin: str = "admin") -> str:
    """Found a federation in the folder and return its authority's fingerprint.

    A folder in which an earlier version made every party's kit keeps its authority: what that signed stays good.
    """
    host, port = kits.address(server)
    names = [*silos, admin]
    for name in names:
        if not kits.NAME.fullmatch(name):
            raise DeploymentError(f"'{name}' is not a valid name: use letters, digits, dots, dashes and underscores.")
    if not silos or len(set(names)) < len(names) or host in names:
        raise DeploymentError("A federation needs at least one silo, and no name twice (the server's host included).")
    known = _authority(folder).is_file() and not (folder / _FILE).exists()
    if folder.exists() and any(folder.iterdir()) and not known:
        raise DeploymentError(f"{folder} is not empty. Name a new folder: it will hold the authority's key.")
    (folder / "authority").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = Authority.read(_authority(folder)) if known else Authority.create()
    authority.write(_authority(folder))
    content = {"format": 1, "server": f"{host}:{port}", "silos": list(silos), "admin": admin}
    (folder / _FILE).write_text(toml_text(content), encoding="utf-8")
    return fingerprint(authority.root.public_key())


def sign(folder: Path, request: Path, *, days: float = DAYS, new_key: bool = False) -> tuple[Path, list[Signed]]:
    """Sign every certificate request in the file, and write the response beside it.

    A name that was admitted with another key is refused unless `new_key`: a stranger could ask in its name.
    """
    federation = read(folder)
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    before = Authority.read(_authority(folder))
    authority = before.covering(until)
    asked = kits.read_requests(read_file(request, "request", DeploymentError))
    if not asked:
        raise DeploymentError(f"{request} is not a certificate request as `ringfence silo request` writes it.")
    made = [_sign(folder, federation, authority, each, until, new_key=new_key) for each in asked]
    if authority is not before:
        authority.write(_authority(folder))
    (folder / "admitted").mkdir(exist_ok=True)
    for certificate in made:
        (folder / "admitted" / f"{common_name(certificate)}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    response = request.with_suffix(".response")
    response.write_bytes(kits.Response(federation.server, authority.root, tuple(made)).to_bytes())
    return response, [Signed(common_name(each), fingerprint(each.public_key()), until) for each in made]


def _sign(
    folder: Path,
    federation: Federation,
    authority: Authority,
    asked: x509.CertificateSigningRequest,
    until: datetime.datetime,
    *,
    new_key: bool,
) -> x509.Certificate:
    name = common_name(asked)
    role = federation.role(name)
    before = folder / "admitted" / f"{name}.crt"
    if before.exists() and not new_key:
        known = x509.load_pem_x509_certificate(before.read_bytes()).public_key()
        if known != asked.public_key():
            raise DeploymentError(
                f"'{name}' was admitted with another key ({fingerprint(known)}) than this one "
                f"({fingerprint(asked.public_key())}). Ask its owner; if the key really is new, add --new-key."
            )
    host, _ = kits.address(federation.server)
    return authority.sign(asked, name, role, host if name == host else None, until)


def read(folder: Path) -> Federation:
    """Read what the organiser wrote down."""
    file = folder / _FILE
    try:
        content = read_toml(file)
        require_known_format(f"federation ({file})", content.get("format"), 1, DeploymentError)
        return Federation(str(content["server"]), tuple(map(str, content["silos"])), str(content["admin"]))
    except OSError as problem:
        more = " (this folder is of an earlier version: its authority is kept)" if _authority(folder).exists() else ""
        raise DeploymentError(
            f"{file} cannot be read ({problem.strerror}): `ringfence federation init` makes it{more}."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DeploymentError(f"{file} must have a server, a list of silos and an admin.") from None


def request_server(folder: Path, host: str, admin: str = "admin") -> tuple[Path, dict[str, str]]:
    """Make the keys of the engine's server and of the administrator, who work on one machine, and one request."""
    server, of_server = kits.request(folder / "server", host, "server")
    administrator, of_admin = kits.request(folder / "admin", user(admin), "admin")
    request = folder / "server.request"
    request.write_bytes(server + administrator)
    return request, {host: of_server, user(admin): of_admin}


def join_server(folder: Path, response: Path) -> None:
    """Complete the kits of the engine's server and of the administrator."""
    read = kits.Response.read(response)
    kits.install(folder / "server", read, "server")
    kits.install(folder / "admin", read, "admin")


def prepare_server(kit: Path) -> None:
    """Write the engine server's own settings: our relay may run, and nothing is kept in the system's temporary folder.

    Paths are absolute, so this is done where the kit lives, at every start.
    """
    local = kit / "local"
    resources = _read(local / "resources.json.default")
    resources["class_allow_list"] = [RELAY]
    resources["class_list_enforcement_mode"] = "enforce"
    store = kit.resolve() / "store"
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(store / "jobs")
    resources["components"] = [c for c in resources["components"] if c["id"] != "log_receiver"]
    write_json(local / "resources.json", resources)


def user(admin: str) -> str:
    """Return the administrator's name in the engine."""
    return f"{admin}@ringfence.local"


def user_of(kit: Path) -> str:
    """Return the administrator's name in a kit."""
    return str(_read(kit / "startup" / "fed_admin.json")["admin"]["username"])


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a settings file as a whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(file)


def _authority(folder: Path) -> Path:
    return folder / "authority" / "cert.json"


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        raise DeploymentError(f"{file} is missing or not readable: this is not a startup kit as provisioned.") from None
    if not isinstance(content, dict):
        raise DeploymentError(f"{file} is not a settings file as provisioned.")
    return content
