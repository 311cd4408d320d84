"""A module that is watched while it runs: python -m tests.silo.watched COPIES FOLDER... -- MODULE ARGUMENT...

Every file that ever appears below the folders is copied to COPIES, also one that is gone a moment later. Nothing here
goes by the clock. Files go away, lose their content or get another name by calls that Python announces before it makes
them (audit events), or at the hands of SQLite, whose every statement and close is announced too; what was announced
waits until all files were looked at. Processes that would run unwatched are not let begin.

Not seen is what is overwritten inside of a file while it is open.
"""

import hashlib
import os
import runpy
import sqlite3
import stat
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HELD = {
    *("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod"),
    *("shutil.rmtree", "shutil.move", "sqlite3.connect"),
}
"""What waits until all files were looked at; so does opening a file to write into it, which may empty it."""

FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system"}

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

FAILED = "failed"
NAMES = "names"


class Watcher:
    """Copies each content of each file once, under its hash; the list of names says what files there were."""

    def __init__(self, copies: Path, folders: Sequence[Path]) -> None:
        self._copies, self._folders = copies, folders
        self._known: set[tuple[str, str]] = set()
        self._one_at_a_time = threading.RLock()
        self._busy = threading.local()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Look at everything before it happens."""
        if event in FORBIDDEN:
            raise RuntimeError(f"{event}: nobody would watch that process")
        if event in HELD or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
            self.look()

    def look(self) -> None:
        """Copy all that is new."""
        if getattr(self._busy, "looking", False):  # what we write ourselves
            return
        self._busy.looking = True
        try:
            with self._one_at_a_time:
                for folder in self._folders:
                    self._look_below(folder)
        except BaseException:  # SQLite drops what is raised in its callbacks, and a watcher must not fail unseen
            (self._copies / FAILED).write_text(traceback.format_exc())
            raise
        finally:
            self._busy.looking = False

    def _look_below(self, folder: Path) -> None:
        for place, _, names in os.walk(folder):
            for name in names:
                path = Path(place) / name
                try:
                    content = path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
                except FileNotFoundError:
                    continue  # another thread was let remove it, and looked before
                self.keep(str(path.relative_to(folder)), content)

    def keep(self, name: str, content: bytes) -> None:
        """Copy a content, and write its file's name down."""
        digest = hashlib.sha256(content).hexdigest()
        if (name, digest) in self._known:
            return
        self._known.add((name, digest))
        (self._copies / digest).write_bytes(content)
        with (self._copies / NAMES).open("a") as names:
            names.write(f"{digest} {name}\n")


def watch_sqlite(watcher: Watcher) -> None:
    """Look before every statement, and before a connection is closed, which is when SQLite removes files."""

    class Connection(sqlite3.Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.set_trace_callback(lambda _: watcher.look())

        def close(self) -> None:
            watcher.look()
            super().close()

        def __del__(self) -> None:
            watcher.look()

    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> Any:
        return connect(*arguments, **{"factory": Connection, **options})

    sqlite3.connect = watched


def seen(copies: Path) -> dict[str, list[bytes]]:
    """Return all contents that the files of each name have had."""
    assert not (copies / FAILED).exists(), (copies / FAILED).read_text()
    found: dict[str, list[bytes]] = {}
    for line in (copies / NAMES).read_text().splitlines() if (copies / NAMES).exists() else []:
        digest, _, name = line.partition(" ")
        found.setdefault(name, []).append((copies / digest).read_bytes())
    return found


def main() -> None:
    """Watch the module run, to its end and whatever it raises."""
    places, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    watcher = Watcher(Path(places[0]), [Path(folder) for folder in places[1:]])
    watch_sqlite(watcher)
    sys.addaudithook(watcher.audit)
    sys.argv = command
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    finally:
        watcher.look()


if __name__ == "__main__":
    main()
