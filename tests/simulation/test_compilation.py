"""Compiled programs are kept for later processes of the same user, where nobody else can replace them."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from ringfence.simulation.compilation import keep_compiled_programs

CONFIG: Any = jax.config

COMPILE = """
import jax
from ringfence.simulation import local

found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
jax.jit(lambda x: 3 * x + 1)(2.0)
print(found.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Begin with an empty cache, and a JAX that was told of none."""
    before = CONFIG.jax_compilation_cache_dir
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    CONFIG.update("jax_compilation_cache_dir", None)
    yield tmp_path / "ringfence" / "compiled"
    CONFIG.update("jax_compilation_cache_dir", before)


def test_a_second_process_does_not_compile_again_and_no_other_user_can_read_or_write_the_folder(cache: Path) -> None:
    def hits() -> int:
        return int(subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=True).stdout)

    assert hits() == 0
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    kept = sorted(cache.iterdir())
    assert kept
    assert hits() == len(kept)
    assert sorted(cache.iterdir()) == kept


@pytest.mark.parametrize("above", [False, True], ids=["the folder", "the one above"])
def test_where_others_can_write_no_program_is_kept(cache: Path, *, above: bool) -> None:
    cache.mkdir(parents=True)
    (cache.parent if above else cache).chmod(0o777)
    with pytest.warns(UserWarning, match="not kept: other users can write to"):
        keep_compiled_programs()
    assert CONFIG.jax_compilation_cache_dir is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_in_somebody_else_s_folder_no_program_is_kept(cache: Path) -> None:
    cache.mkdir(parents=True, mode=0o700)
    os.chown(cache, 12345, 12345)
    with pytest.warns(UserWarning, match="or own it"):
        keep_compiled_programs()
    assert CONFIG.jax_compilation_cache_dir is None


def test_a_link_to_a_folder_is_not_followed(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="not kept"):
        keep_compiled_programs()


def test_a_folder_that_jax_was_told_of_stays(cache: Path, tmp_path: Path) -> None:
    CONFIG.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    keep_compiled_programs()
    assert CONFIG.jax_compilation_cache_dir == str(tmp_path / "own")
    assert not cache.exists()
