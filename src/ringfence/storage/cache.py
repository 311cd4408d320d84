"""A user's folder for what can be made or downloaded again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder, which may not exist yet: `ringfence` in XDG_CACHE_HOME, or in `~/.cache` without it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of XDG: a path that is not absolute is to be ignored.
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "ringfence"
