"""A federation's organiser: an authority, a list of who takes part, and certificates for those who ask.

    federation.toml   where the engine's server is, the silos' names, the administrator's
    authority/        the authority's own key, the only private key that the organiser makes for others' sake
    admitted/         the certificates that were signed, by name

Every party makes its key where it is used (`kit.request`) and sends a request; `sign` answers it.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.authority import Authority, common_name, fingerprint
from ringfence.errors import DeploymentError
from ringfence.storage.files import read_file, require_known_format
from ringfence.storage.toml_files import read_toml, toml_text

DAYS = 360
"""Default validity of a certificate in days."""

_FILE = "federation.toml"


@dataclass(frozen=True)
class Federation:
    """The parties of a federation, from its organiser's `federation.toml`."""

    server: str
    silos: tuple[str, ...]
    admin: str

    def role(self, name: str) -> str | None:
        """Return NVFlare's role for a name in the federation: the administrator's, or none for silos and the server."""
        host, _ = kits.parse_address(self.server)
        parties = (host, admin_user(self.admin), *self.silos)
        if name not in parties:
            raise DeploymentError(
                f"'{name}' is not a party of this federation ({', '.join(parties)}). If it should be one, add it to "
                f"the silos in {_FILE}."
            )
        return "project_admin" if name == admin_user(self.admin) else None


@dataclass(frozen=True)
class Signed:
    """A certificate that was signed, and the fingerprint that its owner compares."""

    name: str
    fingerprint: str
    until: datetime.datetime


def found_federation(folder: Path, server: str, silos: Sequence[str], admin: str = "admin") -> str:
    """Found a federation in the folder and return its authority's fingerprint."""
    host, port = kits.parse_address(server)
    names = [*silos, admin]
    for name in names:
        if not kits.NAME.fullmatch(name) or "." in name:  # NVFlare knows dots in the names of hosts alone
            raise DeploymentError(f"'{name}' is not a valid name: use letters, digits, dashes and underscores.")
    if not silos or len(set(names)) < len(names) or host in names:
        raise DeploymentError("A federation needs at least one silo, and no name twice (the server's host included).")
    if folder.exists() and any(folder.iterdir()):
        raise DeploymentError(f"{folder} is not empty. Name a new folder: it will hold the authority's key.")
    (folder / "authority").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = Authority.create()
    authority.write(_authority(folder))
    content = {"format": 1, "server": f"{host}:{port}", "silos": list(silos), "admin": admin}
    (folder / _FILE).write_text(toml_text(content), encoding="utf-8")
    return fingerprint(authority.root.public_key())


def sign_requests(
    folder: Path, request: Path, *, days: float = DAYS, new_key: bool = False
) -> tuple[Path, list[Signed]]:
    """Sign every certificate request in the file for the federation, and write the response beside it.

    A name that was admitted with another key is refused unless `new_key`: a stranger could ask in its name.
    """
    federation = read_federation(folder)
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    held = Authority.read(_authority(folder))
    authority = held.covering(until)
    asked = kits.read_requests(read_file(request, "request", DeploymentError))
    if not asked:
        raise DeploymentError(f"{request} is not a certificate request as `ringfence silo request` writes it.")
    host, _ = kits.parse_address(federation.server)
    made = []
    for each in asked:
        name = common_name(each)
        role = federation.role(name)
        admitted = folder / "admitted" / f"{name}.crt"
        if admitted.exists() and not new_key:
            known = x509.load_pem_x509_certificate(admitted.read_bytes()).public_key()
            if known != each.public_key():
                raise DeploymentError(
                    f"'{name}' was admitted with another key ({fingerprint(known)}) than this one "
                    f"({fingerprint(each.public_key())}). Ask its owner; if the key really is new, add --new-key."
                )
        made.append(authority.sign(each, name, role, host if name == host else None, until))
    if authority is not held:
        authority.write(_authority(folder))
    (folder / "admitted").mkdir(exist_ok=True)
    for certificate in made:
        (folder / "admitted" / f"{common_name(certificate)}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    response = request.with_suffix(".response")
    response.write_bytes(kits.Response(federation.server, authority.root, tuple(made)).to_bytes())
    return response, [Signed(common_name(each), fingerprint(each.public_key()), until) for each in made]


def read_federation(folder: Path) -> Federation:
    """Read the federation's file: what its organiser wrote down."""
    file = folder / _FILE
    try:
        content = read_toml(file)
        require_known_format(f"federation ({file})", content.get("format"), 1, DeploymentError)
        return Federation(str(content["server"]), tuple(map(str, content["silos"])), str(content["admin"]))
    except OSError as problem:
        raise DeploymentError(
            f"{file} cannot be read ({problem.strerror}): `ringfence federation init` makes it."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DeploymentError(f"{file} must have a server, a list of silos and an admin.") from None


def request_server(folder: Path, host: str, admin: str = "admin") -> tuple[Path, dict[str, str]]:
    """Make the keys of the engine's server and of the administrator, who work on one machine, and one request."""
    server, of_server = kits.make_request(folder / "server", host, "server")
    administrator, of_admin = kits.make_request(folder / "admin", admin_user(admin), "admin")
    request = folder / "server.request"
    request.write_bytes(server + administrator)
    return request, {host: of_server, admin_user(admin): of_admin}


def join_server(folder: Path, response: Path) -> None:
    """Complete the kits of the federation's server and administrator."""
    read = kits.Response.read(response)
    kits.install_certificate(folder / "server", read, "server")
    kits.install_certificate(folder / "admin", read, "admin")


def admin_user(admin: str) -> str:
    """Return the name of the federation's administrator in NVFlare."""
    return f"{admin}@ringfence.local"


def _authority(folder: Path) -> Path:
    """Return where the authority's file is in the federation's folder."""
    return folder / "authority" / "cert.json"
