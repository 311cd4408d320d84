"""Heads that a silo signs, and what it makes of those that it is shown."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import LedgerDamagedError
from ringfence.protocol import Answer, Head, NoisyUpdate, Plan, RefusalReason, RoundRequest, SignedHead
from ringfence.shuffler.sealing import new_key, sign, verify, verifying_key
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.support import MakePlan, approved_by, ask, refusal

KEY = new_key()


@pytest.fixture
def signing(records: Records, ledger: Ledger) -> Gate:
    """The gate of silo 'clinic', with a key."""
    return Gate(records, ledger, KEY)


@pytest.fixture
def plan(signing: Gate, plan_of: MakePlan) -> Plan:
    """An approved plan."""
    return approved_by(signing, plan_of())


@pytest.fixture
def older(plan: Plan, ledger: Ledger, tmp_path: Path) -> Path:
    """A copy of the ledger as it was before the first round."""
    copy = tmp_path / "older.ledger"
    shutil.copyfile(ledger.path, copy)
    return copy


@pytest.fixture
def rolled_back(older: Path, signing: Gate, plan: Plan, records: Records) -> Iterator[tuple[Gate, SignedHead]]:
    """A gate on the older copy, and the head that went with round 0."""
    head = head_of(ask(signing, plan, 0))
    with Ledger.open(older, marked=False) as opened:
        yield Gate(records, opened, KEY), head


def head_of(answer: Answer) -> SignedHead:
    assert answer.head is not None
    return answer.head


def shown(gate: Gate, plan: Plan, round: int, *heads: SignedHead) -> Answer:
    """Ask for a round, with heads."""
    request = RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension))
    return gate.answer(RoundRequest.model_validate({**request.model_dump(), "heads": heads or None}))


def made(head: SignedHead, key: bytes = KEY, **changes: object) -> SignedHead:
    """Return another head, signed."""
    changed = Head.model_validate({**head.model_dump(exclude={"signature"}), **changes})
    return SignedHead(**changed.model_dump(), signature=sign(key, changed.signed_bytes()))


def test_an_answer_carries_the_charge_s_entry_signed(signing: Gate, plan: Plan, ledger: Ledger) -> None:
    first = ask(signing, plan, 0)
    head, entries = head_of(first), ledger.entries()
    (charge,) = [entry for entry in entries if entry.kind == "charged"]
    assert (head.ledger, head.number, head.hash) == (entries[0].hash, charge.number, charge.hash)
    assert verify(verifying_key(KEY), head.signed_bytes(), head.signature)
    assert set(json.loads(head.canonical())) == {"format", "ledger", "number", "hash", "signature"}
    ask(signing, plan, 1)
    assert ask(signing, plan, 0).to_bytes() == first.to_bytes()


def test_a_refusal_carries_the_entry_that_it_is_logged_by(signing: Gate, plan: Plan, ledger: Ledger) -> None:
    answer = ask(signing, plan, 99)
    last = ledger.entries()[-1]
    assert last.kind == "refused"
    assert (head_of(answer).number, head_of(answer).hash) == (last.number, last.hash)


def test_a_gate_without_a_key_signs_nothing_and_its_messages_are_as_they_were(gate: Gate, plan_of: MakePlan) -> None:
    plan = approved_by(gate, plan_of())
    for answer in (ask(gate, plan, 0), ask(gate, plan, 99)):
        assert answer.head is None
        assert b"head" not in answer.to_bytes()


def test_heads_that_the_ledger_holds_change_nothing(signing: Gate, plan: Plan) -> None:
    heads = [head_of(ask(signing, plan, round)) for round in range(3)]
    assert isinstance(shown(signing, plan, 3, *heads), NoisyUpdate)
    assert shown(signing, plan, 3, *heads).to_bytes() == ask(signing, plan, 3).to_bytes()


def test_a_later_head_stops_everything_for_good_and_nothing_is_written(
    rolled_back: tuple[Gate, SignedHead], plan: Plan, older: Path
) -> None:
    gate, head = rolled_back
    before = older.read_bytes()
    assert refusal(shown(gate, plan, 0, head)) is RefusalReason.FORGOTTEN
    for round in (0, 1, 99):
        answer = shown(gate, plan, round)
        assert refusal(answer) is RefusalReason.FORGOTTEN
        assert answer.head is None
    assert older.read_bytes() == before


def test_another_hash_at_a_number_that_the_ledger_has_stops_it_too(
    rolled_back: tuple[Gate, SignedHead], plan: Plan
) -> None:
    gate, head = rolled_back
    assert isinstance(ask(gate, plan, 1), NoisyUpdate)  # the ledger goes another way, and grows past the head
    assert isinstance(ask(gate, plan, 2), NoisyUpdate)
    assert refusal(shown(gate, plan, 3, head)) is RefusalReason.FORGOTTEN


def test_a_proven_rollback_is_remembered_when_the_ledger_is_opened_again(
    ledger: Ledger, signing: Gate, plan: Plan
) -> None:
    """Also where the ledger has more entries than the head that it lacks."""
    head = head_of(ask(signing, plan, 0))
    assert refusal(shown(signing, plan, 1, made(head, hash="0" * 64))) is RefusalReason.FORGOTTEN
    with pytest.raises(LedgerDamagedError, match=f"once had entry {head.number} with the hash 000000000000"):
        Ledger.open(ledger.path)
    with pytest.raises(LedgerDamagedError, match=f"entry {head.number}, which it held before"):
        ledger.account()


@pytest.mark.parametrize(
    "head",
    [
        lambda own: made(own, new_key(), number=99),  # signed by another silo
        lambda own: made(own, number=99, ledger="0" * 64),  # of another ledger of this silo
        lambda own: own.model_copy(update={"number": 99}),  # signed about something else
        lambda own: own.model_copy(update={"number": 99, "signature": "0" * 128}),
    ],
)
def test_a_head_that_proves_nothing_is_passed_over(signing: Gate, plan: Plan, head: object) -> None:
    assert callable(head)
    own = head_of(ask(signing, plan, 0))
    assert isinstance(shown(signing, plan, 1, head(own)), NoisyUpdate)
    assert refusal(shown(signing, plan, 1, head(own), made(own, number=99))) is RefusalReason.FORGOTTEN


def test_a_signature_of_a_head_is_one_of_nothing_else(signing: Gate, plan: Plan) -> None:
    head = head_of(ask(signing, plan, 0))
    assert head.signed_bytes().startswith(b"ringfence head 1\n")
    for change in ({"ledger": "0" * 64}, {"number": head.number + 1}, {"hash": "0" * 64}):
        changed = head.model_copy(update=change)
        assert not verify(verifying_key(KEY), changed.signed_bytes(), changed.signature)
