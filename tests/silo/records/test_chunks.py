"""Answers do not depend on how records are divided, how many threads add them up, or where they are kept."""

import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.federation.unclamped import unclamped_targets
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, PersonRule, Plan, Schema, load_columns, load_schema, parse_schema
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.queries import compute
from ringfence.silo.records import exact_sums, records
from ringfence.silo.records.exact_sums import DOUBLE, SINGLE, Precision
from ringfence.silo.records.records import Records, load_data_set
from ringfence.silo.records.storage import GrowingArray, Keeping
from ringfence.sources import csv_files
from tests.protocol.plan_document import KINDS
from tests.protocol.plan_document import plan_of as planned
from tests.silo.agents import make_silo_folder
from tests.support import MakePlan, ask

ROWS, PERSONS = 60, 23


def kept(keeping: Keeping, values: NDArray[Any]) -> NDArray[Any]:
    column = GrowingArray(keeping)
    column.add(values)
    return column.array()


def records_for(plan: Plan, keeping: Keeping, rows: int = ROWS) -> Records:
    random = np.random.default_rng(3)

    def reading(column: Any) -> Reading:
        empty = random.random(rows) < 0.2 if column.may_be_empty else None
        if column.is_number:
            return Reading(kept(keeping, random.uniform(-1, 1, rows)), empty)
        if column.classes:
            return Reading(kept(keeping, random.integers(len(column.classes), size=rows)), empty)
        width = len(column.scaling) - bool(column.indicator)
        return Reading(kept(keeping, random.uniform(-0.1, 0.1, (rows, width))), empty)

    cells = {name: reading(column) for name, column in plan.data.used.items()}
    of_row = None if plan.data.person is None else random.permutation(np.arange(rows) * PERSONS // ROWS)
    return Records.of_cells(plan.data, cells, of_row=of_row, keeping=keeping)


def answers(plan: Plan, own: Records) -> list[bytes]:
    found = []
    for stage in plan.stages:
        argument = np.random.default_rng(4).uniform(0.1, 0.9, stage.query.argument_length(plan))
        argument[: min(2, len(argument))] = [-1.0, 1.0][: len(argument)]
        chosen = (np.arange(len(own)) % 5 > 0).astype(float)
        found.append(compute(stage.query, plan, argument, own, chosen, len(own)).tobytes())
    return found


NUMERIC = {"type": "numeric", "lower": 0, "upper": 10}
TWO = {"type": "categorical", "categories": ["no", "yes"]}


def with_roles(**roles: str) -> Schema:
    columns = {"a": NUMERIC, "days": NUMERIC, "off": NUMERIC, "counts": NUMERIC, "died": TWO, "who": {"type": "ignore"}}
    return parse_schema({"columns": columns, "event": "died", **roles}, target="days")


SHARED: dict[str, tuple[Schema, PersonRule | None]] = {
    "shared slopes": (with_roles(offset="off", weight="counts"), None),
    "shared slopes of persons, sums": (with_roles(weight="counts", person="who"), "sum"),
    "shared slopes of persons, means": (with_roles(offset="off", person="who"), "mean"),
}


def plan_for(kind: str) -> Plan:
    if kind in KINDS:
        return planned(KINDS[kind])
    schema, rule = SHARED[kind]
    request = PlanRequest(loss="survival", cuts=(2.0, 7.0), rounds=3, survey=False, person_rule=rule)
    return make_plan(schema, [Member("clinic", ROWS if rule is None else PERSONS, 2.0, 1e-6)], request)


@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
@pytest.mark.parametrize("kind", [*KINDS, *SHARED])
def test_every_query_s_answer_is_the_same_of_parts_on_several_threads_and_of_files(
    kind: str, precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(kind)
    expected = answers(plan, records_for(plan, Keeping(precision)))
    monkeypatch.setattr(records, "LEAST_AT_ONCE", 2)
    for most, threads in ((1, 1), (7, 3), (59, 2)):
        monkeypatch.setattr(records, "at_once", lambda rows, breadth, most=most, threads=threads: most * threads)
        monkeypatch.setattr(exact_sums, "sum_threads", lambda threads=threads: threads)
        assert answers(plan, records_for(plan, Keeping(precision))) == expected
        assert answers(plan, records_for(plan, Keeping(precision, tmp_path))) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("edits", KINDS.values(), ids=KINDS)
def test_no_query_takes_more_memory_of_many_records_than_is_estimated(edits: Any) -> None:
    plan, rows = planned(edits), 100_000
    own = records_for(plan, Keeping(SINGLE), rows)
    for stage in plan.stages:
        argument = np.sort(np.random.default_rng(4).uniform(0.1, 0.9, stage.query.argument_length(plan)))
        tracemalloc.start()
        try:
            compute(stage.query, plan, argument, own, np.ones(len(own)), len(own))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < stage.query.effort(plan, rows).memory


def test_an_error_in_a_sum_on_any_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(next(iter(KINDS.values())))
    own = records_for(plan, Keeping())

    def fails(some: Records, chosen: Any) -> Any:
        raise RecordsError(f"{len(some)} of {len(chosen)}")

    monkeypatch.setattr(records, "LEAST_AT_ONCE", 2)
    monkeypatch.setattr(records, "at_once", lambda rows, breadth: 20)
    monkeypatch.setattr(exact_sums, "sum_threads", lambda: 2)
    with pytest.raises(RecordsError, match="10 of 10"):
        own.total(fails, np.ones(len(own)), 1)


PROGRAM = """
import resource, sys
from pathlib import Path
import numpy as np
from ringfence.protocol import Logistic
from ringfence.silo.records.exact_sums import SINGLE
from ringfence.silo.records.storage import Keeping
from ringfence.silo.queries.gradient import clipped_total
from ringfence.silo.records.records import Records

class Rows:  # made as they are asked for
    def __getitem__(self, rows):
        return np.sin(np.arange(1_000_000)[rows, None] * np.arange(1.0, 61.0))

base = int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (base + int(sys.argv[2]),) * 2)
folder = Path(sys.argv[1]) if sys.argv[1] else None
try:
    own = Records(None, Rows(), np.ones(1_000_000), keeping=Keeping(SINGLE, folder))
    add_up = lambda some, chosen: clipped_total(Logistic(), 1.0, np.ones((60, 1)), some, chosen, some)
    print(own.total(add_up, np.ones(1_000_000), 1).sum())
except MemoryError:
    print("no room")
"""


def run_within(folder: Path | None, room: int) -> str:
    command = [sys.executable, "-c", PROGRAM, str(folder or ""), str(room)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def test_a_table_that_is_larger_than_memory_is_kept_in_files_and_gives_the_same_sum(tmp_path: Path) -> None:
    """Its features take 240 MB; numbers that are worked on, norms and targets must fit into 200 MB."""
    assert resource.getrlimit(resource.RLIMIT_DATA)[1] == resource.RLIM_INFINITY
    assert run_within(None, 200_000_000) == "no room"
    assert run_within(tmp_path, 200_000_000) == run_within(None, 900_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"cannot be kept in .*needed there. Make room, or keep them in memory"):
        Keeping(SINGLE, tmp_path).empty((2**40, 2**20), np.float32)


def test_an_operator_sets_precision_and_place_in_silo_toml_and_nobody_else_need_know(
    tmp_path: Path, plan_of: MakePlan
) -> None:
    folder, plan, key = make_silo_folder(tmp_path), plan_of(), b"k" * 32
    before, files = folder.records(), sorted(folder.path.iterdir())
    settings = folder.path / "silo.toml"
    settings.write_text(settings.read_text() + 'precision = "single"\nkept_in = "files"\n')
    opened = SiloFolder.open(folder.path)
    with opened.ledger() as ledger:
        data = opened.current_records(ledger)
        assert data.marks.fingerprint(key).ordered == before.marks.fingerprint(key).ordered, "the same data set"
        gate = Gate(data, ledger, opened.key())
        gate.approve(plan)
        assert isinstance(ask(gate, plan, 0), NoisyUpdate)
        own, exact = data.encoded(plan.data), before.encoded(plan.data)
        assert isinstance(own, Records)
        assert isinstance(exact, Records)
        assert own.features.dtype == np.float32
        assert np.abs(own.features - exact.features).max() <= 2.0**-23 * exact.norms.max()
        assert sorted(opened.path.iterdir()) == files, "the files have no names"


@pytest.mark.parametrize("in_files", [True, False])
@pytest.mark.parametrize("precision", [DOUBLE, SINGLE])
def test_rows_that_come_in_parts_are_kept_as_those_that_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision, in_files: bool
) -> None:
    make_silo_folder(tmp_path, records=400)
    file, schema = tmp_path / "records.csv", tmp_path / "schema.toml"
    lines = file.read_text().splitlines()
    cells = lines[300].split(",")
    file.write_text("\n".join([*lines[:300], ",".join(["", "7", *cells[2:]]), *lines[301:]]) + "\n")
    text = schema.read_text().replace("upper = 1.0", "upper = 1.0\nmissing = 0.5")
    schema.write_text(text)  # an empty cell, and one beyond its bounds, in a late part
    at_once = load_data_set(file, load_columns(schema), Keeping(precision))
    monkeypatch.setattr(csv_files, "BLOCK", 1000)
    in_parts = load_data_set(file, load_columns(schema), Keeping(precision, tmp_path if in_files else None))
    one, other = (data.encoded(load_schema(schema, "a")) for data in (at_once, in_parts))
    assert one.features.dtype == other.features.dtype == precision.dtype
    assert one.features.tolist() == other.features.tolist()
    assert unclamped_targets(one).tolist() == unclamped_targets(other).tolist()
    assert at_once.marks.words.tolist() == in_parts.marks.words.tolist()
    assert other.cells is not None
    empty = other.cells["a"].empty
    assert empty is not None
    assert np.flatnonzero(empty).tolist() == [299]
    assert np.flatnonzero(other.cells["b"].unclamped > 1).tolist() == [299]
