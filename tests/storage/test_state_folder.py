"""A user's state has one place, which tests and benchmarks can have for themselves."""

import stat
from pathlib import Path

import pytest

from ringfence.storage.files import state_folder


def test_the_state_folder_is_where_xdg_state_home_says_and_closed_to_others(own_state: Path) -> None:
    folder = state_folder()
    assert folder == own_state / "ringfence"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_xdg_state_home_it_lies_in_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "not/absolute"):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        assert state_folder() == tmp_path / ".local" / "state" / "ringfence"
