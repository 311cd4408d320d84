"""A dossier says what was checked and what is missing, is signed, and refuses what does not fit."""

import hashlib
import html
import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import CertificateError, MessageError, OutputError, PlanError
from ringfence.evidence.dossier.evidence import Evidence, Inputs, gather_evidence, read_audit, read_evaluation
from ringfence.evidence.dossier.page import dossier_page
from ringfence.evidence.dossier.signing import make_key, read_signature, verify_dossier
from ringfence.evidence.dossier.writing import WrittenDossier, write_dossier
from ringfence.model.model import Model
from ringfence.planning.propose import propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol.documents.certificate import read_certificate
from ringfence.shuffler.sealing import verifying_key
from ringfence.storage.files import read_key
from tests.evidence.dossier.conftest import NOTE, RECORDS, Run
from tests.evidence.report.conftest import AUDIT, HOSTILE

CERTIFICATES = [
    path
    for path in sorted((Path(__file__).parents[2] / "golden").glob("v*/certificates/*.json"))
    if b'"approved"' in path.read_bytes() or b'\\"approved\\"' in path.read_bytes()
]
"""Those of ledgers with a plan."""


def text_of(page: str) -> str:
    """Return what a person reads."""
    body = re.sub(r"(?s)<style>.*?</style>", "", page)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def page_of(inputs: Inputs) -> str:
    return dossier_page(gather_evidence(inputs), "0" * 64).html()


@pytest.fixture(scope="module")
def evidence(run: Run) -> Evidence:
    return gather_evidence(run.everything())


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    """What a person reads in the dossier of everything."""
    return text_of(page_of(run.everything()))


@pytest.fixture
def written(run: Run, tmp_path: Path) -> WrittenDossier:
    return write_dossier(run.everything(), run.file("signing.key"), tmp_path / "dossier.html")


def test_it_says_who_approved_what_when_under_which_guarantee_and_what_was_tested(
    run: Run, evidence: Evidence, page: str
) -> None:
    for heading in (
        "What is missing", "1. Description of the processing", "2. Necessity and proportionality",
        "3. Risks to the people concerned", "4. Measures", "Questions of NIST SP 800-226", "An output checker's list",
    ):  # fmt: skip
        assert heading in page
    assert "A Clinic, Anytown" in page
    assert "dpo@clinic.example" in page
    assert NOTE in page
    assert run.plan.digest() in page
    assert "does not refute the claim" in page
    assert "How good the model is" in page
    for name in run.silos:
        assert run.key(name) in page
    for silo in evidence.silos:
        assert silo.certified is not None
        followed = silo.plans[run.plan.digest()]
        assert len(followed.released) == run.plan.rounds
        assert followed.approvals[0].note == NOTE
        assert followed.approvals[0].by
        assert followed.approvals[0].time[:16].replace("T", " ") in page
        (granted,) = silo.certified.history.budgets
        when = granted.time[:16].replace("T", " ")
        assert f"{silo.name} {when} {granted.budget} {granted.by}" in page
        assert silo.run[0].epsilon <= silo.terms.guarantee.epsilon * (1 + 1e-9)
        assert silo.certified.guarantee[0].epsilon >= silo.run[0].epsilon
    unit_observer_and_adaptivity = (
        "This run, fixed in advance: for each record of a silo, against anyone who sees what the silo sends",
        "Everything in the silo's ledger, however plans were chosen and whenever you stop",
        "clinic record anyone who sees what the silo sends 2 ",
    )
    assert all(words in page for words in unit_observer_and_adaptivity)


def test_the_exact_bet_stands_beside_the_bound_and_is_no_worse(evidence: Evidence, page: str) -> None:
    for silo in evidence.silos:
        exact = evidence.exact(silo, "anyone")
        assert 0.5 < exact < 0.74
        assert f"73.1% {exact:.1%}" in page  # (1 + δe^-ε)/(1 + e^-ε) of epsilon 1


def test_what_is_missing_is_named(run: Run, evidence: Evidence) -> None:
    assert [line[:31] for line in evidence.missing()] == ["The model carries no statement,"]
    bare = propose_for(PlanRequest(epsilon=1.0, rounds=3), run.plan.data, dict.fromkeys(run.silos, RECORDS)).plan
    path = run.folder / "bare.json"
    path.write_bytes(bare.content)
    missing = "\n".join(gather_evidence(Inputs(plan=path)).missing())
    for words in (
        "names no purpose", "names no controller", "names no contact", "No certificate from silo 'clinic'",
        "No model was given", "No audit was given", "No evaluation was given",
    ):  # fmt: skip
        assert words in missing
    page = text_of(page_of(Inputs(plan=path)))
    assert "No certificate from silo 'clinic'" in page
    assert "not known: no certificate" in page
    assert "what the plan promises: no silo gave a certificate" in page


def test_of_a_silo_without_a_certificate_nothing_is_said_to_be_verified(run: Run) -> None:
    inputs = replace(run.everything(), certificates=[run.certificate("clinic")], keys={})
    missing = "\n".join(gather_evidence(inputs).missing())
    assert "The key of silo 'clinic' was not confirmed independently" in missing
    assert "No certificate from silo '<img" in missing
    assert "Not every silo's certificate shows the evaluation's plan" in missing
    page = text_of(page_of(inputs))
    assert page.count("the plan alone") == 1
    assert "This covers the silos that gave a certificate" in page


def test_a_tampered_certificate_or_one_of_another_key_is_refused_and_nothing_is_written(
    run: Run, tmp_path: Path
) -> None:
    content = run.certificate("clinic").read_bytes()
    assert content.count(NOTE.encode()) == 1
    forged = tmp_path / "forged.json"
    forged.write_bytes(content.replace(NOTE.encode(), NOTE.upper().encode()))
    for inputs, words in (
        (replace(run.everything(), certificates=[forged], keys={}), "hash chain breaks"),
        (replace(run.everything(), keys={"clinic": run.key(HOSTILE)}), "not with the one that you gave"),
        (replace(run.everything(), keys={"elsewhere": run.key(HOSTILE)}), "no certificate from it"),
    ):
        with pytest.raises(CertificateError, match=words):
            write_dossier(inputs, run.file("signing.key"), tmp_path / "dossier.html")
    assert list(tmp_path.glob("dossier*")) == []


def test_documents_that_are_not_of_one_plan_are_refused(run: Run) -> None:
    def other(*names: str) -> Path:
        plan = propose_for(PlanRequest(epsilon=1.0, rounds=3), run.plan.data, dict.fromkeys(names, RECORDS)).plan
        path = run.folder / "other.json"
        path.write_bytes(plan.content)
        return path

    with pytest.raises(PlanError, match="The model was trained by plan"):
        gather_evidence(replace(run.everything(), plan=other(*run.silos)))
    with pytest.raises(CertificateError, match="does not show plan"):
        gather_evidence(Inputs(plan=other(*run.silos), certificates=[run.certificate("clinic")]))
    with pytest.raises(CertificateError, match="takes no part in plan"):
        gather_evidence(Inputs(plan=other("north"), certificates=[run.certificate("clinic")]))
    with pytest.raises(PlanError, match="A dossier needs a plan"):
        gather_evidence(Inputs(certificates=[run.certificate("clinic")]))
    (run.folder / "again").mkdir()
    again = run.folder / "again" / "clinic.json"
    again.write_bytes(run.certificate("clinic").read_bytes())
    with pytest.raises(CertificateError, match="Two of the certificates are from the same silo"):
        gather_evidence(replace(run.everything(), certificates=[run.certificate("clinic"), again], keys={}))


@pytest.mark.parametrize("certificate", CERTIFICATES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_certificates_of_every_version_make_dossiers_of_their_plans(certificate: Path, tmp_path: Path) -> None:
    plan = [entry.plan for entry in read_certificate(certificate.read_bytes()).certificate.entries if entry.plan][-1]
    path = tmp_path / "plan.json"
    path.write_bytes(plan.content)
    evidence = gather_evidence(Inputs(plan=path, certificates=[certificate]))
    page = text_of(page_of(Inputs(plan=path, certificates=[certificate])))
    (found,) = evidence.certified.values()
    for total in found.guarantee:
        assert f"{found.unit} {found.against(total.against)} {total.epsilon:.4g}" in page
    assert page.count("This run, fixed in advance: for each record of a silo, against") == len(plan.observers)


def test_what_others_wrote_stays_text(run: Run) -> None:
    page = page_of(run.everything())
    assert "<img" not in page
    assert html.escape(HOSTILE) in page
    assert "<script" not in page


def test_the_signature_covers_the_page_and_its_sources(run: Run, written: WrittenDossier) -> None:
    key = verifying_key(read_key(run.file("signing.key"), OutputError))
    signed = verify_dossier(written.page, written.signature, key=key)
    assert signed.plan == run.plan.digest()
    assert signed.sources == run.everything().digests()
    assert signed.public_key == written.public_key == key
    with pytest.raises(CertificateError, match="not with the one you named"):
        verify_dossier(written.page, written.signature, key="0" * 64)
    written.page.write_bytes(written.page.read_bytes().replace(b"A Clinic", b"B Clinic"))
    with pytest.raises(CertificateError, match="is not what was signed"):
        verify_dossier(written.page, written.signature)


def test_a_byte_changed_anywhere_in_the_signature_shows(written: WrittenDossier) -> None:
    content = written.signature.read_bytes()
    read_signature(content)
    for place in range(0, len(content) - 1, 7):
        other = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(CertificateError):
            read_signature(other)


def test_a_dossier_that_an_earlier_version_signed_is_still_what_was_signed() -> None:
    golden = Path(__file__).parents[2] / "golden" / "v1_0_0"
    signed = verify_dossier(golden / "dossiers" / "dossier.html", golden / "dossiers" / "dossier.signature.json")
    certificate = (golden / "certificates" / "surveyed-north.json").read_bytes()
    assert signed.sources["surveyed-north.json"] == hashlib.sha256(certificate).hexdigest()


def test_a_key_is_private_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    public = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert verifying_key(read_key(path, OutputError)) == public
    with pytest.raises(OutputError, match="name a new file for the key"):
        make_key(path)


def test_an_audit_that_refutes_the_claim_is_shown_at_the_top(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "refuted.json"
    path.write_text(json.dumps({**AUDIT, "refuted": True}))
    page = text_of(page_of(replace(run.everything(), audit=path)))
    assert page.index("THE AUDIT REFUTES THE CLAIM") < page.index("What is missing")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sabotage": "half-noise"}, "broken on purpose"),
        ({"score": "high"}, "not the output"),
        ({"runs": None}, "not the output"),
    ],
)
def test_what_is_no_audit_of_a_sound_silo_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MessageError, match=words):
        read_audit(json.dumps({**AUDIT, **changes}).encode())


def test_a_later_evaluation_is_taken_with_the_plan_it_was_asked_by(run: Run, tmp_path: Path) -> None:
    evaluation = Model.load(run.file("model.json")).evaluation
    assert evaluation is not None
    stated = {"plan": run.plan.digest(), "evaluation": evaluation.model_dump(mode="json")}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(stated))
    found = gather_evidence(replace(run.everything(), model=None, plan=run.file("plan.json"), evaluation=path))
    assert found.evaluation == evaluation
    assert set(found.evaluated_by) == set(run.silos)
    path.write_text(json.dumps({**stated, "plan": "0" * 64}))
    missing = gather_evidence(replace(run.everything(), evaluation=path)).missing()
    assert any("the evaluation's plan" in line for line in missing)
    with pytest.raises(MessageError, match="no private evaluation"):
        read_evaluation(b'{"evaluation": null, "plan": ""}')


def test_files_that_cannot_be_stated_apart_or_are_no_pages_are_refused(run: Run, tmp_path: Path) -> None:
    twice = tmp_path / "model.json"
    twice.write_bytes(run.plan.content)
    with pytest.raises(PlanError, match=r"Two of the dossier's files are called model\.json"):
        gather_evidence(replace(run.everything(), plan=twice))
    with pytest.raises(OutputError, match=r"ends in \.html"):
        write_dossier(run.everything(), run.file("signing.key"), tmp_path / "dossier.pdf")
