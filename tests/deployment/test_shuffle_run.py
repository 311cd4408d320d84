"""Silo agents, a shuffler and a server as real processes on one machine: they train, get killed, and go on."""

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.deployment.batch_collector import make_key
from ringfence.errors import MessageError
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, Plan, PublicKeys, SealedUpdate, parse_answer, unpack
from ringfence.server.transcript import Mixed, read_transcript
from ringfence.shuffler import sealing
from ringfence.shuffler.sealing import verifying_key
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import load_records
from tests.deployment.agents import DELTA, RECORDS, Federation, Seen, Wire, failed, finish, model_of, server, until
from tests.nursery import Python
from tests.processes import RINGFENCE

NAMES = ("north", "south", "west")
ROUNDS = 5


class ShufflerProcess:
    """`ringfence shuffler serve`, on one port however often it is started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = {**os.environ}  # a test that starts it again has another state, and so no witness

    def start(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        command = [*RINGFENCE, "shuffler", "serve", str(self.folder), "--port", port, "--seconds", "0.3"]
        self.process = Python(command, stdout=subprocess.PIPE, env=self._environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert "is served at" in line, line
        self.address = line.split()[-1]

    def kill(self) -> None:
        """End it as a loss of power would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@dataclass(frozen=True)
class Deployment:
    """Three agents, a shuffler, and the server's key."""

    agents: Federation
    shuffler: ShufflerProcess
    key: Path
    keys: PublicKeys

    def plan(self, *, algorithm: str | None = "bounded", **asking: Any) -> Plan:
        """Make a plan, have all silos approve it and the shuffler serve it, and write it down."""
        members = [Member(name, RECORDS, 8.0, DELTA) for name in NAMES]
        asked = PlanRequest(algorithm=algorithm, rounds=ROUNDS, trust="shuffler", keys=self.keys, curves=0, **asking)
        plan = make_plan(self.agents.schema, members, asked)
        self.agents.write(plan)
        self.agents.approve(plan)
        with Shuffler.open(self.shuffler.folder) as shuffler:
            shuffler.add(plan)
        return plan

    def run(self, plan: Plan, folder: Path, wire: Wire, *options: str) -> "subprocess.Popen[bytes]":
        token = self.shuffler.folder / "shuffler.token"
        way = ["--shuffler", self.shuffler.address, "--shuffler-token", str(token), "--key", str(self.key)]
        return server(self.agents, plan, folder, wire.doors(), *way, *options)

    def accuracy(self, model: Model) -> float:
        held = [load_records(self.agents.folder / f"{name}.csv", self.agents.schema) for name in self.agents.silos]
        right = sum(int((model.predict_encoded(own.features) == own.targets).sum()) for own in held)
        return right / sum(len(own) for own in held)

    def check_ledgers(self, plan: Plan, wire: Wire) -> None:
        """Whatever was seen on the wire was charged, in both views, and a round has one answer."""
        for name, silo in self.agents.silos.items():
            answers = [parse_answer(content) for content in wire.sent[name]]
            sent = {(a.round, a.to_bytes()) for a in answers if isinstance(a, NoisyUpdate | SealedUpdate)}
            assert len(sent) == len({round for round, _ in sent}), "a round was answered twice, and differently"
            released = silo.released(plan)
            assert {round: released[round] for round, _ in sent} == dict(sent)
            with Ledger.open(silo.silo_folder.ledger_path) as ledger:
                account = ledger.account()
            assert account.plans[plan.digest()].rounds.keys() >= {round for round, _ in sent}
            server, anyone = account.spent()
            assert (server.against, anyone.against) == ("server", "anyone")
            assert 0 < server.epsilon < anyone.epsilon

    def released(self, plan: Plan) -> list[int]:
        """The rounds that the shuffler has let out."""
        with Shuffler.open(self.shuffler.folder) as shuffler:
            [status] = [each for each in shuffler.status()["plans"] if each["plan"] == plan.digest()]
        return sorted(entry["round"] for entry in status["rounds"] if entry["state"] == "released")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("shuffled")
    agents = Federation(folder, NAMES, budget=1000.0)
    with Store.create(folder / "shuffler") as store:
        shuffler_key = Shuffler(store).public_key
    shuffler = ShufflerProcess(folder / "shuffler")
    server_key = make_key(folder / "server.key")
    silos = {name: verifying_key(silo.silo_folder.key()) for name, silo in agents.silos.items()}
    try:
        agents.start()
        shuffler.start()
        yield Deployment(
            agents, shuffler, folder / "server.key", PublicKeys(server=server_key, shuffler=shuffler_key, silos=silos)
        )
    finally:
        shuffler.kill()
        agents.stop()


@pytest.fixture
def wire(deployment: Deployment, tmp_path: Path) -> Iterator[Wire]:
    """Taps before the silos' doors."""
    with Wire(deployment.agents, tmp_path / "wire") as tapped:
        yield tapped


def test_three_silos_a_shuffler_and_a_server_train_a_model_that_nobody_could_have_read_on_the_way(
    deployment: Deployment, wire: Wire, tmp_path: Path
) -> None:
    plan, run = deployment.plan(), tmp_path / "run"
    report = json.loads(finish(deployment.run(plan, run, wire, "--json")))
    assert [sorted(entry["answered"]) for entry in report["rounds"]] == [sorted(NAMES)] * ROUNDS
    claimed = report["silos"]["north"]["claimed"]
    assert [claim["against"] for claim in claimed] == ["server", "anyone"]
    assert claimed[0]["epsilon"] < claimed[1]["epsilon"]
    assert report["trust"] == "shuffler"
    assert "as long as the shuffler does not collude with the server" in report["guarantees"]
    model_of(run)
    assert deployment.accuracy(Model.load(run / "model.json")) > 0.75
    assert deployment.released(plan) == list(range(ROUNDS))
    deployment.check_ledgers(plan, wire)
    # What passed by the courier and the server: envelopes that the server's key does not open.
    key = bytes.fromhex(deployment.key.read_text())
    for name, contents in wire.sent.items():
        assert len(contents) == ROUNDS
        for content in contents:
            answer = parse_answer(content)
            assert isinstance(answer, SealedUpdate)
            with pytest.raises(MessageError, match="does not open"):
                sealing.open_envelope(key, plan.digest(), answer.round, name, base64.b64decode(answer.envelope))


def test_the_default_algorithm_surveys_by_the_silos_own_noise_and_trains_through_the_shuffler(
    deployment: Deployment, wire: Wire, tmp_path: Path
) -> None:
    plan, run = deployment.plan(algorithm=None), tmp_path / "run"
    assert plan.training is not None
    assert plan.training.algorithm.name == "preconditioned"
    survey, mixed = range(2), range(2, 2 + ROUNDS)
    report = json.loads(finish(deployment.run(plan, run, wire, "--json")))
    assert [sorted(entry["answered"]) for entry in report["rounds"]] == [sorted(NAMES)] * (2 + ROUNDS)
    for contents in wire.sent.values():
        kinds = {answer.round: type(answer) for answer in map(parse_answer, contents)}
        assert kinds == dict.fromkeys(survey, NoisyUpdate) | dict.fromkeys(mixed, SealedUpdate)
    assert deployment.released(plan) == list(mixed)
    assert sum(isinstance(entry, Mixed) for entry in read_transcript(run)[1]) == ROUNDS
    model_of(run)
    assert unpack(Model.load(run / "model.json").weights).any(), "the batches moved the weights"
    deployment.check_ledgers(plan, wire)


def test_a_shuffler_killed_in_the_middle_and_started_again_loses_and_repeats_nothing(
    deployment: Deployment, wire: Wire, tmp_path: Path
) -> None:
    plan, run = deployment.plan(), tmp_path / "run"
    wire.acts = {Seen("north", 2, "answered"): deployment.shuffler.kill}
    process = deployment.run(plan, run, wire)
    until(lambda: deployment.shuffler.process is None)
    time.sleep(0.3)  # the server finds nobody there
    deployment.shuffler.start()
    finish(process)
    model_of(run)
    assert sum(isinstance(entry, Mixed) for entry in read_transcript(run)[1]) == ROUNDS
    deployment.check_ledgers(plan, wire)


def test_a_server_killed_in_the_middle_goes_on_with_the_batches_that_stand(
    deployment: Deployment, wire: Wire, tmp_path: Path
) -> None:
    plan, run = deployment.plan(), tmp_path / "run"
    process = deployment.run(plan, run, wire)
    wire.acts = {Seen("west", 3, "delivered"): process.kill}
    process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    wire.acts = {}
    finish(deployment.run(plan, run, wire))
    model_of(run)
    deployment.check_ledgers(plan, wire)


def test_while_a_silo_stays_away_nothing_is_released_below_the_quorum_and_a_sentence_says_so(
    deployment: Deployment, wire: Wire, tmp_path: Path
) -> None:
    """Of three silos three are needed: two wait. Of three two are needed: they go on without the third."""
    all_needed, two_needed = deployment.plan(), deployment.plan(quorum=2, colluders=0)
    west = deployment.agents.silos["west"]
    west.kill()
    try:
        impatient = ["--seconds", "6", "--patience", "0"]  # for those who do answer, on a busy machine too
        errors = failed(deployment.run(all_needed, tmp_path / "all", wire, *impatient, "--quorum", "0"))
        assert b"Round 0 has 2 of the 3 updates it needs" in errors
        assert b"'west' did not answer" in errors
        assert deployment.released(all_needed) == []
        finish(deployment.run(two_needed, tmp_path / "two", wire, *impatient))
        assert deployment.released(two_needed) == list(range(ROUNDS))
    finally:
        west.start()
        west.wait()
    finish(deployment.run(all_needed, tmp_path / "all", wire))
    assert deployment.released(all_needed) == list(range(ROUNDS))


def test_a_plan_with_a_shuffler_is_not_run_without_one_nor_with_another_key(
    deployment: Deployment, wire: Wire, tmp_path: Path
) -> None:
    plan = deployment.plan()
    errors = failed(server(deployment.agents, plan, tmp_path / "run", wire.doors()))
    assert b"give --shuffler, --shuffler-token and --key" in errors
    make_key(tmp_path / "other.key")
    other = replace(deployment, key=tmp_path / "other.key")
    assert b"is not the key that this plan's silos seal to" in failed(other.run(plan, tmp_path / "run", wire))
    assert not wire.log, "and nobody was asked"
