"""Startup kits: keys are made where they are used, the authority signs; one that allows too much does not start."""

import datetime
import json
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from ringfence.deployment.nvflare import authority, federation, policy
from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.processes import Family
from ringfence.deployment.reach import within_reach
from ringfence.deployment.tour import free_port
from ringfence.errors import DeploymentError
from tests.deployment.agents import Federation, until
from tests.deployment.kits import make_kits
from tests.processes import ringfence


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a silo and its kit, which joined."""
    folder = tmp_path_factory.mktemp("joined")
    made = make_kits(folder / "kits", "localhost", ["clinic"])
    (folder / "silo").mkdir()
    policy.join_kit(folder / "silo", made.silos["clinic"], made.responses["clinic"])
    return folder


@pytest.fixture
def kit(joined: Path, tmp_path: Path) -> Path:
    """A copy of that kit; the silo is at `tmp_path / "silo"`."""
    shutil.copytree(joined, tmp_path, dirs_exist_ok=True)
    own = tmp_path / "kits" / "silos" / "clinic"
    pointer = own / "local" / kits.POINTER
    pointer.write_text(pointer.read_text().replace(str(joined), str(tmp_path)))
    return own


def test_a_silos_kit_holds_nothing_of_the_server(kit: Path) -> None:
    names = {file.name for file in kit.rglob("*")}
    assert not {name for name in names if "server" in name or "authority" in name}
    policy.check_policy(kit, kit.parents[2] / "silo")


@pytest.mark.parametrize(
    ("file", "change", "fault"),
    [
        ("resources.json", {"class_allow_list": ["*"]}, "class_allow_list"),
        ("resources.json", {"class_list_enforcement_mode": "warn"}, "enforcement_mode"),
        ("resources.json", {"allow_log_streaming": True}, "allow_log_streaming"),
        ("resources.json", {"components": [{"id": "site_log_streamer", "path": "x.Y"}]}, "site_log_streamer"),
        ("resources.json", {"app_validator": None}, "app_validator"),
        ("resources.json", {"app_validator": {"path": "x.Y", "args": {}}}, "app_validator"),
        ("resources.json", {"components": []}, "one is missing"),
        ("resources.json", {"handlers": []}, "handlers"),
        ("authorization.json", {"permissions": {"project_admin": "any"}}, "project_admin"),
        ("authorization.json", {"permissions": {"lead": {"byoc": "any"}}}, "byoc"),
        ("../startup/fed_client.json", {"require_signed_jobs": False}, "require_signed_jobs"),
    ],
)  # fmt: skip
def test_a_permissive_policy_is_named_and_nothing_is_started(
    kit: Path, file: str, change: dict[str, Any], fault: str
) -> None:
    path = kit / "local" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DeploymentError, match=fault):
        policy.check_policy(kit, kit.parents[2] / "silo")
    done = ringfence("silo", "courier", kit.parents[2] / "silo", kit)
    assert done.returncode == 1
    assert fault in done.stderr


def test_a_kit_as_provisioned_does_not_start(tmp_path: Path) -> None:
    made = make_kits(tmp_path / "kits", "localhost", ["clinic"]).silos["clinic"]
    with pytest.raises(DeploymentError, match="silo join"):
        policy.check_policy(made, tmp_path / "silo")


def test_a_kit_within_the_silos_folder_or_of_another_silo_is_refused(kit: Path) -> None:
    silo = kit.parents[2] / "silo"
    shutil.copytree(kit, silo / "kit")
    with pytest.raises(DeploymentError, match="separate"):
        policy.join_kit(silo, silo / "kit")
    (silo / "silo.toml").write_text('name = "bank"')
    with pytest.raises(DeploymentError, match="made for silo 'clinic'"):
        policy.join_kit(silo, kit)


@pytest.mark.parametrize("file", ["x__p_resources.json", "log_config.json", "privacy.json", "custom"])
@pytest.mark.parametrize("part", ["local", "startup"])
def test_a_file_from_which_the_engine_would_read_more_settings_or_code_is_named(
    kit: Path, part: str, file: str
) -> None:
    (kit / part / file).write_text("{}")
    with pytest.raises(DeploymentError, match=f"{part}/{file} does not belong there"):
        policy.check_policy(kit, kit.parents[2] / "silo")


# -- keys --


def private_keys(folder: Path) -> list[str]:
    """Return the files below the folder that hold a private key."""
    return sorted(
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and b"PRIVATE KEY" in file.read_bytes()
    )


@pytest.mark.parametrize("name", ["clinic.example", "clinic north", "-clinic", "", "größe"])
def test_a_name_that_the_engine_would_refuse_is_refused_when_the_federation_is_founded(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DeploymentError, match="use letters, digits, dashes and underscores"):
        federation.found_federation(tmp_path / "federation", "flare.example", ["north", name])
    assert not (tmp_path / "federation").exists()


def test_the_organiser_holds_no_key_but_the_authoritys_and_a_silos_key_never_leaves_its_kit(tmp_path: Path) -> None:
    organiser, silo = tmp_path / "organiser", tmp_path / "silo"
    silo.mkdir()
    ringfence("federation", "init", organiser, "--server", "localhost", "--silo", "north", check=True)
    asked = ringfence("silo", "request", silo / "kit", "--name", "north", check=True)
    shutil.copy(silo / "kit.request", organiser)
    signed = ringfence("federation", "sign", organiser, organiser / "kit.request", check=True)
    fingerprint = asked.stdout.strip().rpartition(": ")[2]
    assert len(fingerprint) == 71
    assert fingerprint in signed.stdout
    (silo / "folder").mkdir()
    ringfence("silo", "join", silo / "folder", silo / "kit", organiser / "kit.response", check=True)
    assert private_keys(organiser) == ["authority/cert.json"]
    assert private_keys(silo) == ["kit/startup/client.key"]
    for secret in (organiser / "authority" / "cert.json", silo / "kit" / "startup" / "client.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not list((silo / "kit").rglob("*.sh"))  # nothing that somebody else wrote is there to be run


def test_the_server_and_its_administrator_make_their_keys_on_their_own_machine(tmp_path: Path) -> None:
    organiser, server = tmp_path / "organiser", tmp_path / "server"
    ringfence("federation", "init", organiser, "--server", "flare.example:8443", "--silo", "north", check=True)
    ringfence("server", "request", server, "--host", "flare.example", check=True)
    ringfence("federation", "sign", organiser, server / "server.request", check=True)
    ringfence("server", "join", server, server / "server.response", check=True)
    assert private_keys(organiser) == ["authority/cert.json"]
    assert private_keys(server) == ["admin/startup/client.key", "server/startup/server.key"]
    certificate = x509.load_pem_x509_certificate((server / "server/startup/server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["flare.example"]
    assert kits.user_of(server / "admin") == "admin@ringfence.local"


def test_a_request_gets_no_name_and_no_role_that_the_organiser_did_not_list(tmp_path: Path) -> None:
    federation.found_federation(tmp_path / "organiser", "localhost", ["north"])
    request = tmp_path / "a.request"
    request.write_bytes(kits.make_request(tmp_path / "kit", "stranger")[0])
    with pytest.raises(DeploymentError, match="'stranger' is not a party of this federation"):
        federation.sign_requests(tmp_path / "organiser", request)
    request.write_bytes(kits.make_request(tmp_path / "kit", "north")[0])
    federation.sign_requests(tmp_path / "organiser", request)
    (certificate,) = kits.Response.read(tmp_path / "a.response").certificates
    assert certificate.subject.rfc4514_string() == "O=ringfence,CN=north"


def test_a_stranger_who_asks_in_an_admitted_silos_name_is_refused_until_the_organiser_insists(tmp_path: Path) -> None:
    made = make_kits(tmp_path / "organiser", "localhost", ["north"])
    request = tmp_path / "again.request"
    request.write_bytes(kits.make_request(tmp_path / "other", "north")[0])
    with pytest.raises(DeploymentError, match="admitted with another key"):
        federation.sign_requests(tmp_path / "organiser", request)
    federation.sign_requests(tmp_path / "organiser", request, new_key=True)
    with pytest.raises(DeploymentError, match="answers another request"):
        kits.install_certificate(made.silos["north"], kits.Response.read(tmp_path / "again.response"))


@pytest.mark.parametrize("content", [b"", b"not a request", b"-----BEGIN CERTIFICATE REQUEST-----\n!!\n"])
def test_what_is_no_request_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    federation.found_federation(tmp_path / "organiser", "localhost", ["north"])
    (tmp_path / "a.request").write_bytes(content)
    with pytest.raises(DeploymentError, match="is not a certificate request"):
        federation.sign_requests(tmp_path / "organiser", tmp_path / "a.request")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"certificates": ["x"], "root": "y", "server": "z"}', b"\xff"]
)
def test_what_is_no_response_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.response").write_bytes(content)
    with pytest.raises(DeploymentError, match="is not a response"):
        kits.Response.read(tmp_path / "a.response")


def test_a_kit_stays_with_its_authority(tmp_path: Path) -> None:
    made = make_kits(tmp_path / "ours", "localhost", ["north"])
    (tmp_path / "silo").mkdir()
    policy.join_kit(tmp_path / "silo", made.silos["north"], made.responses["north"])
    federation.found_federation(tmp_path / "theirs", "localhost", ["north"])
    (tmp_path / "north.request").write_bytes((tmp_path / "ours" / "north.request").read_bytes())
    response, _ = federation.sign_requests(tmp_path / "theirs", tmp_path / "north.request")
    with pytest.raises(DeploymentError, match="does not come from the authority"):
        policy.join_kit(tmp_path / "silo", made.silos["north"], kits.Response.read(response))


def certified(own: authority.Authority, key: Any, *names: str) -> x509.Certificate:
    """Return a certificate that an authority's holder makes for any key and any names."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]))
        .issuer_name(own.root.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=9))
        .sign(own.key, hashes.SHA256())
    )


def key_in(kit: Path) -> Any:
    return load_pem_private_key((kit / "startup" / "client.key").read_bytes(), None).public_key()


def test_a_certificate_for_the_kits_key_in_another_name_is_refused_whatever_comes_with_it(tmp_path: Path) -> None:
    own, kit, silo = authority.Authority.create(), tmp_path / "kit", tmp_path / "silo"
    silo.mkdir()
    (silo / "silo.toml").write_text('name = "north"')
    kits.make_request(kit, "north")
    decoy = certified(own, key_in(kit), "south")
    beside = certified(own, authority.make_key().public_key(), "north")
    for certificates in ((decoy, beside), (beside, decoy), (decoy,)):
        with pytest.raises(DeploymentError, match=r"made for silo 'south', but .* is silo 'north'"):
            policy.join_kit(silo, kit, kits.Response("localhost", own.root, certificates))
    assert {file.name for file in kit.rglob("*.*")} == {"client.key"}
    policy.join_kit(silo, kit, kits.Response("localhost", own.root, (certified(own, key_in(kit), "north"), beside)))
    assert policy.silo_of_kit(kit) == "north"


def test_a_kit_keeps_its_name_also_where_the_silos_own_file_cannot_be_read(kit: Path) -> None:
    before = {file: file.read_bytes() for file in kit.rglob("*") if file.is_file()}
    own = authority.Authority.read(kit.parents[1] / "authority" / "cert.json")
    renamed = kits.Response("localhost", own.root, (certified(own, key_in(kit), "bank"),))
    with pytest.raises(DeploymentError, match="belongs to 'clinic', and this response is for 'bank'"):
        policy.join_kit(kit.parents[2] / "silo", kit, renamed)
    assert {file: file.read_bytes() for file in kit.rglob("*") if file.is_file()} == before


def test_a_certificate_for_a_name_that_the_engine_cannot_use_is_refused_in_a_sentence(tmp_path: Path) -> None:
    own, kit = authority.Authority.create(), tmp_path / "kit"
    (tmp_path / "silo").mkdir()
    kits.make_request(kit, "north")
    hostile = [
        (),
        ("a/b",),
        ("../x",),
        ("a b",),
        ("\u202eclinic",),
        ("localhost",),
        ("x", "x"),
        ("x.y",),
        ("a\nb\x1b[2J",),
    ]
    for names in hostile:
        response = kits.Response("localhost", own.root, (certified(own, key_in(kit), *names),))
        with pytest.raises(DeploymentError, match="NVFlare can make no kit for '") as refused:
            policy.join_kit(tmp_path / "silo", kit, response)
        assert str(refused.value).isprintable()
    (tmp_path / "a.response").write_bytes(response.to_bytes())
    said = ringfence("silo", "join", tmp_path / "silo", kit, tmp_path / "a.response")
    assert said.returncode == 1
    assert said.stderr.startswith("ringfence: NVFlare can make no kit for '")
    assert said.stderr.count("\n") == 1


# -- dates --


@pytest.mark.parametrize("part", ["silo", "server", "run"])
@pytest.mark.parametrize("days", [-1, 20])
def test_a_kit_that_ended_is_refused_with_the_remedy_and_one_that_is_about_to_end_warns(
    tmp_path: Path, part: str, days: int
) -> None:
    silos = Federation(tmp_path, ["north"])
    made = make_kits(tmp_path / "kits", f"localhost:{free_port()}", ["north"], days=days)
    folder, kit = silos.silos["north"].silo_folder.path, made.silos["north"]
    policy.join_kit(folder, kit, made.responses["north"], same_user=True)
    plan = silos.plan(1, approved=False)
    command: dict[str, list[str | Path]] = {
        "silo": ["silo", "courier", folder, kit],
        "server": ["server", "start", made.server],
        "run": ["server", "run", tmp_path / f"{plan.run}.json", "--folder", tmp_path / "run", "--engine", "nvflare",
                "--kit", made.admin],
    }  # fmt: skip
    with Family(tmp_path) as family:
        child, log = family.start("it", command[part]), tmp_path / "it.log"
        words = "The certificate in" if days > 0 else "To renew it"
        until(lambda: words in log.read_text() or child.poll() is not None)
        if days < 0:
            until(lambda: child.poll() is not None, 60)
            assert child.returncode == 1
        said = log.read_text()
    assert ("expired on" if days < 0 else f"expires in {days - 1} days") in said, said
    assert f"`ringfence {'silo' if part == 'silo' else 'server'} request" in said


def test_signing_the_same_request_again_renews_a_kit_also_beyond_its_authoritys_first_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_ROOT_DAYS", 20)
        made = make_kits(tmp_path / "kits", "localhost", ["north"], days=10)
    kit = made.silos["north"]
    (tmp_path / "silo").mkdir()
    policy.join_kit(tmp_path / "silo", kit, made.responses["north"])
    response, (signed,) = federation.sign_requests(tmp_path / "kits", tmp_path / "kits" / "north.request", days=720)
    policy.join_kit(tmp_path / "silo", kit, kits.Response.read(response))
    said: list[str] = []
    kits.check_kit_dates(kit, "client", said.append)
    root, own, server = (
        x509.load_pem_x509_certificate(file.read_bytes())
        for file in (kit / "startup/rootCA.pem", kit / "startup/client.crt", made.server / "startup/server.crt")
    )
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=700)
    assert said == []
    assert own.not_valid_after_utc > later < root.not_valid_after_utc
    own.verify_directly_issued_by(root)
    server.verify_directly_issued_by(root)  # whoever did not renew yet is still known
    assert signed.name == "north"


def in_project(kit: Path, name: str) -> Path:
    """Let a kit be of a project with that name, as `nvflare provision` writes it, and return its settings."""
    settings = kit / "startup" / "fed_client.json"
    content = json.loads(settings.read_bytes())
    content["servers"][0]["name"] = name
    settings.write_text(json.dumps(content))
    return settings


@pytest.mark.parametrize("project", ["clinics", "Heart study_2.0-b", "ringfence"])
def test_a_kit_of_an_existing_federation_keeps_the_name_of_its_project(tmp_path: Path, kit: Path, project: str) -> None:
    settings = in_project(kit, project)
    server = json.loads(settings.read_bytes())["servers"][0]["service"]["target"]
    for _ in range(2):  # also if it joins again
        policy.join_kit(tmp_path / "silo", kit)
        [joined] = json.loads(settings.read_bytes())["servers"]
        assert (joined["name"], joined["service"]["target"]) == (project, server)


@pytest.mark.parametrize("project", ["", "..", "../else", 'a", "b": "c', "a\nb", "{{x}}", "a" * 101])
def test_a_project_name_that_could_reach_other_files_or_settings_is_refused(
    tmp_path: Path, kit: Path, project: str
) -> None:
    before = in_project(kit, project).read_bytes()
    with pytest.raises(DeploymentError, match=r"The project name in .* must have 1 to 100 letters, digits"):
        policy.join_kit(tmp_path / "silo", kit)
    assert (kit / "startup" / "fed_client.json").read_bytes() == before


# -- who may run a courier --


def test_a_courier_that_can_read_what_the_silo_keeps_does_not_start_unless_the_ledger_says_so(tmp_path: Path) -> None:
    silos = Federation(tmp_path, ["north"])
    made = make_kits(tmp_path / "kits", f"localhost:{free_port()}", ["north"])
    folder, kit, response = silos.silos["north"].silo_folder.path, made.silos["north"], tmp_path / "kits/north.response"
    ringfence("silo", "join", folder, kit, response, check=True)
    refused = ringfence("silo", "courier", folder, kit)
    assert refused.returncode == 1
    assert "signing.key" in refused.stderr
    assert "--same-user" in refused.stderr
    ringfence("silo", "certificate", folder, "--out", tmp_path / "before.json")
    assert "past the gate" not in ringfence("verify", tmp_path / "before.json").stdout

    ringfence("silo", "join", folder, kit, response, "--same-user", check=True)
    ringfence("silo", "join", folder, kit, "--same-user", check=True)
    marker = tmp_path / "imported"
    for module in ("json.py", "sitecustomize.py", "ringfence.py", "nvflare.py"):
        (kit / module).write_text(f"open({str(marker)!r}, 'w')")
    with Family(tmp_path) as family:
        family.environment["PYTHONPATH"] = str(kit)
        family.start("courier", ["silo", "courier", folder, kit], [sys.executable, "-E", "-m", "ringfence"])
        until(lambda: "is starting" in (tmp_path / "courier.log").read_text())  # NVFlare's words
    assert not marker.exists()  # Python looks into no kit, where jobs are unpacked
    assert ringfence("silo", "ledger", folder).stdout.count("the courier may run as a user who can read the data") == 1
    shown = ringfence("silo", "status", folder).stdout
    assert "The operator allowed the courier to run as a user who can read the data" in shown
    ringfence("silo", "certificate", folder, "--out", tmp_path / "after.json")
    verified = ringfence("verify", tmp_path / "after.json", check=True)
    assert "That nothing was read past the gate" in verified.stdout


def test_each_thing_that_a_silo_keeps_is_found_within_reach_and_what_a_courier_needs_is_not(tmp_path: Path) -> None:
    folder = Federation(tmp_path, ["north"]).silos["north"].silo_folder.path
    (folder / "operator.token").write_text("x" * 64)
    found = {path.name for path in within_reach(folder, "north")}
    assert found == {"silo.toml", "signing.key", "north.ledger", "operator.token", "north.csv", "north"}


ANOTHER_USER = """
import os, sys
from pathlib import Path
from ringfence.deployment.reach import within_reach
folder = Path(sys.argv[1])
if os.getuid() == 0:  # whom no mode stops
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(within_reach(folder, "north"), (folder / "courier.toml").read_text().startswith("format"))
"""


def test_a_user_who_may_only_reach_the_door_is_let_through() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Federation(Path(place), ["north"]).silos["north"].silo_folder.path
        Path(place).chmod(0o711)
        for file in (*folder.iterdir(), Path(place, "north.csv")):
            file.chmod(0o444 if file.name == "courier.toml" else 0o000)
        folder.chmod(0o111)
        command = [sys.executable, "-c", ANOTHER_USER, str(folder)]
        closed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        (folder / "signing.key").chmod(0o444)
        opened = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        folder.chmod(0o700)
    assert closed.stdout == "[] True\n", closed.stderr
    assert "signing.key" in opened.stdout, opened.stderr
