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
from tests.cli.conftest import Federation, Json, Ringfence, check_one_sentence
from tests.cli.test_silo import Operator, digest_of
from tests.nursery import Python


@pytest.fixture
def operator(federation: Federation, ringfence: Ringfence, ringfence_json: Json) -> Operator:
    made = Operator(federation, ringfence, ringfence_json)
    done = made.init("--note", "opened for the registry study")
    assert done.returncode == 0, done.stderr
    return made


def kinds(operator: Operator) -> list[str]:
    return [entry["kind"] for entry in operator.json("ledger")["entries"]]


def test_a_review_prints_the_very_command_that_approves_what_it_showed(
    operator: Operator, ringfence: Ringfence
) -> None:
    plan = operator.plan("plan with a space")
    command = operator.run("review", plan).stdout.splitlines()[-1]
    program, *arguments = shlex.split(command)
    assert program == "ringfence"
    assert arguments[-1] == digest_of(plan)
    assert ringfence(*arguments).returncode == 0
    assert kinds(operator)[-1] == "approved"


def test_a_file_that_was_swapped_after_its_review_is_not_approved(operator: Operator) -> None:
    plan = operator.plan("plan", "--epsilon", "0.1", "--delta", "1e-6", "--rounds", "4")
    reviewed = digest_of(plan)
    plan.write_bytes(operator.plan("other", "--epsilon", "2.9", "--delta", "1e-6", "--rounds", "4").read_bytes())
    done = operator.run("approve", plan, "--digest", reviewed)
    check_one_sentence(done, "it is not what was reviewed")
    assert digest_of(plan) in done.stderr
    assert "approved" not in kinds(operator)


def test_the_first_twelve_characters_of_a_digest_are_enough_and_fewer_are_not(operator: Operator) -> None:
    plan = operator.plan("plan")
    check_one_sentence(operator.run("approve", plan, "--digest", digest_of(plan)[:11]), "its first 12 characters")
    check_one_sentence(operator.run("approve", plan, "--digest", ""), "its first 12 characters")
    assert operator.run("approve", plan).returncode == 2, "without a digest nothing is approved"
    assert "approved" not in kinds(operator)
    assert operator.run("approve", plan, "--digest", digest_of(plan)[:12].upper()).returncode == 0


def test_entries_say_who_decided_and_why(operator: Operator) -> None:
    plan = operator.plan("plan")
    assert operator.approve(plan, "--note", "agreed on 3 May").returncode == 0
    assert operator.run("budget", "--epsilon", "4", "--delta", "1e-6", "--note", "board's decision 7").returncode == 0
    assert operator.run("end", plan, "--note", "enough").returncode == 0
    assert operator.approve(plan).returncode == 0
    assert operator.run("revoke", plan, "--note", "withdrawn").returncode == 0
    entries = operator.json("ledger")["entries"]
    assert {entry["by"] for entry in entries} == {getpass.getuser()}
    study = "opened for the registry study"
    assert [entry.get("note", "") for entry in entries] == [
        study, study, "agreed on 3 May", "board's decision 7", "enough", "", "withdrawn",
    ]  # fmt: skip
    shown = operator.run("ledger").stdout
    assert f"revoked, by {getpass.getuser()}: “withdrawn”" in shown
    check_one_sentence(operator.run("revoke", plan, "--note", "x" * 1001), "at most 1000 characters")


def test_decisions_stand_in_the_certificate_which_still_verifies(operator: Operator, ringfence: Ringfence) -> None:
    assert operator.approve(operator.plan("plan"), "--note", "agreed on 3 May").returncode == 0
    out = operator.federation.folder / "certificate.json"
    operator.json("certificate", "--out", out)
    assert b"agreed on 3 May" in out.read_bytes()
    assert ringfence("verify", str(out)).returncode == 0


LARGE = [["--epsilon", "20.1", "--delta", "1e-6"], ["--epsilon", "3", "--delta", "0.004"],
         ["--epsilon", "3", "--delta", "1e-6", "--alone", "21"]]  # fmt: skip


@pytest.mark.parametrize("large", LARGE)
def test_a_budget_that_protects_next_to_nobody_takes_a_word(
    large: list[str], federation: Federation, ringfence: Ringfence, ringfence_json: Json
) -> None:
    made = Operator(federation, ringfence, ringfence_json)
    check_one_sentence(made.init(*large), "--unusual-budget")
    assert not made.folder.exists()
    assert made.init().returncode == 0
    check_one_sentence(made.run("budget", *large), "--unusual-budget")
    assert kinds(made) == ["opened", "budget"]
    assert made.run("budget", *large, "--unusual-budget").returncode == 0
    assert made.run("budget", "--epsilon", "3", "--delta", "1e-6").returncode == 0


def test_lowering_a_budget_takes_no_word_and_no_look_at_the_data(operator: Operator) -> None:
    large = ["--delta", "1e-6", "--unusual-budget"]
    assert operator.run("budget", "--epsilon", "50", *large).returncode == 0
    operator.federation.files[0].unlink()
    assert operator.run("budget", "--epsilon", "40", "--delta", "1e-6").returncode == 0


@pytest.mark.parametrize("command", ["train", "statistics"])
def test_training_grants_no_unusual_budget_by_the_way(
    command: str, federation: Federation, ringfence: Ringfence
) -> None:
    asked = [command, *map(str, federation.files), "--schema", str(federation.schema)]
    asked += ["--target", "ill"] if command == "train" else []
    for large in (["--epsilon", "21", "--delta", "1e-6"], ["--epsilon", "1", "--delta", "0.01"]):
        check_one_sentence(ringfence(*asked, *large), "--unusual-budget")
    assert federation.ledgers() == {}
    word = ["--max-rounds", "2", "--no-report"] if command == "train" else []
    assert ringfence(*asked, "--epsilon", "21", "--delta", "1e-6", *word, "--unusual-budget").returncode == 0


def killed_while_training(federation: Federation) -> Path:
    """Kill a run once a round of it is charged, and return a ledger that it left."""
    path = federation.folder / "north.ledger"
    options = ["--rounds", "3000", "--no-survey", "--no-report", "--cap", "2.5,1e-6"]
    command = [sys.executable, "-m", "ringfence", *federation.train(*options)]
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


def test_what_a_killed_run_left_reserved_is_given_back_by_the_command_that_is_named(
    federation: Federation, ringfence: Ringfence, ringfence_json: Json
) -> None:
    path = killed_while_training(federation)
    (before,) = ringfence_json("ledger", str(path))["plans"]
    assert before["state"] == "running"
    shown = ringfence("ledger", str(path)).stdout
    assert f"`ringfence ledger {path} --end PLAN` returns what it reserved" in shown
    refused = ringfence(*federation.train("--max-rounds", "2", "--no-report", "--cap", "2.5,1e-6"))
    check_one_sentence(refused, f"`ringfence ledger {path} --end PLAN`; running: {before['plan'][:12]}")
    for name in ("north", "south", "west"):
        done = ringfence_json("ledger", str(path.with_name(f"{name}.ledger")), "--end", before["plan"][:12])
        assert [plan["state"] for plan in done["plans"] if plan["plan"] == before["plan"]] == ["finished"]
        assert done["costs"][0]["reserved"] == 0
    assert "returns what it reserved" not in ringfence("ledger", str(path)).stdout
    assert ringfence(*federation.train("--max-rounds", "2", "--no-report", "--cap", "2.5,1e-6")).returncode == 0
    check_one_sentence(ringfence("ledger", str(path), "--end", "00000000"), "neither a plan's file nor the digest")
