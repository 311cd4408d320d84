"""`ringfence silo` and `ringfence verify`: what an operator decides, in words and for machines."""

import hashlib
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.deployment.door import Door
from ringfence.errors import PlanError
from ringfence.protocol import NoisyUpdate, Plan, RefusalReason, parse_answer
from tests.cli.conftest import Federation, Finished, SiloCommands, refuses, ringfence, ringfence_json, spent
from tests.silo.agents import request
from tests.support import refusal


class Operator(SiloCommands):
    """Works on the folder of silo 'north' with the command line."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation.folder / "north-silo")
        self.federation = federation

    def init(self, *changes: str) -> list[object]:
        return self.federation.silo_init(self.folder, *changes)

    def plan(self, name: str, *changes: str) -> Path:
        out = self.federation.folder / f"{name}.json"
        sizes = ["--silo", "north=300", "--silo", "south=300"]
        wishes = changes or ["--epsilon", "1", "--delta", "1e-6", "--rounds", "4", "--no-survey"]
        ringfence(
            "plan", "--schema", self.federation.schema, "--target", "ill", *sizes, "--out", out, "--anyway", *wishes
        )
        return out

    def approve(self, plan: Path, *arguments: object) -> Finished:
        return self.run("approve", plan, "--digest", digest_of(plan), *arguments)


def digest_of(plan: Path) -> str:
    """A plan's name is the digest of its file."""
    return hashlib.sha256(plan.read_bytes()).hexdigest()


@pytest.fixture
def operator(federation: Federation) -> Operator:
    made = Operator(federation)
    ringfence(*made.init())
    return made


def test_a_folder_is_made_once_for_its_owner_alone(operator: Operator) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in operator.folder.iterdir()}
    assert set(modes) == {"silo.toml", "north.ledger", "signing.key", "door.token", "courier.toml"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(operator.folder.stat().st_mode) == 0o700
    before = {path.name: path.read_bytes() for path in operator.folder.iterdir()}
    refuses("already exists", *operator.init())
    assert {path.name: path.read_bytes() for path in operator.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--name", "a/b"], "name"),
        (["--epsilon", "-1"], "epsilon"),
        (["--delta", "0"], "delta"),
        (["--port", "99999"], "port"),
        (["--courier-group", "no-such-group"], "no group"),
    ],
)
def test_a_folder_is_not_made_from_what_does_not_fit(federation: Federation, changes: list[str], says: str) -> None:
    made = Operator(federation)
    refuses(says, *made.init(*changes))
    assert not (made.folder / "silo.toml").exists()
    ringfence(*made.init())  # what failed leaves no obstacle


def test_a_review_says_what_leaves_to_whom_and_at_what_cost_and_changes_nothing(operator: Operator) -> None:
    plan = operator.plan("plan")
    ledger = operator.run("ledger").stdout
    shown = operator.run("review", plan).stdout
    for words in ("In each of 4 rounds", "predicting 'ill' from age", "clipped to", "Other silos in the plan: south",
                  "epsilon 1 at delta 1e-06", "and 2.000 is left", "The gate would approve it"):  # fmt: skip
        assert words in " ".join(shown.split()), words
    found = operator.json("review", plan)
    assert found["approvable"]
    (total,) = found["total"]
    assert (total["epsilon"], total["left"]) == (pytest.approx(1.0, rel=1e-3), pytest.approx(2.0, rel=1e-3))
    assert (total["delta"], total["against"]) == (1e-6, "anyone")
    assert operator.run("ledger").stdout == ledger


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--sampling", "one-pass", "--rounds", "4", "--correlation", "0.5"], "cancels part of the earlier rounds'"),
        (["--sampling", "one-pass", "--rounds", "4"], "at most one round"),
        (["--sampling", "fixed", "--rounds", "4"], "drawn afresh and in secret"),
        (["--algorithm", "localized", "--rounds", "12"], "which take part in no other phase"),
        (["--algorithm", "accelerated", "--survey", "--rounds", "4"], "Once, one number"),
    ],
)
def test_a_review_explains_every_kind_of_plan(operator: Operator, changes: list[str], says: str) -> None:
    plan = operator.plan("plan", "--epsilon", "1", "--delta", "1e-6", *changes)
    assert says in operator.run("review", plan).stdout


def test_a_review_of_a_plan_beyond_the_budget_says_so_and_approving_it_fails(operator: Operator) -> None:
    plan = operator.plan("large", "--epsilon", "5", "--delta", "1e-6", "--rounds", "4")
    assert "The gate would NOT approve it" in operator.run("review", plan).stdout
    assert not operator.json("review", plan)["approvable"]
    operator.refuses("more than its budget", "approve", plan, "--digest", digest_of(plan))
    operator.run("budget", "--epsilon", "6", "--delta", "1e-6", "--note", "a second study")
    operator.approve(plan)


def test_plans_are_approved_listed_ended_and_revoked_by_file_or_digest(operator: Operator) -> None:
    plan, other = operator.plan("one"), operator.plan("two")
    digest = operator.json("approve", plan, "--digest", digest_of(plan))["approved"]
    operator.approve(other)
    status = operator.json("status")
    assert [entry["state"] for entry in status["plans"]] == ["running", "running"]
    assert not status["serving"]
    assert operator.json("end", other)["ended"] != digest
    assert operator.json("revoke", digest[:12])["revoked"] == digest
    assert [entry["state"] for entry in operator.json("status")["plans"]] == ["revoked", "finished"]
    operator.refuses("neither a plan's file nor the digest", "revoke", "00000000")
    kinds = [entry["kind"] for entry in operator.json("ledger")["entries"]]
    assert kinds == ["opened", "budget", "approved", "approved", "ended", "ended"]


def test_revoking_needs_neither_the_data_nor_the_schema(operator: Operator) -> None:
    plan = operator.plan("plan")
    operator.approve(plan)
    operator.federation.files[0].unlink()
    operator.federation.schema.unlink()
    operator.run("revoke", plan)


def test_serving_approving_asking_revoking_certifying_and_verifying_fit_together(operator: Operator) -> None:
    path = operator.plan("plan")
    plan = Plan.parse(path.read_bytes(), error=PlanError)
    command = [str(Path(sys.executable).with_name("ringfence")), "silo", "serve", str(operator.folder)]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert agent.stdout is not None
        assert "is served at unix:" in agent.stdout.readline()
        door = Door.read(operator.folder)
        assert refusal(parse_answer(door.ask(request(plan, 0)))) is RefusalReason.NOT_APPROVED
        operator.approve(path)
        assert operator.json("status")["serving"]
        assert isinstance(parse_answer(door.ask(request(plan, 0))), NoisyUpdate)
        operator.json("revoke", path)
        assert refusal(parse_answer(door.ask(request(plan, 1)))) is RefusalReason.REVOKED
    finally:
        agent.terminate()
        _, complaints = agent.communicate(timeout=60)
    assert (agent.returncode, complaints) == (0, "")
    out = operator.federation.folder / "certificate.json"
    key = operator.json("certificate", "--out", out)["public_key"]
    found = ringfence_json("verify", out, "--key", key)
    assert found["valid"]
    assert found["released"] == 1
    assert found["used"] == spent(operator.json("status"))
    assert "What is not proved" in ringfence("verify", out).stdout
    refuses("not with the one that you gave", "verify", out, "--key", "0" * 64)
    whole = out.read_bytes()
    out.write_bytes(whole.replace(rb"\"kind\":\"charged\"", rb"\"kind\":\"refused\"", 1))
    assert out.read_bytes() != whole
    refuses("hash chain breaks at entry", "verify", out)
