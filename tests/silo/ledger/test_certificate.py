"""A certificate shows everything that was released, and a changed byte of it shows too."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.errors import CertificateError
from ringfence.evidence.verification import verify
from ringfence.protocol import Guarantee, NoisyUpdate, Plan
from ringfence.protocol.documents.certificate import Certificate, SignedCertificate
from ringfence.shuffler.sealing import verifying_key
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.history import GENESIS
from ringfence.silo.ledger.ledger import account_name
from ringfence.silo.operator.decisions import approve_plan, end_plan, set_budget
from ringfence.storage.chain import entry_hash
from tests.support import MakePlan, ask, spent


def run(silo_folder: SiloFolder, plan: Plan, *rounds: int) -> list[NoisyUpdate]:
    """Approve a plan and answer rounds of it."""
    approve_plan(silo_folder, plan)
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        answers = [ask(gate, plan, round) for round in rounds]
        return [answer for answer in answers if isinstance(answer, NoisyUpdate)]


@pytest.fixture
def certificate(silo_folder: SiloFolder, plan_of: MakePlan) -> SignedCertificate:
    run(silo_folder, plan_of(epsilon=0.5, rounds=3), 0, 1, 1, 2)
    run(silo_folder, plan_of(epsilon=0.5, sampling="fixed", rounds=3), 0, 2)
    return certify(silo_folder)


@pytest.mark.parametrize(
    "changes",
    [
        *({"sampling": rule} for rule in ("full", "fixed", "poisson", "one-pass")),
        {"sampling": "one-pass", "correlation": 0.5},
        {"algorithm": "localized", "sampling": "phased", "rounds": 6},
        {"algorithm": "accelerated", "survey": True},
    ],
)
def test_a_certificate_of_any_kind_of_plan_passes_and_states_what_the_ledger_does(
    silo_folder: SiloFolder, plan_of: MakePlan, changes: dict[str, Any]
) -> None:
    plan = plan_of(**changes)
    released = run(silo_folder, plan, 0, 1, 3)
    finding = verify(certify(silo_folder).to_file(), key=verifying_key(silo_folder.key()))
    (proved,) = finding.used
    with silo_folder.ledger() as ledger:
        assert proved.epsilon == pytest.approx(spent(ledger), rel=1e-9)
    assert (proved.delta, proved.against) == (1e-6, "anyone")
    assert finding.charged == finding.released == len(released) == 3
    assert (finding.silo, finding.plans) == ("clinic", 1)
    assert finding.budget == (Guarantee(epsilon=2.0, delta=1e-6, against="anyone"),)
    assert "What is not proved" in finding.text()


def test_a_history_with_endings_reapprovals_budgets_and_refusals_passes(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan, ended = plan_of(epsilon=0.5), plan_of(epsilon=0.4)
    run(silo_folder, plan, 0, 1)
    run(silo_folder, ended, 0, 0, 7)
    end_plan(silo_folder, ended.digest(), revoke=True)
    set_budget(silo_folder, Budget(1.9, 1e-6))
    set_budget(silo_folder, Budget(3.0, 1e-5), note="a second study\nbudget: 1")
    run(silo_folder, plan, 1, 2)
    finding = verify(certify(silo_folder).to_file())
    stated = [(each["budget"][0]["epsilon"], each["note"], each["raised"]) for each in finding.data()["budgets"]]
    assert stated == [(2.0, "", False), (1.9, "", False), (3.0, "a second study\nbudget: 1", True)]
    lines = [line for line in finding.text().splitlines() if ": epsilon " in line]
    assert [line.partition(": ")[2] for line in lines] == [
        f"epsilon 2 at delta 1e-06, set by {account_name()}.",
        f"epsilon 1.9 at delta 1e-06, set by {account_name()}.",
        f"epsilon 3 at delta 1e-05, raised by {account_name()} (“a second study\\u000abudget: 1”).",
    ]
    with silo_folder.ledger() as ledger:
        times = [entry.time for entry in ledger.entries() if entry.kind == "budget"]
    assert [line.strip().removeprefix("- ").partition(": ")[0] for line in lines] == times
    assert finding.charged == finding.released == 4
    assert {(text.delta, text.against) for text in (*finding.used, *finding.budget)} == {(1e-5, "anyone")}


def test_released_vectors_stand_in_it_by_hash_and_no_record_does(silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    (update,) = run(silo_folder, plan_of(), 0)
    content = certify(silo_folder).to_file().decode()
    assert hashlib.sha256(update.to_bytes()).hexdigest() in content
    assert update.vector not in content
    rows = Path(silo_folder.settings.data_file).read_text().splitlines()[1:]
    assert not any(cell in content for row in rows for cell in row.split(",")[:3])


def forge(certificate: SignedCertificate, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Change the content, then mend the chain and sign it all with a key of the forger's own."""
    content = json.loads(certificate.certificate.content)
    change(content)
    previous = GENESIS
    for number, entry in enumerate(content["entries"], start=1):
        entry["number"] = number
        if "plan" in entry:
            entry["payload"] = hashlib.sha256(entry["plan"].encode()).hexdigest()
        entry["hash"] = previous = entry_hash(
            previous, number, entry["time"], entry["kind"], entry["body"], entry["payload"]
        )
    content["head"] = previous
    key = Ed25519PrivateKey.generate()
    content["public_key"] = key.public_key().public_bytes_raw().hex()
    forged = Certificate.model_validate_json(json.dumps(content))
    return SignedCertificate(forged, key.sign(forged.signed_bytes()).hex()).to_file()


def entries(content: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [entry for entry in content["entries"] if entry["kind"] == kind]


def drop(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["entries"].remove(entries(content, kind)[0])


def put_last(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["entries"].sort(key=lambda entry: entry["kind"] == kind)


def repeat(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["entries"].append(dict(entries(content, kind)[-1]))


def edit(kind: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        entry = entries(content, kind)[-1]
        assert old in entry["body"]
        entry["body"] = entry["body"].replace(old, new)

    return change


def more_noise(content: dict[str, Any]) -> None:
    entry = entries(content, "approved")[0]
    plan = json.loads(entry["plan"])
    plan["silos"][0]["stages"][0]["sigma"] *= 2
    entry["plan"] = json.dumps(plan)


def state(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["spent"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (state(epsilon=0.01), "states epsilon 0.01, but its charges add up to"),
        (state(delta=1e-3), "delta differs from that of the budget"),
        (state(against="server"), "omits what its charges cost"),
        (lambda content: content.update(released=1), "counts"),
        (lambda content: content.update(silo="other"), "belongs to another silo"),
        (drop("charged"), "released without a charge"),
        (drop("approved"), "not approved at that time"),
        (drop("opened"), "opened once, by its first entry"),
        (drop("budget"), "approved before there was a budget"),
        (put_last("budget"), "approved before there was a budget"),
        (repeat("charged"), "had no such round"),
        (repeat("released"), "released twice"),
        (edit("charged", '"shift":', '"shift":1'), "not the cost of the plan's round"),
        (edit("budget", '"epsilon":2.0', '"epsilon":0.1'), "exceeded the budget"),
        (edit("charged", '"round":2', '"round":"x"'), "cannot be read"),
        (edit("budget", '"format":1', '"format":2'), r"entry 2 .* format 2, .* up to 1: install a newer version"),
        (edit("charged", '"round":2', '"format":2,"round":2'), r"format 2, .* up to 1: install a newer version"),
        (more_noise, "not the cost of the plan"),
    ],
)
def test_a_forger_who_mends_chain_and_signature_is_found_by_what_does_not_fit(
    certificate: SignedCertificate, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    with pytest.raises(CertificateError, match=says):
        verify(forge(certificate, change))


def test_what_is_allowed_and_spent_is_proved_against_each_observer_and_none_can_be_left_out(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    set_budget(silo_folder, Budget(2.0, 1e-6, anyone=3.0), note="a test")
    run(silo_folder, plan_of(), 0, 1)
    signed = certify(silo_folder)
    finding = verify(signed.to_file())
    assert [text.against for text in finding.used] == [text.against for text in finding.budget] == ["server", "anyone"]
    assert [text.epsilon for text in finding.budget] == [2.0, 3.0]
    for place in (0, 1):
        forged = forge(signed, lambda content, place=place: content["spent"].pop(place))  # type: ignore[misc]
        with pytest.raises(CertificateError, match="omits what its charges cost"):
            verify(forged)


def test_only_the_key_from_another_source_tells_whose_certificate_it_is(
    silo_folder: SiloFolder, certificate: SignedCertificate
) -> None:
    forged = forge(certificate, lambda content: None)
    assert "ask the silo through another channel" in verify(forged).text()
    with pytest.raises(CertificateError, match="not with the one that you gave"):
        verify(forged, key=verifying_key(silo_folder.key()))
    assert "with the key that you gave" in verify(certificate.to_file(), key=verifying_key(silo_folder.key())).text()


def test_a_signature_is_not_taken_from_another_certificate(certificate: SignedCertificate) -> None:
    other = certificate.certificate.model_copy(update={"issued": "2020-01-01T00:00:00+00:00"})
    with pytest.raises(CertificateError, match="signature does not match"):
        verify(SignedCertificate(other, certificate.signature).to_file())


def test_asking_in_vain_is_certified_and_costs_nothing(silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    with silo_folder.ledger() as ledger:
        ask(Gate(silo_folder.records(), ledger), plan_of(), 0)
    found = verify(certify(silo_folder).to_file())
    assert (found.entries, found.used) == (3, (Guarantee(epsilon=0.0, delta=1e-6, against="anyone"),))
