"""Released answers stand in the ledger's file alone, and are checked again whenever one is repeated."""

import sqlite3
import tracemalloc
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError
from ringfence.protocol.messages import NoisyUpdate, RefusalReason
from ringfence.protocol.plan import Plan
from ringfence.silo.account import StoredAnswer
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.storage.chain import Draft
from tests.support import MakePlan, ask, refusal

LARGE = 2**20


def overwrite(path: Path, statement: str) -> None:
    """Change the file as only somebody can who goes around the ledger."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER IF EXISTS entries_rest")
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.fixture
def plan(gate: Gate, plan_of: MakePlan) -> Plan:
    """An approved plan, of whose rounds the first is answered."""
    made = plan_of()
    gate.approve(made)
    assert isinstance(ask(gate, made, 0), NoisyUpdate)
    return made


def stored(ledger: Ledger, plan: Plan) -> StoredAnswer:
    found = ledger.account().plans[plan.digest()].rounds[0].answer
    assert found is not None
    return found


def test_a_ledger_with_many_large_answers_takes_the_memory_of_a_few(ledger: Ledger, plan: Plan) -> None:
    event = next(iter(ledger.account().plans[plan.digest()].rounds.values())).event.to_dict()
    for round in range(1, 41):
        charged = Draft("charged", {"plan": plan.digest(), "round": round, "weights": "0" * 64, "event": event})
        released = Draft("released", {"plan": plan.digest(), "round": round}, bytes(LARGE))
        ledger.update(lambda _, drafts=(charged, released): (None, drafts))  # type: ignore[misc]
    tracemalloc.start()
    try:
        with Ledger.open(ledger.path) as opened:
            assert len(opened.account().plans[plan.digest()].rounds) == 41
            now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < LARGE
    assert most < 10 * LARGE


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET payload = CAST(replace(payload, 'plan', 'nalp') AS BLOB) WHERE number = {}",
        "UPDATE entries SET payload = CAST('other' AS BLOB) WHERE number = {}",
        "UPDATE entries SET body = '{{}}' WHERE number = {}",
        "UPDATE entries SET hash = 'other' WHERE number = {} - 1",
    ],
)
def test_a_stored_answer_that_was_changed_behind_the_agent_s_back_is_not_repeated(
    gate: Gate, ledger: Ledger, plan: Plan, statement: str
) -> None:
    answer = stored(ledger, plan)
    ask(gate, plan, 1)  # so that the entry is not the last one, at which the chain itself is looked at
    overwrite(ledger.path, statement.format(answer.entry))
    with pytest.raises(LedgerDamagedError, match=f"entry {answer.entry} is missing or was changed"):
        ledger.stored(answer)
    assert refusal(ask(gate, plan, 0)) is RefusalReason.UNAVAILABLE


def test_an_answer_that_no_entry_holds_is_damage_and_not_an_answer(ledger: Ledger, plan: Plan) -> None:
    with pytest.raises(LedgerDamagedError, match="entry 99 is missing"):
        ledger.stored(StoredAnswer(99, stored(ledger, plan).hash))
