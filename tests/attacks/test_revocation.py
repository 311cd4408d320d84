"""A revocation holds from the moment that it returns, also against a round that is being computed."""

import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Answer, RefusalReason, load_schema
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator import decisions
from ringfence.storage.files import state_folder
from tests.silo.agents import approved, serving, silo_with
from tests.support import refusal

CATEGORIES = 5_000
RECORDS = 20


@pytest.fixture
def slow_silo(tmp_path: Path) -> SiloFolder:
    """A silo whose answers are 45,000 numbers, each with noise that is drawn exactly: a second of work."""
    categories = ", ".join(f'"{number}"' for number in range(CATEGORIES))
    columns = "".join(f'[columns.{name}]\ntype = "categorical"\ncategories = [{categories}]\n' for name in "abc")
    schema = f'{columns}[columns.kind]\ntype = "categorical"\ncategories = ["x", "y", "z"]\n'
    rows = [f"{number},{number + 1},{number + 2},{'xyz'[number % 3]}" for number in range(RECORDS)]
    return silo_with(tmp_path, schema, "\n".join(["a,b,c,kind", *rows]), Budget(2.0, 1e-6))


def wait_for_a_charge(path: Path) -> None:
    with Ledger.open(path) as ledger:
        while not ledger.account().charged():
            pass


def stop(agent: "subprocess.Popen[bytes]") -> None:
    """Stop the agent, but not in the short moment in which it holds the lock of the ledger's watermark."""
    (mark,) = (state_folder() / "heads").iterdir()
    with mark.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        agent.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, agent.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.parametrize("way", ["revoked", "ended", "budget lowered"])
def test_no_vector_leaves_an_agent_after_the_decision_returned(slow_silo: SiloFolder, way: str) -> None:
    schema, members = load_schema(Path(slow_silo.settings.schema_file), "kind"), [Member("clinic", RECORDS, 1.0, 1e-6)]
    plan = approved(slow_silo, make_plan(schema, members, PlanRequest(rounds=3, survey=False)))
    answers: list[Answer] = []
    with serving(slow_silo) as served:
        asking = threading.Thread(target=lambda: answers.append(served.ask(plan, 0)))
        asking.start()
        wait_for_a_charge(slow_silo.ledger_path)
        stop(served.process)  # it has charged the round, and is at work on it
        if way == "budget lowered":
            decisions.set_budget(slow_silo, Budget(0.5, 1e-6), note="a test")
        else:
            decisions.end_plan(slow_silo, plan.digest(), revoke=way == "revoked")
        served.process.send_signal(signal.SIGCONT)
        asking.join()
        again = served.ask(plan, 0)
        later = served.ask(plan, 1)
    expected = RefusalReason.BUDGET if way == "budget lowered" else RefusalReason.REVOKED
    assert refusal(answers[0]) is expected
    assert refusal(again) is (RefusalReason.REVOKED if way == "revoked" else RefusalReason.ROUND_LOST)
    assert refusal(later) is expected
    with slow_silo.ledger() as ledger:
        kinds = [entry.kind for entry in ledger.entries()]
        (round,) = ledger.account().plans[plan.digest()].rounds.values()
    assert kinds.count("charged") == 1
    assert "released" not in kinds
    assert round.answer is None
