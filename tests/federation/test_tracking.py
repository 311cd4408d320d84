"""Following a run: costs that agree with the ledgers, public values only, and a tracker's files read back."""

import dataclasses
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event as Record

from ringfence.errors import OutputError
from ringfence.federation.local_shuffler import local_shuffler
from ringfence.federation.tracking import FOLLOWED, MARKS, Progress, Recorder, TensorBoard, marks
from ringfence.federation.training import Silo, train
from ringfence.planning.propose import make_plan, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, Schema
from ringfence.protocol.plan.guarantee import against
from ringfence.silo.records.records import Records
from tests.federation.test_local_shuffler import local_silos
from tests.shuffler.shuffled_federation import NAMES, make_shuffled_plan, schema_of
from tests.support import MakePlan

KINDS: dict[str, dict[str, Any]] = {
    "full": {"sampling": "full"},
    "fixed": {"sampling": "fixed", "batch": 10},
    "poisson": {"sampling": "poisson", "batch": 10},
    "one-pass": {"sampling": "one-pass"},
    "survey": {"algorithm": "accelerated", "survey": True},
    "localized": {"algorithm": "localized"},
    "some silos": {"available": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_costs_agree_with_the_ledgers_after_every_kind_of_run(
    schema: Schema, records: Records, tmp_path: Path, kind: str
) -> None:
    request = PlanRequest(epsilon=1.0, delta=1e-6, budgets={"south": (2.0, 1e-7)}, **KINDS[kind])
    if kind != "localized":
        request = dataclasses.replace(request, rounds=6)
    plan = propose_for(request, schema, {"north": 40, "south": 40}).plan
    recorder = Recorder(plan)
    result = train(plan, {name: Silo(records, tmp_path / name) for name in ("north", "south")}, watch=recorder)
    assert recorder.rounds[-1].epsilon == {
        name: result.statement.silos[name].used[0].epsilon for name in recorder.rounds[-1].epsilon
    }
    assert set(recorder.rounds[-1].epsilon) == {"north", "south"}
    assert [progress.round for progress in recorder.rounds] == list(range(plan.rounds))
    assert [progress.answered for progress in recorder.rounds] == [past.answered for past in result.history]


@pytest.mark.parametrize(
    ("asked", "stages"),
    [
        ({"algorithm": "accelerated", "survey": False, "rounds": 3}, [0, 0, 0]),
        ({"algorithm": "accelerated", "survey": True, "rounds": 2}, [0, 1, 1]),
        ({"sampling": "one-pass", "correlation": 0.5, "survey": False, "rounds": 3}, [None] * 3),
    ],
    ids=["training", "survey", "noise that cancels over rounds"],
)
def test_every_round_has_the_noise_level_of_its_stage_unless_noise_cancels(
    schema: Schema, records: Records, tmp_path: Path, asked: dict[str, Any], stages: list[int | None]
) -> None:
    plan = make_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(**asked))
    recorder = Recorder(plan)
    result = train(plan, {"clinic": Silo(records, tmp_path / "ledger")}, watch=recorder)
    levels = [
        own.sigma * math.sqrt(stage.query.length(plan))
        for own, stage in zip(plan.silos[0].stages, plan.stages, strict=True)
    ]
    expected = [None if stage is None else levels[stage] for stage in stages]
    assert [progress.noise_norm for progress in recorder.rounds] == pytest.approx(expected)
    assert recorder.rounds[-1].epsilon == {"clinic": result.statement.silos["clinic"].used[0].epsilon}


def test_the_noise_level_is_what_averaged_noise_comes_to(schema: Schema) -> None:
    """Squares of 4·20,000 Gaussian numbers: their mean is within 5 standard deviations but for one in 10⁶."""
    members = [Member("a", 40, 1.0, 1e-6), Member("b", 120, 0.5, 1e-6), Member("c", 80, 2.0, 1e-6)]
    plan = make_plan(schema, members, PlanRequest(rounds=1, survey=False))
    outcome = _outcome(0, ("a", "c"))
    recorder = Recorder(plan)
    recorder(outcome)
    level = recorder.rounds[0].noise_norm
    random = np.random.default_rng(1)
    sigmas = {terms.name: terms.stages[0].sigma for terms in plan.silos}
    draws = {name: random.normal(0, sigmas[name], (20_000, plan.dimension)) for name in ("a", "c")}
    weights = {terms.name: terms.weight for terms in plan.silos}
    means = sum(3 / 2 * weights[name] * draws[name] for name in ("a", "c"))
    measured = float(np.mean(np.sum(means**2, axis=1)))
    assert level is not None
    assert abs(measured / level**2 - 1) < 5 * math.sqrt(2 / (20_000 * plan.dimension))


def test_through_a_shuffler_the_costs_are_those_against_the_server_and_no_silo_s_noise_has_a_level(
    tmp_path: Path,
) -> None:
    schema = schema_of(2)
    with local_shuffler(NAMES) as local:
        plan = make_shuffled_plan(schema, local.keys, dict.fromkeys(NAMES, 40))
        recorder = Recorder(plan)
        silos = local_silos(local, plan, tmp_path)
        result = train(plan, silos, watch=recorder, collect=local.collect(plan))
    assert [progress.noise_norm for progress in recorder.rounds] == [None] * 3
    assert recorder.rounds[-1].epsilon == {
        name: against(stated.used, "server").epsilon for name, stated in result.statement.silos.items()
    }


def _outcome(round: int, answered: tuple[str, ...]) -> Any:
    from ringfence.server.rounds import RoundOutcome

    return RoundOutcome(round, answered, {}, (), 1.0)


def test_only_public_values_pass(plan_of: MakePlan, records: Records, tmp_path: Path) -> None:
    seen: list[object] = []

    class Spy:
        def begin(self, plan: Plan) -> None:
            seen.append(plan)

        def round(self, progress: Progress) -> None:
            seen.append(progress)

        def end(self, statement: str) -> None:
            seen.append(statement)

    plan = plan_of(rounds=2)
    recorder = Recorder(plan, Spy())
    result = train(plan, {"clinic": Silo(records, tmp_path / "ledger")}, watch=recorder)
    recorder.end(result.statement.text())
    assert seen[0] is plan
    assert seen[1:3] == recorder.rounds
    assert seen[3] == result.statement.text()
    fields = {field.name for field in dataclasses.fields(Progress)}
    assert fields == {"round", "answered", "refused", "update_norm", "noise_norm", "epsilon"}
    assert all(np.isscalar(value) or isinstance(value, tuple | dict) for value in vars(recorder.rounds[0]).values())


def test_a_history_keeps_no_weights(plan_of: MakePlan, records: Records, tmp_path: Path) -> None:
    seen: list[Any] = []
    result = train(plan_of(rounds=2), {"clinic": Silo(records, tmp_path / "ledger")}, watch=seen.append)
    assert [outcome.weights.shape for outcome in seen] == [(4,), (4,)]
    assert [outcome.weights for outcome in result.history] == [None, None]
    assert list(result.history) == seen


def test_a_long_run_of_many_silos_computes_few_costs(schema: Schema) -> None:
    members = [Member(f"silo {number}", 40, 1.0 + number, 1e-6) for number in range(20)]
    plan = make_plan(schema, members, PlanRequest(rounds=500, survey=False))
    assert marks(plan) <= set(range(500))
    assert {0, 499} <= marks(plan)
    assert len(marks(plan)) == MARKS
    recorder = Recorder(plan)
    for round in range(500):
        recorder(_outcome(round, tuple(member.name for member in members)))
    assert sum(bool(progress.epsilon) for progress in recorder.rounds) == MARKS
    assert set(recorder.rounds[-1].epsilon) == {f"silo {number}" for number in range(20 - FOLLOWED, 20)}


def read_events(folder: Path) -> tuple[dict[tuple[str, int], float], dict[str, str]]:
    """Read TensorBoard's own format: length, check of it, a record, check of it."""
    (path,) = folder.iterdir()
    content = path.read_bytes()
    scalars: dict[tuple[str, int], float] = {}
    texts: dict[str, str] = {}
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        record = Record.FromString(content[12 : 12 + length])
        for value in record.summary.value:
            if value.HasField("tensor"):
                texts[value.tag.split("/")[0]] = value.tensor.string_val[0].decode()
            else:
                scalars[value.tag, record.step] = value.simple_value
        content = content[16 + length :]
    return scalars, texts


def test_tensorboards_files_hold_the_rounds_and_the_statement(
    plan_of: MakePlan, records: Records, tmp_path: Path
) -> None:
    plan = plan_of(rounds=4)
    recorder = Recorder(plan, TensorBoard(tmp_path / "board"))
    result = train(plan, {"clinic": Silo(records, tmp_path / "ledger")}, watch=recorder)
    recorder.end(result.statement.text())
    scalars, texts = read_events(tmp_path / "board")
    for progress in recorder.rounds:
        assert scalars["silos/answered", progress.round] == 1
        assert scalars["update/norm", progress.round] == pytest.approx(progress.update_norm, rel=1e-6)
        assert scalars["update/noise", progress.round] == pytest.approx(progress.noise_norm, rel=1e-6)
        assert scalars["epsilon/clinic", progress.round] == pytest.approx(progress.epsilon["clinic"], rel=1e-6)
    assert plan.digest() in texts["plan"]
    assert "In words: anyone who sees everything that a silo sends" in texts["statement"]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_released(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Name another folder"):
        TensorBoard(tmp_path / "file" / "board")
