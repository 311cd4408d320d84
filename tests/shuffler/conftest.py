"""A shuffler of a fresh folder, and the silos of its plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shuffler.depositors import Setting, make_shuffler


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mixer"


@pytest.fixture
def setting(folder: Path) -> Iterator[Setting]:
    shuffler, silos = make_shuffler(folder)
    with shuffler:
        yield shuffler, silos
