"""Compiled programs are kept between processes: compiling one takes longer than most runs of it.

Whoever can write into the folder decides what later processes execute. So it belongs to one user alone.
"""

import os
import stat
import warnings
from pathlib import Path
from typing import Any

import jax

from ringfence.storage.cache import cache_folder
from ringfence.storage.files import make_folder


def keep_compiled_programs() -> None:
    """Have JAX keep compiled programs in the user's cache, unless it was told of a folder, or this one is not safe."""
    config: Any = jax.config  # its options have no types
    if config.jax_compilation_cache_dir is not None:
        return
    folder = cache_folder() / "compiled"
    try:
        make_folder(folder, 0o700)
    except OSError:
        return  # without a place for them, programs are compiled in every process
    if not all(map(_is_own, (folder, folder.parent))):
        warnings.warn(
            f"Compiled programs are not kept: other users can write to {folder}, or own it. Remove it, or set "
            "XDG_CACHE_HOME to a folder of your own.",
            stacklevel=2,
        )
        return
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _is_own(folder: Path) -> bool:
    """Return whether a folder for compiled programs belongs to this user, and nobody else can write to it."""
    found = folder.lstat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not writable
