"""One operator's page for all tests of a file."""

from collections.abc import Iterator

import pytest

from ringfence.silo.folder import SiloFolder
from ringfence.silo.operator import decisions
from tests.silo.agents import make_silo_folder
from tests.silo.operator.desk import Desk, desk_of, plans


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A page that all tests use: starting one takes seconds."""
    with desk_of(make_silo_folder(tmp_path_factory.mktemp("silo"))) as opened:
        yield opened


@pytest.fixture
def desk(shared: Desk) -> Desk:
    """The page, when no plan waits or runs."""
    for plan, state in plans(shared.silo_folder).items():
        if state == "running":
            decisions.end_plan(shared.silo_folder, plan, revoke=False)
    for path in (shared.silo_folder.path / "plans").glob("*"):
        path.unlink()
    return shared


@pytest.fixture
def silo_folder(desk: Desk) -> SiloFolder:
    return desk.silo_folder
