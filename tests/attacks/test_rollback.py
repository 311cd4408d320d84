"""Copies of a ledger forget nothing, and an older one that is put back is refused, however an agent meets it."""

import base64
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError
from ringfence.protocol import NoisyUpdate, Plan, Refusal, RefusalReason, parse_answer
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.certificate import export
from ringfence.silo.ledger.ledger import Ledger
from tests.deployment.agents import Federation, finish, server, until
from tests.processes import ringfence
from tests.silo.agents import Served, approved, serving
from tests.support import MakePlan, refusal, spent

ROUND = 3


def vectors(served: Served, plan: Plan, tries: int = 5) -> set[str]:
    """Ask for one round at the same weights again and again; return the different vectors that came out."""
    answers = [served.ask(plan, ROUND) for _ in range(tries)]
    return {answer.vector for answer in answers if isinstance(answer, NoisyUpdate)}


def same_file(older: Path, ledger: Path) -> None:
    """Write the older content into the file that the agent has open."""
    shutil.copyfile(older, ledger)


def another_file(older: Path, ledger: Path) -> None:
    """Put the older file in its place."""
    shutil.copyfile(older, ledger.with_name("older"))
    os.replace(ledger.with_name("older"), ledger)


def note_state(state: Path) -> None:
    """Keep a copy of the watermarks, from the moment of the ledger's older copy."""
    shutil.copytree(state / "ringfence" / "heads", state / "older-heads")


def forget_state(state: Path) -> None:
    """Roll back what the user's state folder knows of heads: watermarks to that copy, what couriers carried to nothing.

    The registry stays: without it an agent would not start at all.
    """
    for part in ("heads", "couriers"):
        shutil.rmtree(state / "ringfence" / part, ignore_errors=True)
    shutil.copytree(state / "older-heads", state / "ringfence" / "heads")


@pytest.mark.parametrize("put_back", [same_file, another_file])
def test_under_a_running_agent_no_round_gets_a_second_vector_however_often_it_is_tried(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path, own_state: Path, put_back: Callable[[Path, Path], None]
) -> None:
    """The agent's own memory is all there is: watermark and courier are rolled back with the file."""
    plan = approved(silo_folder, plan_of())
    older, newest = tmp_path / "older.ledger", tmp_path / "newest.ledger"
    with serving(silo_folder) as served:
        served.ask(plan, 0)
        shutil.copyfile(silo_folder.ledger_path, older)
        note_state(own_state)
        first = vectors(served, plan)
        shutil.copyfile(silo_folder.ledger_path, newest)
        put_back(older, silo_folder.ledger_path)
        for round in (0, ROUND, ROUND, ROUND + 1, ROUND) * 3:
            forget_state(own_state)
            assert refusal(served.ask(plan, round)) is RefusalReason.UNAVAILABLE
            shutil.copyfile(older, silo_folder.ledger_path)
        assert silo_folder.ledger_path.read_bytes() == older.read_bytes()
    shutil.copyfile(newest, silo_folder.ledger_path)
    with serving(silo_folder) as served:
        assert vectors(served, plan) == first


def test_a_courier_shows_an_agent_what_it_signed_and_the_agent_refuses_everything_from_then_on(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path, own_state: Path
) -> None:
    """The silo's folder and its watermark are rolled back; the courier, of another user, still knows."""
    plan, older, newest = approved(silo_folder, plan_of()), tmp_path / "older.ledger", tmp_path / "newest.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    heads = own_state / "ringfence" / "heads"
    shutil.copytree(heads, tmp_path / "older-heads")
    with serving(silo_folder) as served:
        served.ask(plan, ROUND)
    shutil.copyfile(silo_folder.ledger_path, newest)
    shutil.copyfile(older, silo_folder.ledger_path)
    shutil.rmtree(heads)
    shutil.copytree(tmp_path / "older-heads", heads)
    with serving(silo_folder) as served:
        assert {refusal(served.ask(plan, ROUND)) for _ in range(5)} == {RefusalReason.FORGOTTEN}
        shutil.rmtree(own_state / "ringfence" / "couriers")
        assert refusal(served.ask(plan, 0)) is RefusalReason.FORGOTTEN
        assert served.output().count("shown its own signature under an entry that its ledger lacks") == 1
    with pytest.raises(LedgerDamagedError, match="once had entry 4"):  # remembered across the restart
        silo_folder.ledger()
    ringfence("silo", "restore", silo_folder.path, newest, check=True)
    with serving(silo_folder) as served:
        assert len(vectors(served, plan)) == 1


def test_a_watermark_that_was_deleted_lets_no_older_ledger_answer_or_be_restored_until_its_operator_vouches_for_it(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path, own_state: Path
) -> None:
    plan, older = approved(silo_folder, plan_of()), tmp_path / "older.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    with serving(silo_folder) as served:
        first = vectors(served, plan)
    newest = shutil.copyfile(silo_folder.ledger_path, tmp_path / "newest.ledger")
    heads = own_state / "ringfence" / "heads"
    shutil.rmtree(heads)
    folder = str(silo_folder.path)
    for put_back in (older, newest):
        shutil.copyfile(put_back, silo_folder.ledger_path)
        same_data = [folder + "-2", "--name", "clinic", "--data", str(tmp_path / "records.csv"), "--schema"]
        joined = [*same_data, str(tmp_path / "schema.toml"), "--epsilon", "2", "--delta", "1e-6", "--same-data-as"]
        for command in (["serve", folder], ["restore", folder, str(older)], ["init", *joined, silo_folder.ledger_path]):
            refused = ringfence("silo", *map(str, command), timeout=120)
            assert refused.returncode == 1
            assert "is missing" in refused.stderr
            assert "silo register FOLDER" in refused.stderr
    assert not list(heads.glob("*"))
    assert "its watermark was lost" in ringfence("silo", "register", silo_folder.path, check=True).stdout
    with serving(silo_folder) as served:
        assert vectors(served, plan) == first
    shutil.copyfile(older, silo_folder.ledger_path)
    assert "once had entry" in ringfence("silo", "serve", silo_folder.path, timeout=120).stderr
    shutil.copyfile(newest, silo_folder.ledger_path)
    assert "once had entry" in ringfence("silo", "serve", silo_folder.path, timeout=120).stderr, (
        "the operator's word is an entry"
    )


def test_a_run_whose_ledger_lost_its_watermark_goes_on_once_its_ledger_is_named(
    tmp_path: Path, own_state: Path
) -> None:
    rows = "".join(f"0.{row},{'yes' if row % 3 else 'no'}\n" for row in range(100, 190))
    (tmp_path / "north.csv").write_text("a,ill\n" + rows)
    columns = '[columns.a]\ntype = "numeric"\nlower = 0\nupper = 1\n[columns.ill]\ntype = "boolean"\n'
    (tmp_path / "schema.toml").write_text(columns)
    train = ["train", str(tmp_path / "north.csv"), "--schema", str(tmp_path / "schema.toml"), "--target", "ill"]
    train += ["--epsilon", "1", "--rounds", "2", "--no-report", "--anyway"]
    ringfence(*train, check=True)
    shutil.rmtree(own_state / "ringfence" / "heads")
    assert "is missing" in ringfence(*train).stderr
    ledger = tmp_path / "north.ledger"
    assert "its watermark was lost" in ringfence(*train, "--same-data-as", str(ledger), check=True).stdout
    ringfence(*train, check=True)
    with Ledger.open(ledger) as opened:
        assert [entry.body["watermark"] for entry in opened.entries() if entry.kind == "registered"] == ["lost"]


def test_a_server_s_transcript_stops_a_silo_that_was_rolled_back_between_two_rounds(
    tmp_path: Path, own_state: Path
) -> None:
    federation = Federation(tmp_path, ["north", "south"])
    plan, run = federation.plan(40), tmp_path / "run"
    north = federation.silos["north"]
    older = tmp_path / "older.ledger"
    shutil.copyfile(north.silo_folder.ledger_path, older)
    note_state(own_state)
    federation.start()
    try:
        serving = server(federation, plan, run, federation.doors(), "--quorum", "1")
        until(lambda: len(north.released(plan)) >= 5)
        serving.kill()
        serving.communicate()
        before = north.released(plan)
        north.kill()
        shutil.copyfile(older, north.silo_folder.ledger_path)
        forget_state(own_state)
        north.start()
        north.wait()
        finish(server(federation, plan, run, federation.doors(), "--quorum", "1"))
        assert len(before) >= 5
    finally:
        federation.stop()
    answers: dict[int, set[str]] = {}
    for line in (run / "transcript.jsonl").read_text().splitlines():
        if '"kind":"answer"' in line and '"silo":"north"' in line:
            answer = parse_answer(base64.b64decode(json.loads(line)["entry"]["content"]))
            assert isinstance(answer, NoisyUpdate | Refusal)
            given = answer.vector if isinstance(answer, NoisyUpdate) else answer.reason
            answers.setdefault(answer.round, set()).add(given)
    assert max(answers) >= 4
    assert answers[max(answers)] == {RefusalReason.FORGOTTEN}
    assert all(len(given) == 1 for round, given in answers.items() if round != max(answers))
    certificate = tmp_path / "north.json"
    forget_state(own_state)  # the rolled-back ledger is trusted again, and certified: the transcript disproves it
    export(north.silo_folder, certificate)
    shown = ringfence("verify", certificate, "--transcript", run)
    assert shown.returncode == 1
    assert "The silo signed that its ledger had entry" in shown.stderr


def test_two_certificates_of_a_ledger_that_went_two_ways_prove_it(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path, own_state: Path
) -> None:
    """All is rolled back: ledger, watermark, courier. A second vector leaves, and the certificates show it."""
    plan, older = approved(silo_folder, plan_of()), tmp_path / "older.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    note_state(own_state)
    found = set()
    for way in ("one", "two"):
        shutil.copyfile(older, silo_folder.ledger_path)
        forget_state(own_state)
        with serving(silo_folder) as served:
            found |= vectors(served, plan)
        export(silo_folder, tmp_path / f"{way}.json")
    assert len(found) == 2
    shown = ringfence("verify", tmp_path / "one.json", tmp_path / "two.json")
    assert shown.returncode == 1
    assert "prove a fork" in shown.stderr
    assert "differ from entry 4 on (charged" in shown.stderr


def test_a_plain_copy_and_a_backup_beside_a_running_agent_hold_everything_that_was_released(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path
) -> None:
    plan = approved(silo_folder, plan_of(rounds=30))
    with serving(silo_folder) as served:
        for round in range(30):
            assert isinstance(served.ask(plan, round), NoisyUpdate)
            copy = tmp_path / f"{round}.ledger"
            if round % 15:
                shutil.copyfile(silo_folder.ledger_path, copy)
            else:
                ringfence("silo", "backup", silo_folder.path, "--out", copy, check=True)
            with Ledger.open(copy) as copied, silo_folder.ledger() as ledger:
                assert copied.entries() == ledger.entries()
                assert len(copied.account().plans[plan.digest()].rounds) == round + 1
                assert spent(copied) == spent(ledger) > 0
        assert [path.name for path in silo_folder.path.glob("clinic.ledger*")] == ["clinic.ledger"]


def test_a_copy_taken_at_any_moment_forgets_no_answer_that_had_left_or_is_refused(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path
) -> None:
    """Also in the middle of a request, when pages from before and after a transaction stand side by side."""
    plan = approved(silo_folder, plan_of(rounds=200))
    answered, done, whole = [0], threading.Event(), 0

    def ask() -> None:
        try:
            for round in range(200):
                assert isinstance(served.ask(plan, round), NoisyUpdate)
                answered[0] += 1
        finally:
            done.set()

    with serving(silo_folder) as served:
        asking = threading.Thread(target=ask)
        asking.start()
        while not done.is_set():
            left, copy = answered[0], tmp_path / "copy.ledger"
            shutil.copyfile(silo_folder.ledger_path, copy)
            try:
                with Ledger.open(copy, marked=False) as copied:
                    rounds = copied.account().plans[plan.digest()].rounds
                assert sum(charged.answer is not None for charged in rounds.values()) >= left
                whole += 1
            except LedgerDamagedError:
                pass
        asking.join()
    assert answered == [200]
    assert whole > 0
