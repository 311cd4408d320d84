"""Where a user's own state lies: what must outlive any one silo's folder, and must not be copied along with it."""

import os
from pathlib import Path


def state_folder() -> Path:
    """Return this user's folder for Ringfence's state, closed to other users; it is made if it is not there.

    It is `ringfence` in XDG_STATE_HOME, or in `~/.local/state` where that is not set.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    # The specification of XDG: a path that is not absolute is to be ignored.
    home = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    folder = home / "ringfence"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
