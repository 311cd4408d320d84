"""Training without a server: every peer ends with the model that a server would have, bit for bit."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.federation import peers
from ringfence.federation.peers import Peer
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    Answer,
    MultiStage,
    NoisyUpdate,
    Participation,
    Plan,
    Restart,
    RoundRequest,
    Schema,
    parse_answer,
)
from ringfence.server import rounds
from ringfence.server.rounds import RoundOutcome, RunResult
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.nursery import Python

ROOT = Path(__file__).parents[1]
SIZES = {"north": 60, "south": 90, "west": 75}

STAGES = MultiStage(smoothness=1.0, stages=(Restart(rounds=2, upsilon=3.0), Restart(rounds=3, upsilon=6.0)))
WAYS: dict[str, dict[str, Any]] = {
    "minibatch-sgd": {"algorithm": "minibatch-sgd", "rounds": 5},
    "accelerated": {"algorithm": "accelerated", "rounds": 5, "survey": False},
    "surveyed": {"algorithm": "accelerated", "rounds": 5, "survey": True},
    "regularised": {"algorithm": "regularised", "rounds": 5, "average": "tail"},
    "multi-stage": {"algorithm": STAGES, "rounds": 5, "ridge": 0.5},
    "localized": {"algorithm": "localized", "most_rounds": 5},
    "one-pass": {"sampling": "one-pass", "rounds": 5, "average": "last"},
    "correlated": {"sampling": "one-pass", "rounds": 5, "correlation": 0.5},
}
ALL, SOME, LUCKY = Participation(), Participation(silos=2), Participation(probability=0.6)
WHO = pytest.mark.parametrize(
    ("participation", "broke"),
    [(ALL, ""), (SOME, ""), (ALL, "south"), (SOME, "south")],
    ids=["all", "two-a-round", "all-but-one-refuses", "two-a-round-but-one-refuses"],
)


def plan_of(schema: Schema, **asked: Any) -> Plan:
    members = [Member(name, size, 20.0, 1e-6) for name, size in SIZES.items()]
    return make_plan(schema, members, PlanRequest(**asked))


class RecordingGate(Gate):
    """A gate that also keeps what it answered."""

    def __init__(self, records: Records, ledger: Ledger) -> None:
        super().__init__(records, ledger)
        self.ledger = ledger
        self.said: dict[int, Answer] = {}

    def answer(self, request: RoundRequest) -> Answer:
        self.said[request.round] = super().answer(request)
        return self.said[request.round]


Approve = Callable[..., dict[str, RecordingGate]]


@pytest.fixture
def approve(tmp_path: Path) -> Iterator[Approve]:
    """Open gates of a plan, each with records and a new ledger; the budget of `broke` is lowered after its approval."""
    with ExitStack() as stack:

        def approved(plan: Plan, *, broke: str = "") -> dict[str, RecordingGate]:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            random = np.random.default_rng(3)
            gates = {}
            for terms in plan.silos:
                features = np.column_stack([random.uniform(-1, 1, (terms.records, 3)), np.ones(terms.records)])
                targets = np.where(features @ [1.0, 1.0, 0.0, 0.2] > 0, 1.0, -1.0)
                created = Ledger.create(
                    folder / f"{terms.name}.ledger", silo=terms.name, budget=Budget.of(terms.guarantees)
                )
                ledger = stack.enter_context(created)
                gates[terms.name] = RecordingGate(Records(plan.data, features, targets), ledger)
                gates[terms.name].approve(plan)
                if terms.name == broke:
                    ledger.grant(Budget(0.01, 1e-6), note="a test")
            return gates

        yield approved


def talk(plan: Plan, gates: Mapping[str, Gate]) -> dict[str, RunResult]:
    """Let every silo be a peer; all receive all broadcasts."""
    everybody = {name: Peer(plan, gate) for name, gate in gates.items()}
    for _ in range(plan.rounds):
        said = {name: answer for name, peer in everybody.items() if (answer := peer.broadcast()) is not None}
        for peer in everybody.values():
            assert not peer.finished
            peer.receive(said)
    assert all(peer.finished for peer in everybody.values())
    return {name: peer.result() for name, peer in everybody.items()}


def public_choices(plan: Plan) -> np.random.Generator:
    return np.random.default_rng(int(plan.digest(), 16))


def serve(plan: Plan, answers: Mapping[str, Mapping[int, Answer]]) -> RunResult:
    """Give the recorded answers to a server that makes the same choices."""

    def ask(request: RoundRequest, names: Sequence[str]) -> dict[str, Answer]:
        return {name: answers[name][request.round] for name in names if request.round in answers[name]}

    return rounds.run(plan, ask, choices=public_choices(plan))


def check_same(trained: RunResult, other: RunResult) -> None:
    assert trained.weights.tobytes() == other.weights.tobytes()
    assert trained.history == other.history
    assert trained.findings.keys() == other.findings.keys()
    for query, found in trained.findings.items():
        assert found.statistic.tobytes() == other.findings[query].statistic.tobytes()


@WHO
@pytest.mark.parametrize("way", WAYS)
def test_all_peers_end_with_the_model_that_a_server_makes_of_the_same_answers(
    schema: Schema, approve: Approve, way: str, participation: Participation, broke: str
) -> None:
    plan = plan_of(schema, participation=participation, **WAYS[way])
    gates = approve(plan, broke=broke)
    first, *others = talk(plan, gates).values()
    assert np.linalg.norm(first.weights) > 0
    for other in others:
        check_same(first, other)
    check_same(first, serve(plan, {name: gate.said for name, gate in gates.items()}))


@pytest.mark.parametrize("way", ["surveyed", "localized", "correlated"])
def test_peers_of_one_process_return_the_model_that_all_of_them_have(
    schema: Schema, approve: Approve, way: str
) -> None:
    plan = plan_of(schema, participation=LUCKY, **WAYS[way])
    gates = approve(plan)
    seen: list[RoundOutcome] = []
    trained = peers.train_as_peers(plan, gates, watch=seen.append)
    assert tuple(seen) == trained.history
    assert len(seen) == plan.rounds
    check_same(trained, serve(plan, {name: gate.said for name, gate in gates.items()}))
    # The gates repeat what they said, byte for byte, so another conversation is the same one, and costs nothing.
    spent = [gate.ledger.account().spent() for gate in gates.values()]
    check_same(trained, talk(plan, gates)["west"])
    assert [gate.ledger.account().spent() for gate in gates.values()] == spent


@WHO
@pytest.mark.parametrize("way", ["surveyed", "localized", "correlated"])
def test_every_ledger_is_charged_exactly_as_with_a_server(
    schema: Schema, approve: Approve, way: str, participation: Participation, broke: str
) -> None:
    plan = plan_of(schema, participation=participation, **WAYS[way])
    alone, served = approve(plan, broke=broke), approve(plan, broke=broke)
    peers.train_as_peers(plan, alone)

    def ask(request: RoundRequest, names: Sequence[str]) -> dict[str, Answer]:
        return {name: served[name].answer(request) for name in names}

    rounds.run(plan, ask, choices=public_choices(plan))
    for name in SIZES:
        accounts = [gates[name].ledger.account() for gates in (alone, served)]
        charges = [
            [(number, charge.event) for number, charge in account.plans[plan.digest()].rounds.items()]
            for account in accounts
        ]
        assert charges[0] == charges[1]
        assert bool(charges[0]) == (name != broke)
        assert accounts[0].spent() == accounts[1].spent()
        assert accounts[0].spent()[0].epsilon <= 20.0


def test_a_peer_that_refuses_for_good_is_asked_once_and_the_others_go_on(schema: Schema, approve: Approve) -> None:
    plan = plan_of(schema, **WAYS["surveyed"])
    gates = approve(plan, broke="south")
    trained = peers.train_as_peers(plan, gates)
    first, *later = trained.history
    assert (first.answered, first.refused) == (("north", "west"), {"south": "budget"})
    assert all((outcome.answered, outcome.refused) == (("north", "west"), {}) for outcome in later)
    assert list(gates["south"].said) == [0]
    assert [spent.epsilon for spent in gates["south"].ledger.account().spent()] == [0.0]


def test_if_all_refuse_there_is_no_model_and_the_error_says_why(schema: Schema, approve: Approve) -> None:
    plan = plan_of(schema, **WAYS["accelerated"])
    gates = approve(plan)
    for gate in gates.values():
        gate.end(plan, revoke=True)
    with pytest.raises(TrainingError, match=r"No silo answered any of the 5 training rounds \(revoked\)"):
        peers.train_as_peers(plan, gates)


def test_without_a_peer_there_is_nobody_to_train(schema: Schema) -> None:
    with pytest.raises(TrainingError, match="no peer"):
        peers.train_as_peers(plan_of(schema, **WAYS["accelerated"]), {})


@pytest.mark.parametrize("way", ["minibatch-sgd", "surveyed", "localized"])
def test_peers_that_received_different_messages_are_noticed(
    schema: Schema, approve: Approve, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(schema, **WAYS[way])
    receive = Peer.receive

    def half_deaf(peer: Peer, answers: Mapping[str, Answer]) -> RoundOutcome:
        misses = peer._gate.silo == "west" and any(answer.round == 2 for answer in answers.values())
        return receive(peer, {name: a for name, a in answers.items() if not (misses and name == "north")})

    monkeypatch.setattr(Peer, "receive", half_deaf)
    with pytest.raises(TrainingError, match=r"did not receive the same messages\. Run the plan again"):
        peers.train_as_peers(plan, approve(plan))


def test_what_does_not_belong_to_the_round_changes_nothing(schema: Schema, approve: Approve) -> None:
    plan = plan_of(schema, **WAYS["accelerated"])
    gates = approve(plan)
    honest = talk(plan, gates)["north"]
    listener = Peer(plan, gates["north"])
    stale = gates["west"].said[0]
    while not listener.finished:
        now = len(listener._history)
        said = {name: gate.said[now] for name, gate in gates.items()}
        outcome = listener.receive({**said, "stranger": stale})
        assert outcome.answered == tuple(SIZES)
    check_same(honest, listener.result())
    confused = Peer(plan, gates["north"])
    confused.receive({name: gate.said[0] for name, gate in gates.items()})
    outcome = confused.receive({"north": gates["north"].said[1], "south": gates["west"].said[1], "west": stale})
    assert (outcome.answered, outcome.unusable) == (("north",), ("south", "west"))


def test_a_peer_that_starts_again_says_the_same_again_and_catches_up(schema: Schema, approve: Approve) -> None:
    plan = plan_of(schema, participation=SOME, **WAYS["surveyed"])
    gates = approve(plan)
    trained = talk(plan, gates)["south"]
    spent = gates["south"].ledger.account().spent()
    said = {name: dict(gate.said) for name, gate in gates.items()}
    again = Peer(plan, gates["south"])
    for number in range(plan.rounds):
        repeated = again.broadcast()
        assert repeated == said["south"].get(number)
        again.receive({name: answers[number] for name, answers in said.items() if number in answers})
    check_same(trained, again.result())
    assert gates["south"].ledger.account().spent() == spent


def write_silos(folder: Path, plan: Plan) -> None:
    random = np.random.default_rng(4)
    (folder / "plan.json").write_bytes(plan.content)
    for name, size in SIZES.items():
        rows = random.uniform(-1, 1, (size, 3))
        lines = [f"{a},{b},{c},{'yes' if a + b > 0 else 'no'}" for a, b, c in rows.tolist()]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,c,ill", *lines]) + "\n")


def start(stack: ExitStack, folder: Path, name: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.federation.lone_peer", str(folder), name]
    process = stack.enter_context(Python(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT))
    stack.callback(process.kill)
    return process


@pytest.mark.parametrize("dies", ["", "west"], ids=["all-stay", "one-is-killed"])
def test_peers_in_processes_of_their_own_end_with_the_same_model(schema: Schema, tmp_path: Path, dies: str) -> None:
    plan = plan_of(schema, participation=SOME, **WAYS["surveyed"])
    write_silos(tmp_path, plan)
    answers: dict[str, dict[int, Answer]] = {name: {} for name in SIZES}
    with ExitStack() as stack:
        processes = {name: start(stack, tmp_path, name) for name in SIZES}
        for number in range(plan.rounds):
            if number == 3 and dies:
                processes.pop(dies).kill()
            broadcast = []
            for name, process in processes.items():
                assert process.stdout is not None
                if line := process.stdout.readline().rstrip(b"\n"):
                    answers[name][number] = parse_answer(line)
                    broadcast.append(line)
            for process in processes.values():
                assert process.stdin is not None
                process.stdin.write(b"".join(line + b"\n" for line in [*broadcast, b""]))
                process.stdin.flush()
        printed = {name: process.communicate()[0] for name, process in processes.items()}
    assert all(process.returncode == 0 for process in processes.values())
    assert len(set(printed.values())) == 1
    assert len(printed["north"].strip()) == 64

    trained = serve(plan, answers)
    assert printed["north"].strip().decode() == sha256(trained.weights.tobytes()).hexdigest()
    for name, said in answers.items():
        assert all(isinstance(answer, NoisyUpdate) for answer in said.values())
        with Ledger.open(tmp_path / f"{name}.ledger") as ledger:
            charged = ledger.account().plans[plan.digest()].rounds
        assert set(said) <= set(charged)
        if name != dies:
            assert set(said) == set(charged)
