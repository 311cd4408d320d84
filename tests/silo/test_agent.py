"""The silo's agent, in its own process: the gate behind one door, through crashes, restarts and decisions."""

import re
import signal
import stat
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import task_event
from ringfence.errors import DoorError, LedgerDamagedError, SiloError
from ringfence.planning.query_plans import make_single_stage_plan
from ringfence.planning.request import Member
from ringfence.protocol import (
    Answer,
    Full,
    Logistic,
    NoisyUpdate,
    Plan,
    Refusal,
    RefusalReason,
    RoundRequest,
    SecondMoments,
    Stage,
    load_schema,
    pack,
    parse_answer,
)
from ringfence.protocol.plan.plan import task
from ringfence.server.rounds import Session
from ringfence.silo import agent
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.decisions import end_plan, set_budget
from ringfence.storage import chain
from tests.nursery import completed
from tests.silo.agents import approved, edit_ledger, request, serving, silo_with
from tests.support import MakePlan, refusal, spent, vector


@pytest.fixture
def plan(silo_folder: SiloFolder, plan_of: MakePlan) -> Plan:
    """A plan of five rounds that the silo's operator has approved."""
    return approved(silo_folder, plan_of())


def charged_rounds(silo_folder: SiloFolder, plan: Plan) -> set[int]:
    with silo_folder.ledger() as ledger:
        return set(ledger.account().plans[plan.digest()].rounds)


def check_that_ledger_covers(silo_folder: SiloFolder, plan: Plan, answers: list[Answer]) -> None:
    updates = {(a.round, a.vector) for a in answers if isinstance(a, NoisyUpdate)}
    rounds = {round for round, _ in updates}
    assert len(updates) == len(rounds), "a round was answered with two different vectors"
    assert rounds <= charged_rounds(silo_folder, plan)
    terms = plan.silos[0]
    true_cost = accountant.epsilon([(task_event(plan, terms, task(plan, terms, 0, 0)), len(rounds))], 1e-6)
    with silo_folder.ledger() as ledger:
        assert true_cost <= spent(ledger) <= ledger.account().budget.epsilon


@pytest.mark.parametrize("options", [[], ["--port", "0"]])
def test_a_whole_plan_is_answered_through_the_door(silo_folder: SiloFolder, plan: Plan, options: list[str]) -> None:
    with serving(silo_folder, *options) as served:
        answers = [served.ask(plan, round) for round in range(plan.steps)]
        assert all(vector(answer).shape == (plan.dimension,) for answer in answers)
        assert refusal(served.ask(plan, plan.steps)) is RefusalReason.ROUND_OUT_OF_RANGE
        assert served.stop() == 0
    check_that_ledger_covers(silo_folder, plan, answers)
    assert charged_rounds(silo_folder, plan) == set(range(plan.steps))


def test_the_door_s_files_are_closed_to_other_users(silo_folder: SiloFolder) -> None:
    with serving(silo_folder):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in silo_folder.path.iterdir()}
    assert stat.S_IMODE(silo_folder.path.stat().st_mode) == 0o700
    assert {"door.sock", "courier.toml", "door.token", "signing.key", "clinic.ledger", "silo.toml"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_decisions_made_while_the_agent_runs_take_effect_with_the_next_request(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = plan_of(epsilon=1.0)
    with serving(silo_folder) as served:
        assert refusal(served.ask(plan, 0)) is RefusalReason.NOT_APPROVED
        approved(silo_folder, plan)
        first = served.ask(plan, 0)
        assert isinstance(first, NoisyUpdate)
        set_budget(silo_folder, Budget(0.5, 1e-6), note="a test")
        assert refusal(served.ask(plan, 1)) is RefusalReason.BUDGET
        set_budget(silo_folder, Budget(2.0, 1e-6), note="a test")
        approved(silo_folder, plan)
        assert isinstance(served.ask(plan, 1), NoisyUpdate)
        end_plan(silo_folder, plan.digest(), revoke=True)
        assert refusal(served.ask(plan, 2)) is RefusalReason.REVOKED
        assert refusal(served.ask(plan, 0)) is RefusalReason.REVOKED
    assert charged_rounds(silo_folder, plan) == {0, 1}


def test_a_repeated_round_gets_the_same_bytes_also_after_a_restart_and_other_weights_get_none(
    silo_folder: SiloFolder, plan: Plan
) -> None:
    with serving(silo_folder) as served:
        first = served.door().ask(request(plan, 0))
        assert served.door().ask(request(plan, 0)) == first
        assert refusal(served.ask(plan, 0, 0.2)) is RefusalReason.ROUND_ANSWERED
        assert served.stop() == 0
    with serving(silo_folder) as served:
        assert served.door().ask(request(plan, 0)) == first
        assert refusal(served.ask(plan, 0, 0.2)) is RefusalReason.ROUND_ANSWERED
    assert charged_rounds(silo_folder, plan) == {0}


def test_eight_callers_at_once_never_see_two_vectors_for_a_round(silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    plan = approved(silo_folder, plan_of(rounds=6))
    with serving(silo_folder) as served, ThreadPoolExecutor(8) as callers:

        def ask_all(number: int) -> list[Answer]:
            return [served.ask(plan, round, 0.1 + 0.1 * (number % 2)) for round in range(plan.steps)]

        answers = [answer for own in callers.map(ask_all, range(8)) for answer in own]
    assert len(answers) == 8 * plan.steps
    assert any(isinstance(answer, NoisyUpdate) for answer in answers)
    check_that_ledger_covers(silo_folder, plan, answers)
    shown = {refusal(answer) for answer in answers if isinstance(answer, Refusal)}
    assert shown <= {RefusalReason.ROUND_PASSED, RefusalReason.ROUND_ANSWERED}


def test_a_courier_waits_through_a_restart_and_gets_the_answer(silo_folder: SiloFolder, plan: Plan) -> None:
    with serving(silo_folder, "--dies-before-sending", "1") as served:
        first = served.ask(plan, 0)
        door = served.door(patience=60)
        answers: list[bytes] = []
        waiting = threading.Thread(target=lambda: answers.append(door.ask(request(plan, 1))))
        waiting.start()
        assert served.process.wait(60) == -signal.SIGKILL
    with serving(silo_folder) as served:
        waiting.join()
        assert served.door().ask(request(plan, 1)) == answers[0]
        assert served.ask(plan, 0) == first


def test_a_clock_that_went_back_changes_nothing(
    silo_folder: SiloFolder, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first entries are of the year to come, and the agent's clock is behind them."""
    later = datetime.now(UTC) + timedelta(days=365)
    plan = plan_of()
    with monkeypatch.context() as patched:
        patched.setattr(chain, "datetime", SimpleNamespace(now=lambda zone: later))
        approved(silo_folder, plan)
        with silo_folder.ledger() as ledger:
            first = Gate(silo_folder.records(), ledger).answer(RoundRequest.from_bytes(request(plan, 0)))
    with serving(silo_folder) as served:
        assert served.ask(plan, 0) == first
        assert refusal(served.ask(plan, 0, 0.2)) is RefusalReason.ROUND_ANSWERED
        assert isinstance(served.ask(plan, 1), NoisyUpdate)
    with silo_folder.ledger() as ledger:
        times = [entry.time for entry in ledger.entries()]
    assert max(times) == later.isoformat(timespec="milliseconds")
    assert times[-1] < max(times)


EDITS = [
    "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE kind = 'budget'",
    "DELETE FROM entries WHERE kind = 'charged'",
    "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)",
]


@pytest.mark.parametrize("statement", EDITS)
def test_an_agent_does_not_start_on_an_edited_ledger(silo_folder: SiloFolder, plan: Plan, statement: str) -> None:
    with serving(silo_folder) as served:
        served.ask(plan, 0)
        served.stop()
    edit_ledger(silo_folder.ledger_path, statement)
    with pytest.raises(LedgerDamagedError, match="cannot be trusted"):
        agent.serve(silo_folder)
    done = completed([sys.executable, "-m", "ringfence", "silo", "serve", str(silo_folder.path)], text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"ringfence: The ledger .* cannot be trusted: .*\n", done.stderr)


def take_away(silo_folder: SiloFolder) -> None:
    silo_folder.ledger_path.unlink()


def rename(silo_folder: SiloFolder) -> None:
    silo_folder.ledger_path.rename(silo_folder.ledger_path.with_suffix(".old"))


def cut_short(silo_folder: SiloFolder) -> None:
    edit_ledger(silo_folder.ledger_path, EDITS[-1])


@pytest.mark.parametrize("accident", [take_away, rename, cut_short])
def test_a_running_agent_whose_ledger_is_taken_away_or_cut_short_answers_nothing_more(
    silo_folder: SiloFolder, plan: Plan, accident: Callable[[SiloFolder], None]
) -> None:
    with serving(silo_folder) as served:
        assert isinstance(served.ask(plan, 0), NoisyUpdate)
        accident(silo_folder)
        assert refusal(served.ask(plan, 1)) is RefusalReason.UNAVAILABLE


def test_a_second_agent_on_the_same_folder_is_refused_and_the_first_goes_on(
    silo_folder: SiloFolder, plan: Plan
) -> None:
    with serving(silo_folder) as served:
        assert silo_folder.is_served()
        with pytest.raises(SiloError, match="Another process is serving"):
            agent.serve(silo_folder)
        assert isinstance(served.ask(plan, 0), NoisyUpdate)
        assert served.stop() == 0
    assert not silo_folder.is_served()
    assert not silo_folder.socket_path.exists()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_ends_cleanly_on_a_signal(silo_folder: SiloFolder, end: signal.Signals) -> None:
    with serving(silo_folder) as served:
        served.process.send_signal(end)
        assert served.process.wait(60) == 0
        assert served.output().count("\n") == 1


def test_what_the_agent_prints_holds_no_record_no_weight_and_no_request(silo_folder: SiloFolder, plan: Plan) -> None:
    with serving(silo_folder) as served:
        for round in range(3):
            served.ask(plan, round, 0.123456789)
        with pytest.raises(DoorError):
            served.door().ask(b'{"weights": "0.987654321"}')
        served.stop()
        assert re.fullmatch(r"is served at unix:\S+\n", served.output())


def test_a_request_may_be_as_long_as_its_query_needs_however_small_the_model_is(tmp_path: Path) -> None:
    wards = [f"w{number}" for number in range(340)]
    schema = (
        f'[columns.ward]\ntype = "categorical"\ncategories = {wards}\n'
        '[columns.ill]\ntype = "categorical"\ncategories = ["no", "yes"]\n'
    )
    table = "ward,ill\n" + "".join(f"{ward},no\n" for ward in wards)
    silo_folder = silo_with(tmp_path, schema, table, Budget(2.0, 1e-6))
    columns = load_schema(tmp_path / "schema.toml", "ill")
    stage = Stage(query=SecondMoments(start=pack(np.zeros(columns.width))), rounds=4, sampling=Full())
    member = Member("clinic", len(wards), 1.0, 1e-6)
    plan = approved(silo_folder, make_single_stage_plan(stage, [member], data=columns, model_loss=Logistic()))
    asked = Session(plan, np.random.default_rng(0)).request().to_bytes()
    assert len(asked) > agent.SMALL_REQUEST > 100 * len(request(plan, 0))
    with serving(silo_folder) as served:
        answer = parse_answer(served.door().ask(asked))
    assert len(vector(answer)) == stage.query.length(plan)
