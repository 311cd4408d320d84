"""`ringfence server run` with agents and server as real processes that get killed, stopped and started again."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member
from ringfence.protocol import RoundRequest, Statistics
from ringfence.server.transcript import Asked, Closed, read_transcript
from tests.deployment.agents import DELTA, RECORDS, Federation, Seen, Wire, failed, finish, model_of, server

NAMES = ("north", "south", "west")
MOMENTS = [  # each in a round of its own: a silo whose answer was written down is not asked again
    Seen("north", 0, "asked"),
    Seen("west", 1, "answered"),
    Seen("south", 2, "delivered"),
    Seen("north", 3, "answered"),
    Seen("west", 4, "asked"),
    Seen("north", 6, "delivered"),
]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Three agents."""
    made = Federation(tmp_path_factory.mktemp("federation"), NAMES)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def wire(federation: Federation, tmp_path: Path) -> Iterator[Wire]:
    """Taps before their doors."""
    with Wire(federation, tmp_path / "wire") as tapped:
        yield tapped


def closed(run: Path) -> int:
    """How many rounds are over."""
    try:
        return sum(isinstance(entry, Closed) for entry in read_transcript(run)[1])
    except Exception:
        return 0


def answered(run: Path) -> dict[str, list[int]]:
    """In which rounds each silo's update counted."""
    report = json.loads((run / "report.json").read_text())
    return {name: [r["round"] for r in report["rounds"] if name in r["answered"]] for name in NAMES}


def test_a_server_killed_at_any_moment_and_started_again_gives_the_one_model_and_costs_no_silo_more(
    federation: Federation, wire: Wire, tmp_path: Path
) -> None:
    plan, run = federation.plan(8), tmp_path / "run"
    asked_again: list[Seen] = []
    for moment in [*MOMENTS, None]:
        done = closed(run)
        wire.log.clear()
        process = server(federation, plan, run, wire.doors(), "--json")
        wire.acts = {moment: process.kill} if moment else {}
        output, errors = process.communicate(timeout=240)
        assert process.returncode == (0 if moment is None else -signal.SIGKILL), errors
        asked_again += [seen for seen in wire.log if seen.round < done]
        if moment is not None:
            assert done <= closed(run) <= moment.round + 1
    assert asked_again == [], "a finished round was asked for again"
    assert model_of(run) == federation.from_ledgers(plan).weights.tobytes()
    page = (run / "report.html").read_text()  # of all rounds, those before the kills too
    assert all(text in page for text in (plan.digest(), "Epsilon over the rounds", *NAMES))
    for name, silo in federation.silos.items():
        silo.check_that_ledger_covers(plan, wire.sent[name])
        assert set(silo.released(plan)) == set(range(8))
    report = json.loads(output)
    assert report["plan"] == plan.digest()
    assert [entry["round"] for entry in report["rounds"]] == list(range(8))
    assert all(set(entry["answered"]) == set(NAMES) for entry in report["rounds"])
    assert report["silos"]["north"]["claimed"] == [{"epsilon": 1.0, "delta": 1e-6, "against": "anyone"}]
    assert (report["trust"], report["adjacency"], report["unit"]) == ("nobody", "replace-one", "record")
    assert "ledger, which the server cannot see" in report["guarantees"]
    _, entries = read_transcript(run)
    assert [entry.round for entry in entries if isinstance(entry, Asked)] == list(range(8))


def test_a_run_about_persons_gives_the_model_of_the_answers_in_the_ledgers(tmp_path: Path) -> None:
    federation, run = Federation(tmp_path, ("north", "south"), rows=3, seed=8), tmp_path / "run"
    plan = federation.plan(2, person_rule="sum")
    try:
        federation.start()
        report = json.loads(finish(server(federation, plan, run, federation.doors(), "--json")))
    finally:
        federation.stop()
    assert model_of(run) == federation.from_ledgers(plan).weights.tobytes()
    assert report["unit"] == "person"
    assert [set(entry["answered"]) for entry in report["rounds"]] == [{"north", "south"}] * 2
    for silo in federation.silos.values():
        silo.check_that_ledger_covers(plan, silo.released(plan).values())


def test_a_plan_that_trains_nothing_leaves_its_answers_and_no_model(federation: Federation, tmp_path: Path) -> None:
    members = [Member(name, RECORDS, 0.5, DELTA) for name in NAMES]
    plan, run = make_query_plan(federation.schema, members, Statistics(columns=("age", "ill"))), tmp_path / "run"
    federation.write(plan)
    federation.approve(plan)
    report = json.loads(finish(server(federation, plan, run, federation.doors(), "--json")))
    assert [set(entry["answered"]) for entry in report["rounds"]] == [set(NAMES)]
    assert len(report["findings"]["statistics"]["statistic"]) == plan.stages[0].query.length(plan)
    assert report["model"] is None
    assert not (run / "model.json").exists()
    assert "answered; nothing was trained" in (run / "report.html").read_text()


def test_a_silo_that_hangs_costs_its_timeouts_and_takes_part_again_when_it_comes_back(
    federation: Federation, wire: Wire, tmp_path: Path
) -> None:
    plan, run = federation.plan(30), tmp_path / "run"
    south = federation.silos["south"]
    wire.acts = {
        Seen("south", 3, "delivered"): lambda: south.signal(signal.SIGSTOP),
        Seen("north", 9, "asked"): lambda: south.signal(signal.SIGCONT),
    }
    process = server(federation, plan, run, wire.doors(), "--seconds", "1", "--patience", "2")
    _, errors = process.communicate(timeout=240)
    south.signal(signal.SIGCONT)
    assert process.returncode == 0, errors
    taken = answered(run)
    assert taken["north"] == taken["west"] == list(range(30))
    assert not {5, 6, 7, 8} & set(taken["south"])
    assert max(taken["south"]) > 9, "it came back"
    model_of(run)
    south.check_that_ledger_covers(plan, wire.sent["south"])


def test_the_server_says_which_silo_it_is_waiting_for(federation: Federation, tmp_path: Path) -> None:
    """The silo hangs until the server has said so."""
    plan = federation.plan(3)
    south = federation.silos["south"]
    south.signal(signal.SIGSTOP)
    try:
        running = server(federation, plan, tmp_path / "run", federation.doors(), "--quorum", "all")
        assert running.stderr is not None
        assert running.stderr.readline() == b"Round 0 is waiting for silo south.\n"
    finally:
        south.signal(signal.SIGCONT)
    finish(running)


def test_ctrl_c_leaves_a_run_that_goes_on_and_a_silo_started_again_meanwhile_takes_part(
    federation: Federation, wire: Wire, tmp_path: Path
) -> None:
    plan, run = federation.plan(8), tmp_path / "run"
    south = federation.silos["south"]
    process = server(federation, plan, run, wire.doors(), "--seconds", "1", "--patience", "1")
    wire.acts = {
        Seen("south", 1, "delivered"): south.kill,
        Seen("north", 5, "answered"): lambda: process.send_signal(signal.SIGINT),
    }
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert b"repeat the command to resume" in errors
    assert b"Traceback" not in errors
    wire.acts = {}
    south.start()
    south.wait()
    finish(server(federation, plan, run, wire.doors(), "--seconds", "20"))
    taken = answered(run)
    assert taken["north"] == list(range(8))
    assert set(taken["south"]) >= {0, 6, 7}
    assert not {2, 3, 4} & set(taken["south"])
    for name, silo in federation.silos.items():
        silo.check_that_ledger_covers(plan, wire.sent[name])


def test_without_a_quorum_the_run_stops_with_a_sentence_and_goes_on_with_a_lower_one(
    federation: Federation, wire: Wire, tmp_path: Path
) -> None:
    plan, run = federation.plan(3), tmp_path / "run"
    federation.silos["west"].kill()
    try:
        options = ["--seconds", "0.5", "--patience", "1"]
        errors = failed(server(federation, plan, run, wire.doors(), *options, "--quorum", "all"))
        assert b"Round 0 has 2 of the 3 updates it needs" in errors
        assert b"'west' did not answer" in errors
        assert b"west: The silo's agent at" in errors
        assert len(errors.splitlines()) == 1
        finish(server(federation, plan, run, wire.doors(), *options, "--quorum", "60%"))
        assert answered(run) == {"north": [0, 1, 2], "south": [0, 1, 2], "west": []}
    finally:
        federation.silos["west"].start()
        federation.silos["west"].wait()


def test_a_plan_that_was_not_approved_yet_goes_on_when_it_is(federation: Federation, tmp_path: Path) -> None:
    plan, run = federation.plan(2, approved=False), tmp_path / "run"
    doors = tmp_path / "doors.toml"  # and this time straight to the doors
    doors.write_text("".join(f'{name} = "{silo.silo_folder.path}"\n' for name, silo in federation.silos.items()))
    assert b"'north' refuses: not-approved" in failed(server(federation, plan, run, ["--doors", str(doors)]))
    federation.approve(plan)
    finish(server(federation, plan, run, ["--doors", str(doors)]))
    assert model_of(run) == federation.from_ledgers(plan).weights.tobytes()


def test_a_hostile_silo_spoils_nothing_but_its_own_part(federation: Federation, tmp_path: Path) -> None:
    """West's door speaks HTTP and answers with whatever it likes: junk, or another silo's name."""
    plan, run = federation.plan(4), tmp_path / "run"
    place = tmp_path / "hostile.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def misbehave() -> None:
            for number in range(100):
                try:
                    caller, _ = listening.accept()
                except OSError:
                    return
                with caller:
                    request = caller.recv(2**16)
                    lie = b'{"kind":"update","silo":"north","plan":"' + plan.digest().encode() + b'","round":0}'
                    body = [b"\0\xff" * 99, lie, request, b"["][number % 4]
                    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        threading.Thread(target=misbehave, daemon=True).start()
        finish(server(federation, plan, run, [*federation.doors()[:2], f"--doors=west=unix:{place}"]))
    report = json.loads((run / "report.json").read_text())
    assert all(set(entry["answered"]) == {"north", "south"} for entry in report["rounds"])
    assert all(entry["unusable"] == ["west"] for entry in report["rounds"])
    model_of(run)


@pytest.mark.parametrize(
    ("doors", "says"),
    [
        ([], "missing north, south, west"),
        (["--doors", "north=unix:/a", "--doors", "north=unix:/b"], "two doors"),
        (["--doors", "nowhere.toml"], "neither NAME=DOOR nor a readable file"),
        (["--doors", "north=/nowhere"], "missing south, west"),
    ],
)
def test_wrong_doors_are_refused_before_anybody_is_asked(
    federation: Federation, tmp_path: Path, doors: list[str], says: str
) -> None:
    plan = federation.plan(1, approved=False)
    assert says in failed(server(federation, plan, tmp_path / "run", doors)).decode()
    assert not (tmp_path / "run").exists()


def test_an_agent_answers_fifty_rounds_in_little_memory(tmp_path: Path) -> None:
    alone = Federation(tmp_path, ["north"], seed=5)
    north, plan = alone.silos["north"], alone.plan(50)
    try:
        north.start(as_forked=False)  # memory that it shares with a nursery would count as its own
        north.wait()
        for round in range(plan.rounds):
            north.door.ask(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)).to_bytes())
        assert north.memory() < 250  # with pyarrow, which reads tables where it is installed
    finally:
        alone.stop()
    assert set(north.released(plan)) == set(range(50))
