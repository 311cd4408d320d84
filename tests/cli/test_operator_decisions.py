"""What an operator decides: on the plan that was read, by whom, and never by the way."""

import getpass
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.silo.ledger.ledger import Ledger
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json
from tests.cli.test_silo import Operator, digest_of
from tests.nursery import Python


@pytest.fixture
def operator(federation: Federation) -> Operator:
    made = Operator(federation)
    ringfence(*made.init("--note", "opened for the registry study"))
    return made


def kinds(operator: Operator) -> list[str]:
    return [entry["kind"] for entry in operator.json("ledger")["entries"]]


def test_a_review_prints_the_very_command_that_approves_what_it_showed(operator: Operator) -> None:
    plan = operator.plan("plan with a space")
    command = operator.run("review", plan).stdout.splitlines()[-1]
    program, *arguments = shlex.split(command)
    assert program == "ringfence"
    assert arguments[-1] == digest_of(plan)
    ringfence(*arguments)
    assert kinds(operator)[-1] == "approved"


def test_a_file_that_was_swapped_after_its_review_is_not_approved(operator: Operator) -> None:
    plan = operator.plan("plan", "--epsilon", "0.1", "--delta", "1e-6", "--rounds", "4")
    reviewed = digest_of(plan)
    plan.write_bytes(operator.plan("other", "--epsilon", "2.9", "--delta", "1e-6", "--rounds", "4").read_bytes())
    done = operator.refuses("it is not what was reviewed", "approve", plan, "--digest", reviewed)
    assert digest_of(plan) in done.stderr
    assert "approved" not in kinds(operator)


def test_the_first_twelve_characters_of_a_digest_are_enough_and_fewer_are_not(operator: Operator) -> None:
    plan = operator.plan("plan")
    operator.refuses("its first 12 characters", "approve", plan, "--digest", digest_of(plan)[:11])
    operator.refuses("its first 12 characters", "approve", plan, "--digest", "")
    operator.run("approve", plan, status=2)
    assert "approved" not in kinds(operator)
    operator.run("approve", plan, "--digest", digest_of(plan)[:12].upper())


def test_entries_say_who_decided_and_why(operator: Operator) -> None:
    plan = operator.plan("plan")
    operator.approve(plan, "--note", "agreed on 3 May")
    operator.run("budget", "--epsilon", "4", "--delta", "1e-6", "--note", "board's decision 7")
    operator.run("end", plan, "--note", "enough")
    operator.refuses("finished and stays so", "approve", plan, "--digest", digest_of(plan))
    operator.refuses("say why with --note", "budget", "--epsilon", "5", "--delta", "1e-6")
    reviewed = operator.run("review", plan).stdout
    assert "The gate would NOT approve it. This plan was finished and stays so" in reviewed
    assert "silo approve" not in reviewed
    operator.run("revoke", plan, "--note", "withdrawn")
    entries = operator.json("ledger")["entries"]
    assert {entry["by"] for entry in entries} == {getpass.getuser()}
    study = "opened for the registry study"
    assert [entry.get("note", "") for entry in entries] == [
        study, study, "agreed on 3 May", "board's decision 7", "enough", "withdrawn",
    ]  # fmt: skip
    shown = operator.run("ledger").stdout
    assert f"revoked, by {getpass.getuser()}: “withdrawn”" in shown
    operator.refuses("at most 1000 characters", "revoke", plan, "--note", "x" * 1001)


def test_decisions_stand_in_the_certificate_which_still_verifies(operator: Operator) -> None:
    operator.approve(operator.plan("plan"), "--note", "agreed on 3 May")
    out = operator.federation.folder / "certificate.json"
    operator.json("certificate", "--out", out)
    assert b"agreed on 3 May" in out.read_bytes()
    ringfence("verify", out)


LARGE = [["--epsilon", "20.1", "--delta", "1e-6"], ["--epsilon", "3", "--delta", "0.004"],
         ["--epsilon", "3", "--delta", "1e-6", "--alone", "21"]]  # fmt: skip


@pytest.mark.parametrize("large", LARGE)
def test_a_budget_that_protects_next_to_nobody_takes_a_word(large: list[str], federation: Federation) -> None:
    made = Operator(federation)
    refuses("--unusual-budget", *made.init(*large))
    assert not made.folder.exists()
    ringfence(*made.init())
    made.refuses("--unusual-budget", "budget", *large)
    assert kinds(made) == ["opened", "budget"]
    made.run("budget", *large, "--unusual-budget", "--note", "a test")
    made.run("budget", "--epsilon", "3", "--delta", "1e-6")


def test_lowering_a_budget_takes_no_word_and_no_look_at_the_data(operator: Operator) -> None:
    large = ["--delta", "1e-6", "--unusual-budget", "--note", "a test"]
    operator.run("budget", "--epsilon", "50", *large)
    operator.federation.files[0].unlink()
    operator.run("budget", "--epsilon", "40", "--delta", "1e-6")


@pytest.mark.parametrize("command", ["train", "statistics"])
def test_training_grants_no_unusual_budget_by_the_way(command: str, federation: Federation) -> None:
    asked = [command, *map(str, federation.files), "--schema", str(federation.schema)]
    asked += ["--target", "ill"] if command == "train" else []
    for large in (["--epsilon", "21", "--delta", "1e-6"], ["--epsilon", "1", "--delta", "0.01"]):
        refuses("--unusual-budget", *asked, *large)
    assert federation.ledgers() == {}
    word = ["--max-rounds", "2", "--no-report"] if command == "train" else []
    ringfence(*asked, "--epsilon", "21", "--delta", "1e-6", *word, "--unusual-budget")


def killed_while_training(federation: Federation) -> Path:
    """Kill a run once a round of it is charged, and return a ledger that it left."""
    path = federation.folder / "north.ledger"
    options = ["--rounds", "3000", "--no-survey", "--no-report", "--cap", "2.5,1e-6"]
    command = [sys.executable, "-m", "ringfence", *map(str, federation.train(*options))]
    process = Python(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not path.exists() or not _charged(path):
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return path


def _charged(path: Path) -> bool:
    from ringfence.errors import LedgerError

    try:
        with Ledger.open(path) as ledger:
            return bool(ledger.account().charged())
    except LedgerError:  # it is being made
        return False


def test_what_a_killed_run_left_reserved_is_given_back_by_the_command_that_is_named(federation: Federation) -> None:
    path = killed_while_training(federation)
    (before,) = ringfence_json("ledger", path)["plans"]
    assert before["state"] == "running"
    shown = ringfence("ledger", path).stdout
    assert f"`ringfence ledger {path} --end PLAN` returns what it reserved" in shown
    refuses(
        f"`ringfence ledger {path} --end PLAN`; running: {before['plan'][:12]}",
        *federation.train("--max-rounds", "2", "--no-report", "--cap", "2.5,1e-6"),
    )
    for name in ("north", "south", "west"):
        done = ringfence_json("ledger", path.with_name(f"{name}.ledger"), "--end", before["plan"][:12])
        assert [plan["state"] for plan in done["plans"] if plan["plan"] == before["plan"]] == ["finished"]
        assert done["costs"][0]["reserved"] == 0
    assert "returns what it reserved" not in ringfence("ledger", path).stdout
    ringfence(*federation.train("--max-rounds", "2", "--no-report", "--cap", "2.5,1e-6"))
    refuses("neither a plan's file nor the digest", "ledger", path, "--end", "00000000")
