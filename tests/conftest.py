"""Small real federations: real plans, records, ledgers and gates."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, Schema, parse_schema
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.browser import window  # noqa: F401 (a fixture)
from tests.support import MakePlan

# Generated tests make the same choices on every machine and in every run, unless they are told to try harder
# (`tests.generated`).
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Whatever modules do while they are imported, and fixtures that several of them share, stays away from the user's own
# state and cache.
_STATE = tempfile.TemporaryDirectory(prefix="state-")
os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = _STATE.name

# A shell that runs the tests in the background has them ignore Ctrl-C, and whatever they start inherits that.
# Some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and thousands of tests that stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def module_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the fixtures that a module's tests share a state folder of the module's own."""
    folder = tmp_path_factory.mktemp("module-state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def own_state(module_state: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test, and the processes that it starts, a state folder of its own: it begins as its module's."""
    folder = tmp_path_factory.mktemp("state")
    shutil.copytree(module_state, folder, dirs_exist_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def schema() -> Schema:
    """Three numbers in [-1, 1] and a yes/no target."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    columns = {"a": number, "b": number, "c": number, "ill": {"type": "categorical", "categories": ["no", "yes"]}}
    return parse_schema({"columns": columns}, target="ill")


@pytest.fixture(scope="session")
def records(schema: Schema) -> Records:
    """Forty records of that schema."""
    random = np.random.default_rng(7)
    features = np.concatenate([random.uniform(-1, 1, (40, 3)), np.ones((40, 1))], axis=1)
    return Records(schema, features, np.where(features[:, 0] + features[:, 1] > 0, 1.0, -1.0))


@pytest.fixture
def plan_of(schema: Schema) -> MakePlan:
    """Make a plan for silo 'clinic' of 40 records, without a survey; keywords change it."""

    def make(*, epsilon: float = 1.0, delta: float = 1e-6, rounds: int = 5, **changes: Any) -> Plan:
        members = changes.pop("members", [Member("clinic", 40, epsilon, delta)])
        return make_plan(schema, members, PlanRequest(rounds=rounds, **{"survey": False, **changes}))

    return make


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with a total budget of (2, 1e-6)."""
    with Ledger.create(tmp_path / "clinic.ledger", silo="clinic", budget=Budget(2.0, 1e-6)) as opened:
        yield opened


@pytest.fixture
def gate(records: Records, ledger: Ledger) -> Gate:
    """The gate of silo 'clinic'."""
    return Gate(records, ledger)
