"""A table in parts, held by worker processes: the bytes of one machine, also if one of them dies half way."""

import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import LocalCluster

from ringfence.errors import RecordsError
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, Plan, RoundRequest, Statistics, load_columns, load_schema
from ringfence.protocol.plan.plan import task
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.mechanism import release
from ringfence.silo.gate.sampling import draw
from ringfence.silo.records import divided as parts
from ringfence.silo.records.dask_workers import DaskWorkers
from ringfence.silo.records.dataset import DataSet, load_data_set
from ringfence.silo.records.divided import DividedDataSet, load_divided
from ringfence.silo.records.records import Records
from tests.silo.agents import make_silo_folder

RECORDS = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes and their scheduler."""
    settings: Any = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**settings) as made:  # type: ignore[no-untyped-call]
        yield made


class Table:
    """One table, as one file and in three parts of unequal length."""

    def __init__(self, folder: Path) -> None:
        self.silo = make_silo_folder(folder, records=RECORDS)
        self.file, self.schema, self.parts = folder / "records.csv", folder / "schema.toml", folder / "parts"
        head, *rows = self.file.read_text().splitlines()
        self.parts.mkdir()
        for name, some in (("1.csv", rows[:10]), ("2.csv", rows[10:250]), ("3.csv", rows[250:])):
            (self.parts / name).write_text("\n".join([head, *some]) + "\n")

    def whole(self) -> DataSet:
        return load_data_set(self.file, load_columns(self.schema))

    def plans(self) -> list[Plan]:
        """A survey and training along axes, gradients of drawn batches with an evaluation, and statistics."""
        schema, members = load_schema(self.schema, "ill"), [Member("clinic", RECORDS, 1.0, 1e-6)]
        drawn = PlanRequest(rounds=3, survey=False, sampling="poisson", batch=100, held_out=0.25)
        counts = Statistics(columns=("a", "ill"), cross=(("a", "ill"),))
        return [
            make_plan(schema, members, PlanRequest(rounds=3)),
            make_plan(schema, members, drawn),
            make_query_plan(schema, members, counts),
        ]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.fixture
def workers(cluster: Any) -> Iterator[DaskWorkers]:
    made = DaskWorkers(cluster.scheduler_address, seconds=120.0)
    yield made
    made.close()


def require_same_bytes(plan: Plan, one: DividedDataSet, other: DataSet) -> None:
    """Release every round from both data sets with the same draws."""
    random, terms = np.random.default_rng(1), plan.silos[0]
    for round in range(plan.rounds):
        work = task(plan, terms, round, round)
        draws, argument = draw(plan, terms, work), random.uniform(0.1, 0.9, work.stage.query.argument_length(plan))
        found = {release(plan, work, argument, data.encoded(plan.data), draws).tobytes() for data in (one, other)}
        assert len(found) == 1


def test_with_the_same_draws_every_round_s_bytes_are_those_of_one_machine(table: Table, workers: DaskWorkers) -> None:
    divided, whole = load_divided(table.parts, table.schema, workers), table.whole()
    one, other = (data.marks.fingerprint(b"k" * 32) for data in (divided, whole))
    assert (one.ordered, one.rows) == (other.ordered, other.rows)
    for plan in table.plans():
        require_same_bytes(plan, divided, whole)


def dying_once(flag: str, some: Records, chosen: Any) -> Any:
    """Kill the worker in the middle of the largest part, the first time."""
    if len(some) == 240 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.array([int(chosen.sum()), len(some)], dtype=object)


def test_a_worker_that_dies_half_way_changes_nothing(table: Table, workers: DaskWorkers, tmp_path: Path) -> None:
    divided = load_divided(table.parts, table.schema, workers)
    plan = table.plans()[0]
    add_up = partial(dying_once, str(tmp_path / "died"))
    total = divided.encoded(plan.data).total(add_up, np.ones(RECORDS), 1)
    assert (tmp_path / "died").exists()
    assert total.tolist() == [RECORDS, RECORDS]
    require_same_bytes(plan, divided, table.whole())


def rewrite(path: Path, row: int) -> None:
    """Put other numbers in the place of a row's, as many rows as there were."""
    lines = path.read_text().splitlines()
    lines[row] = "0.125,-0.125,0.625," + lines[row].rsplit(",", 1)[1]
    path.write_text("\n".join(lines) + "\n")


def test_an_agent_that_begins_anew_has_the_files_as_they_are_and_not_as_workers_knew_them(
    table: Table, workers: DaskWorkers
) -> None:
    """Workers outlive agents: a record that was corrected, or taken out, must not live on in them."""
    before, plan, key = load_divided(table.parts, table.schema, workers), table.plans()[0], b"k" * 32
    for path, row in ((table.parts / "2.csv", 7), (table.file, 17)):
        rewrite(path, row)
    now, whole = load_divided(table.parts, table.schema, workers), table.whole()
    assert now.marks.fingerprint(key).ordered == whole.marks.fingerprint(key).ordered
    assert now.marks.fingerprint(key).ordered != before.marks.fingerprint(key).ordered
    require_same_bytes(plan, now, whole)


class Counting:
    """Workers that are counted in how often they are asked."""

    def __init__(self, workers: DaskWorkers) -> None:
        self._workers, self.asked = workers, 0

    def each(self, function: Any, jobs: Any) -> Any:
        self.asked += 1
        return self._workers.each(function, jobs)


def test_no_worker_is_asked_whether_a_plan_is_about_its_records(table: Table, workers: DaskWorkers) -> None:
    """Schemas alone decide: what the gate answers hangs on no record."""
    counting, (plan, *others) = Counting(workers), table.plans()
    divided = load_divided(table.parts, table.schema, counting)
    before = counting.asked
    assert [divided.difference(plan.data) for _ in range(3)] == ["", "", ""]
    assert counting.asked == before
    wider = plan.data.model_copy(update={"intercept": 2.0})
    assert divided.difference(wider) != ""
    assert divided.difference(others[0].data) == ""


def counted(some: Records, chosen: Any) -> Any:
    return np.array([int(chosen.sum()), len(some)], dtype=object)


@pytest.mark.parametrize("what", ["schema.toml", "2.csv"])
def test_a_schema_or_a_part_that_a_worker_finds_changed_is_not_added_up(
    table: Table, workers: DaskWorkers, what: str
) -> None:
    divided, plan = load_divided(table.parts, table.schema, workers), table.plans()[0]
    assert divided.difference(plan.data) == ""
    if what == "schema.toml":
        table.schema.write_text(table.schema.read_text().replace("upper = 1.0", "upper = 3.0", 1))
    else:
        head, first, *rows = (table.parts / what).read_text().splitlines()
        first = ",".join(["0.5", *first.split(",")[1:]])
        (table.parts / what).write_text("\n".join([head, first, *rows]) + "\n")  # as many rows as before
    workers._client.run(parts._cached_part.cache_clear)  # as a worker that has just begun
    with pytest.raises(RecordsError, match=rf"{re.escape(what)} has changed since the agent was started"):
        divided.encoded(plan.data).total(counted, np.ones(RECORDS), 1)


def test_gate_and_ledger_stay_with_the_agent(table: Table, workers: DaskWorkers) -> None:
    settings = table.silo.path / "silo.toml"
    settings.write_text(settings.read_text().replace("records.csv", "parts") + f'workers = "{address(workers)}"\n')
    plan, folder = table.plans()[0], SiloFolder.open(table.silo.path)
    with folder.ledger() as ledger:
        gate = Gate(folder.current_records(ledger), ledger, folder.key())
        gate.approve(plan)
        argument = np.full(plan.stages[0].query.argument_length(plan), 0.5)
        argument[:2] = [-1.0, 1.0]
        request = RoundRequest.at(plan.digest(), 0, argument)
        first, again = gate.answer(request), gate.answer(request)
        assert isinstance(first, NoisyUpdate)
        assert first.to_bytes() == again.to_bytes()
        assert [entry.kind for entry in ledger.entries()].count("charged") == 1


def address(workers: DaskWorkers) -> str:
    return str(workers._client.scheduler.address)


def test_sums_without_noise_go_over_no_open_network() -> None:
    with pytest.raises(RecordsError, match="must begin with tls://"):
        DaskWorkers("tcp://10.0.0.7:8786")


def test_parts_that_are_missing_damaged_or_about_persons_are_told_of_in_a_sentence(
    table: Table, workers: DaskWorkers, tmp_path: Path
) -> None:
    with pytest.raises(RecordsError, match="must be a folder that holds the parts of a table"):
        load_divided(tmp_path / "nothing", table.schema, workers)
    (table.parts / "2.csv").write_text("a,b,c,ill\n0.5,0.5,secret,no\n")
    with pytest.raises(RecordsError, match=r"2\.csv, row 2, column 'c': this is not a finite number"):
        load_divided(table.parts, table.schema, workers)
    table.schema.write_text('person = "who"\n' + table.schema.read_text())
    with pytest.raises(RecordsError, match="does not support persons yet"):
        load_divided(table.parts, table.schema, workers)


def test_without_a_scheduler_the_agent_says_so() -> None:
    with pytest.raises(RecordsError, match="Dask's scheduler does not answer"):
        DaskWorkers("tcp://127.0.0.1:1", seconds=0.5)


def test_a_weight_beyond_its_bound_is_found_by_a_worker_and_told_to_the_operator_alone(
    table: Table, workers: DaskWorkers
) -> None:
    columns = table.schema.read_text().replace("[columns.c]", "[columns.counts]").replace("lower = -1.0", "lower = 0.0")
    table.schema.write_text(f'weight = "counts"\n{columns}')
    for part, weight in zip(sorted(table.parts.iterdir()), (1, 1, 99), strict=True):
        part.write_text(f"a,b,counts,ill\n0.5,0.5,1,no\n0.5,0.5,{weight},yes\n")
    divided = load_divided(table.parts, table.schema, workers)
    schema = load_schema(table.schema, "ill")
    [told] = divided.clamped_parts(schema, schema.target)
    assert told.startswith("3.csv: Row 3, column 'counts': this weight")
    assert divided.difference(schema) == ""  # what the gate goes by
