"""Killed at any point, a silo never sends more than its ledger shows, and never two answers to one round."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import task_event
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RefusalReason, parse_answer
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import task
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from tests.nursery import Python
from tests.silo.crashing_silo import POINTS
from tests.support import MakePlan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan(tmp_path: Path, gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan) -> Plan:
    """An approved plan whose silo now lives in other processes."""
    plan = plan_of(rounds=200)
    gate.approve(plan)
    ledger.close()
    (tmp_path / "plan.json").write_bytes(plan.content)
    (tmp_path / "arrays").write_bytes(pickle.dumps((records.features, records.targets)))
    return plan


def start(folder: Path, point: str, rounds: list[int]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.silo.crashing_silo", str(folder), point, *map(str, rounds)]
    return Python(command, stdout=subprocess.PIPE, cwd=ROOT)


def sent(output: bytes) -> list[Answer]:
    lines = output.split(b"\n")
    return [parse_answer(line) for line in lines[:-1]]  # what follows the last newline never arrived whole


def check_that_ledger_covers(folder: Path, plan: Plan, answers: list[Answer]) -> None:
    updates = {(a.round, a.vector) for a in answers if isinstance(a, NoisyUpdate)}
    rounds = {round for round, _ in updates}
    assert len(updates) == len(rounds), "a round was answered with two different vectors"
    with Ledger.open(folder / "clinic.ledger") as ledger:
        account = ledger.account()
    assert rounds <= set(account.plans[plan.digest()].rounds)
    terms = plan.silos[0]
    true_cost = accountant.epsilon([(task_event(plan, terms, task(plan, terms, 0, 0)), len(rounds))], 1e-6)
    (told,) = account.spent()
    assert true_cost <= told.epsilon <= account.budget.epsilon


@pytest.mark.parametrize("point", POINTS)
def test_a_silo_killed_at_any_step_of_a_round_can_only_have_over_charged(
    tmp_path: Path, plan: Plan, point: str
) -> None:
    first = start(tmp_path, point, [0, 1])
    before, _ = first.communicate()
    assert first.returncode == (0 if point == "none" else -9)
    second = start(tmp_path, "none", [0, 1, 2])
    after, _ = second.communicate()
    assert second.returncode == 0
    answers = sent(before) + sent(after)
    check_that_ledger_covers(tmp_path, plan, answers)
    again = sent(after)
    assert again[0].to_bytes() == sent(before)[0].to_bytes()
    assert isinstance(again[2], NoisyUpdate), "the next round goes on"
    lost = point in ("after-charge", "after-draw", "after-release", "in-store")
    if lost:
        assert isinstance(again[1], Refusal)
        assert again[1].reason is RefusalReason.ROUND_LOST
    else:
        assert isinstance(again[1], NoisyUpdate)


def test_a_silo_killed_from_outside_in_the_middle_of_its_work_can_only_have_over_charged(
    tmp_path: Path, plan: Plan
) -> None:
    """It goes on while we read its answers, so where in a round the signal meets it is up to the machine."""
    answers: list[Answer] = []
    for attempt, many in enumerate((1, 2, 3, 5, 8, 13)):
        process = start(tmp_path, "none", list(range(30 * attempt, 30 * attempt + 30)))
        assert process.stdout is not None
        first = b"".join(process.stdout.readline() for _ in range(many))
        process.kill()
        rest, _ = process.communicate()
        answers += sent(first + rest)
    assert len(answers) >= 32
    check_that_ledger_covers(tmp_path, plan, answers)
