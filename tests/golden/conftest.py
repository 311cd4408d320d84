"""Copies of golden files: nothing may change the files themselves."""

from functools import cache
from pathlib import Path

import pytest

from tests.golden import reading
from tests.golden.expected import HERE, Copied, Seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Return a version's copy to look at."""
    return cache(lambda version: reading.copy(HERE / version, tmp_path_factory.mktemp(version)))


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    """Return a copy, of all that a version wrote or of some folders of it, to go on with."""

    def copy(version: str, *folders: str) -> Path:
        return reading.copy(HERE / version, tmp_path / version, *({"data", *folders} if folders else ()))

    return copy
