"""A certificate shows everything that was released, and a changed byte of it shows too."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.errors import CertificateError
from ringfence.protocol.certificate import Certificate
from ringfence.protocol.messages import NoisyUpdate, RoundRequest
from ringfence.protocol.plan import Plan
from ringfence.report.verify import verify
from ringfence.silo.certificate import certify
from ringfence.silo.chain import GENESIS, entry_hash
from ringfence.silo.decisions import approve_plan, end_plan, set_budget
from ringfence.silo.gate import Gate
from ringfence.silo.house import House
from ringfence.silo.ledger import Budget
from ringfence.silo.sealed import public_key
from tests.silo.agents import make_house
from tests.support import MakePlan, ask


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path)


def run(house: House, plan: Plan, *rounds: int) -> list[NoisyUpdate]:
    """Approve a plan and answer rounds of it."""
    approve_plan(house, plan)
    with house.ledger() as ledger:
        gate = Gate(house.records(), ledger)
        answers = [ask(gate, plan, round) for round in rounds]
        return [answer for answer in answers if isinstance(answer, NoisyUpdate)]


@pytest.fixture
def certificate(house: House, plan_of: MakePlan) -> Certificate:
    run(house, plan_of(epsilon=0.5, rounds=3), 0, 1, 1, 2)
    run(house, plan_of(epsilon=0.5, sampling="fixed", rounds=3), 0, 2)
    return certify(house)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": "full"},
        {"sampling": "fixed"},
        {"sampling": "poisson"},
        {"sampling": "one-pass"},
        {"sampling": "one-pass", "correlation": 0.5},
        {"algorithm": "localized", "sampling": "phased", "rounds": 6},
        {"algorithm": "accelerated", "survey": True},
    ],
)
def test_a_certificate_of_any_kind_of_plan_passes_and_states_what_the_ledger_does(
    house: House, plan_of: MakePlan, changes: dict[str, Any]
) -> None:
    plan = plan_of(**changes)
    released = run(house, plan, 0, 1, 3)
    finding = verify(certify(house).to_file(), key=public_key(house.key()))
    with house.ledger() as ledger:
        assert finding.epsilon == pytest.approx(ledger.account().spent(), rel=1e-9)
    assert finding.charged == finding.released == len(released) == 3
    assert (finding.silo, finding.plans, finding.budget) == ("clinic", 1, (2.0, 1e-6, 2.0))
    assert "What is not proved" in finding.text()


def test_a_history_with_endings_reapprovals_budgets_and_refusals_passes(house: House, plan_of: MakePlan) -> None:
    plan = plan_of(epsilon=1.0)
    run(house, plan, 0, 1)
    end_plan(house, plan.digest(), revoke=True)
    run(house, plan_of(epsilon=1.2), 0, 0, 7)
    set_budget(house, Budget(1.9, 1e-6))
    set_budget(house, Budget(3.0, 1e-5))
    run(house, plan, 1, 2)
    finding = verify(certify(house).to_file())
    assert finding.charged == finding.released == 4
    assert finding.delta == 1e-5


def test_an_empty_ledger_has_a_certificate_of_nothing(house: House) -> None:
    assert verify(certify(house).to_file()).epsilon == 0.0


def test_released_vectors_stand_in_it_by_hash_and_no_record_does(house: House, plan_of: MakePlan) -> None:
    (update,) = run(house, plan_of(), 0)
    content = certify(house).to_file().decode()
    assert hashlib.sha256(update.to_bytes()).hexdigest() in content
    assert update.vector not in content
    rows = Path(house.settings.data_file).read_text().splitlines()[1:]
    assert not any(cell in content for row in rows for cell in row.split(",")[:3])


def test_a_byte_changed_anywhere_makes_it_fail(certificate: Certificate) -> None:
    content = certificate.to_file()
    verify(content)
    random = np.random.default_rng()
    for place in random.choice(len(content), size=150, replace=False):
        changed = bytearray(content)
        changed[place] = random.choice([byte for byte in b'0123456789abcdef" ,}' if byte != content[place]])
        with pytest.raises(CertificateError, match=r"certificate|Certificate"):
            verify(bytes(changed))
    for other in (content[:-1], content + b" ", content[:-2], b"", content.replace(b"\n", b"")):
        with pytest.raises(CertificateError):
            verify(other)


def forge(certificate: Certificate, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Change the content, then mend the chain and sign it all with a key of the forger's own."""
    content = json.loads(certificate.canonical())
    change(content)
    previous = GENESIS
    for number, entry in enumerate(content["entries"], start=1):
        entry["number"] = number
        if entry["plan"]:
            entry["payload"] = Plan.model_validate(entry["plan"], strict=False).digest()
        entry["hash"] = previous = entry_hash(
            previous, number, entry["time"], entry["kind"], entry["body"], entry["payload"]
        )
    content["head"] = previous
    key = Ed25519PrivateKey.generate()
    content["public_key"] = key.public_key().public_bytes_raw().hex()
    unsigned = Certificate.model_validate_json(json.dumps(content))
    return unsigned.model_copy(update={"signature": key.sign(unsigned.signed_bytes()).hex()}).to_file()


def entries(content: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [entry for entry in content["entries"] if entry["kind"] == kind]


def drop(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["entries"].remove(entries(content, kind)[0])


def repeat(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["entries"].append(dict(entries(content, kind)[-1]))


def edit(kind: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        entry = entries(content, kind)[-1]
        assert old in entry["body"]
        entry["body"] = entry["body"].replace(old, new)

    return change


def more_noise(content: dict[str, Any]) -> None:
    entries(content, "approved")[0]["plan"]["silos"][0]["sigma"] *= 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content.update(epsilon=0.01), "states epsilon 0.01, but its charges come to"),
        (lambda content: content.update(delta=1e-3), "delta is not the one of the budget"),
        (lambda content: content.update(released=1), "counts"),
        (lambda content: content.update(silo="other"), "another silo's"),
        (drop("charged"), "released without having been charged"),
        (drop("approved"), "not approved at that time"),
        (drop("opened"), "opened once, by its first entry"),
        (drop("budget"), "more was promised|delta"),
        (repeat("charged"), "did not have this round"),
        (repeat("released"), "released twice"),
        (edit("charged", '"shift":', '"shift":1'), "not what the plan's round costs"),
        (edit("budget", '"epsilon":2.0', '"epsilon":0.1'), "more was promised"),
        (edit("charged", '"round":2', '"round":"x"'), "cannot be read"),
        (more_noise, "not what the plan costs"),
    ],
)
def test_a_forger_who_mends_chain_and_signature_is_found_by_what_does_not_fit(
    certificate: Certificate, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    with pytest.raises(CertificateError, match=says):
        verify(forge(certificate, change))


def test_only_the_key_from_another_source_tells_whose_certificate_it_is(house: House, certificate: Certificate) -> None:
    forged = forge(certificate, lambda content: None)
    assert "ask the silo by another way" in verify(forged).text()
    with pytest.raises(CertificateError, match="not the one that you named"):
        verify(forged, key=public_key(house.key()))
    assert "by the key that you named" in verify(certificate.to_file(), key=public_key(house.key())).text()


def test_a_signature_is_not_taken_from_another_certificate(house: House, certificate: Certificate) -> None:
    other = certify(house).model_copy(update={"issued": "2020-01-01T00:00:00+00:00"})
    with pytest.raises(CertificateError, match="signature does not fit"):
        verify(other.to_file())


def test_asking_in_vain_is_certified_too(house: House, plan_of: MakePlan) -> None:
    plan = plan_of()
    with house.ledger() as ledger:
        Gate(house.records(), ledger).answer(RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension)))
    assert verify(certify(house).to_file()).entries == 3
