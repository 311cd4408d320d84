"""Certificates are checked by the bytes that were signed, and against every kind of observer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import CertificateError
from ringfence.evidence.verification import verify, verify_file
from ringfence.protocol import Guarantee
from ringfence.protocol.documents.certificate import Certificate, SignedCertificate, read_certificate
from ringfence.protocol.public import canonical_json
from ringfence.shuffler.sealing import new_key, sign, verifying_key
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.operator.decisions import approve_plan
from tests.silo.agents import make_silo_folder
from tests.support import MakePlan, ask

GOLDEN = Path(__file__).parents[1] / "golden" / "v1_0_0" / "certificates"


@pytest.fixture
def content(tmp_path: Path, plan_of: MakePlan) -> bytes:
    """A certificate's file."""
    silo_folder, plan = make_silo_folder(tmp_path), plan_of(rounds=2)
    approve_plan(silo_folder, plan)
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        for round in range(2):
            ask(gate, plan, round)
    return certify(silo_folder).to_file()


def test_a_certificate_that_nobody_signed_is_not_valid_by_a_key_of_low_order(tmp_path: Path) -> None:
    """With the curve's neutral point as its key, one signature fits every content."""
    certificate = certify(make_silo_folder(tmp_path)).certificate.model_copy(
        update={"public_key": "01" + "00" * 31, "issued": "whenever"}
    )
    forged = SignedCertificate(certificate, "01" + "00" * 63)
    with pytest.raises(CertificateError, match="signature does not match"):
        verify(forged.to_file(), key=certificate.public_key)


def resigned(certificate: Certificate, **changes: Any) -> bytes:
    """Write a certificate with other fields, signed with a key of the forger's own."""
    key = new_key()
    fields = {name: getattr(certificate, name) for name in Certificate.model_fields}
    made = Certificate(**{**fields, **changes, "public_key": verifying_key(key)})
    return SignedCertificate(made, sign(key, made.signed_bytes())).to_file()


def some_places(content: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Yield places all over the content, and another byte for each."""
    random = np.random.default_rng(5)
    for place in random.choice(len(content), size=min(count, len(content)), replace=False).tolist():
        yield place, int(random.choice([byte for byte in b'0123456789abcdef" ,}' if byte != content[place]]))


def test_a_certificate_passes_and_names_whom_its_costs_are_against(content: bytes) -> None:
    found = verify(content)
    assert [spent.against for spent in found.used] == ["anyone"]
    assert 0 < found.used[0].epsilon <= found.budget[0].epsilon
    assert found.charged == found.released > 0
    assert verify(content, key=found.public_key).key_was_given
    assert json.loads(json.dumps(found.data()))["used"] == [found.used[0].model_dump()]


def test_a_byte_changed_anywhere_in_the_file_shows(content: bytes) -> None:
    for place, byte in some_places(content, 500):
        with pytest.raises(CertificateError, match=r"[Cc]ertificate"):
            verify(content[:place] + bytes([byte]) + content[place + 1 :])
    for other in (content[:-1], content + b" ", b" " + content, content[:-1] + b" ", content[:-1] + b"\r\n", b""):
        with pytest.raises(CertificateError):
            verify(other)


def test_what_no_other_check_covers_the_signature_does(content: bytes) -> None:
    """When a certificate was issued stands neither in the chain of entries nor in the costs."""
    issued = verify(content).issued.encode()
    assert content.count(issued) == 1
    for place in range(len(issued)):
        if issued[place : place + 1].isdigit():
            later = issued[:place] + bytes([b"1234567890"[issued[place] - ord("0")]]) + issued[place + 1 :]
            with pytest.raises(CertificateError, match="signature does not match"):
                verify(content.replace(issued, later))


def test_the_same_said_in_other_bytes_was_not_signed(content: bytes) -> None:
    made = read_certificate(content)
    file = json.loads(made.to_file())
    file["content"] = json.dumps(json.loads(file["content"]), indent=1)
    assert Certificate.parse(file["content"].encode(), error=CertificateError) == made.certificate
    with pytest.raises(CertificateError, match="signature does not match"):
        verify(canonical_json(file) + b"\n")


def test_only_a_genuine_certificate_in_a_rewritten_file_is_said_to_pass_its_checks(content: bytes) -> None:
    def rewritten(file: bytes) -> bytes:
        return json.dumps(json.loads(file), indent=1).encode()

    with pytest.raises(CertificateError, match="passes every check, but the file was rewritten"):
        verify(rewritten(content))
    issued = verify(content).issued.encode()
    for forged in (
        content.replace(issued, b"2001-01-01T00:00:00+00:00"),
        content.replace(b"replace-one", b"add-remove"),
    ):
        assert forged != content
        with pytest.raises(CertificateError) as refused:
            verify(rewritten(forged))
        assert not any(word in str(refused.value) for word in ("right", "passes"))


def test_a_certificate_of_a_newer_format_is_refused_with_what_to_install(content: bytes) -> None:
    newer = "format 2, and this version of Ringfence reads formats up to 1: install a newer version"
    with pytest.raises(CertificateError, match=f"This CertificateFile has {newer}"):
        verify(canonical_json({"format": 2, "kind": "ringfence-certificate", "proof": "of another kind"}))
    file = json.loads(content)
    stated = {**json.loads(file["content"]), "format": 2}
    file["content"] = canonical_json(stated).decode()
    with pytest.raises(CertificateError, match=f"This Certificate has {newer}"):
        verify(canonical_json(file) + b"\n")


# Through a shuffler


def test_shuffled_releases_are_proved_against_the_server_and_against_anyone() -> None:
    for content in ((GOLDEN / "shuffled-west.json").read_bytes(), resigned(shuffled())):
        found = verify(content)
        assert all(used.epsilon <= limit.epsilon for used, limit in zip(found.used, found.guarantee, strict=True))
        server, anyone = found.guarantee
        assert (server.against, anyone.against) == ("server", "anyone")
        assert 0 < server.epsilon < anyone.epsilon
        assert f"private at epsilon = {server.epsilon:.6g}, " in found.text()
        assert f"shuffler and all other silos together, the silo's own noise gives epsilon = {anyone.epsilon:.6g}" in (
            " ".join(found.text().split())
        )


def shuffled() -> Certificate:
    return read_certificate((GOLDEN / "shuffled-west.json").read_bytes()).certificate


def test_a_certificate_that_leaves_out_or_lowers_one_observer_s_costs_is_refused() -> None:
    certificate = shuffled()
    server, anyone = certificate.spent
    for spent in ((server,), (anyone,)):
        with pytest.raises(CertificateError, match="omits what its charges cost against one kind of observer"):
            verify(resigned(certificate, spent=spent))
    as_server: Guarantee = anyone.model_copy(update={"epsilon": server.epsilon})
    with pytest.raises(CertificateError, match=f"states epsilon {server.epsilon:.6g}, but its charges add up to"):
        verify(resigned(certificate, spent=(server, as_server)))
    with pytest.raises(CertificateError, match="delta differs from that of the budget"):
        verify(resigned(certificate, spent=(server, anyone.model_copy(update={"delta": 1e-3}))))


def test_a_file_that_is_not_there_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="could not be read: No such file"):
        verify_file(tmp_path / "none.json")
