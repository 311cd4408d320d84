"""An approved plan, and a silo's folder."""

from pathlib import Path

import pytest

from ringfence.protocol import Plan
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from tests.silo.agents import make_silo_folder
from tests.support import Drawn, MakePlan, approved_by, watch_draws


@pytest.fixture
def plan(gate: Gate, plan_of: MakePlan) -> Plan:
    """A plan of five rounds that the gate has approved."""
    return approved_by(gate, plan_of())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Every draw of a gate, with the task it was for, as they come."""
    return watch_draws(monkeypatch)


@pytest.fixture
def silo_folder(tmp_path: Path) -> SiloFolder:
    """Silo 'clinic' with forty records and a budget of 2."""
    return make_silo_folder(tmp_path)
