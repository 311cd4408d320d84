"""Every loss, one's own too, trains through silos' agents and `server run`, which are processes of their own."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w

from ringfence.model.model import Model
from ringfence.protocol import Custom, unpack
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.setup import create_folder, make_settings
from tests.deployment.agents import Federation, Silo, finish, server
from tests.every_loss import CASES, COLUMNS, DELTA, EPSILON, Case, write_tables


class Agents(Federation):
    """Two agents for all losses: each holds the whole table, and knows of no target; a plan names that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        schema = folder / "schema.toml"
        schema.write_text(tomli_w.dumps({"columns": COLUMNS}))
        assert set(tomllib.loads(schema.read_text())) == {"columns"}, "roles are the plan's"
        budget = Budget(1000 * EPSILON, DELTA)
        self.silos = {}
        for name, data in write_tables(folder).items():
            settings = make_settings(name=name, data_file=str(data), schema_file=str(schema), port=None)
            self.silos[name] = Silo(create_folder(folder / name, settings, budget, unusual_budget=True))

    def install(self, loss: Custom) -> None:
        """Put the source where every operator puts what may be run."""
        for silo in self.silos.values():
            (silo.silo_folder.path / "losses").mkdir(mode=0o700)
            (silo.silo_folder.path / "losses" / loss.file_name).write_text(loss.source, encoding="utf-8")


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    made = Agents(tmp_path_factory.mktemp("agents"))
    made.install(CASES["custom"].asked)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_trains_through_agents(agents: Agents, tmp_path: Path, case: Case) -> None:
    plan = case.plan()
    agents.write(plan)
    agents.approve(plan)
    finish(server(agents, plan, tmp_path / "run", agents.doors(), "--quorum", "all"))
    case.require_learned(plan, unpack(Model.load(tmp_path / "run" / "model.json").weights))
    for silo in agents.silos.values():
        assert set(silo.released(plan)) == set(range(plan.rounds))
