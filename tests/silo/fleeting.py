"""Files that are gone, emptied or renamed at once, in all ways that a watcher must see: FOLDER"""

import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path

CONTENTS = [b"removed with its folder", b"renamed", b"emptied", b"cut short", b"a row", b"of a thread"]


def main(folder: Path) -> None:
    """Let each content be in a file for a moment."""
    removed, renamed, emptied, cut, row, threaded = CONTENTS
    with tempfile.TemporaryDirectory(dir=folder) as inner:
        (Path(inner) / "deep").mkdir()
        (Path(inner) / "deep" / "file").write_bytes(removed)
    (folder / "one").write_bytes(renamed)
    (folder / "two").write_bytes(b"")
    os.replace(folder / "two", folder / "one")
    (folder / "one").write_bytes(emptied)
    (folder / "one").write_bytes(b"")
    (folder / "one").write_bytes(cut)
    os.truncate(folder / "one", 0)
    connection = sqlite3.connect(folder / "database", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE rows (content TEXT)")
    connection.execute("INSERT INTO rows VALUES (?)", [row.decode()])
    connection.execute("DELETE FROM rows")
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    threads = [threading.Thread(target=_come_and_go, args=(folder, number, threaded)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shutil.rmtree(folder)


def _come_and_go(folder: Path, number: int, content: bytes) -> None:
    for turn in range(20):
        inner = folder / f"{number}-{turn}"
        inner.mkdir()
        (inner / "file").write_bytes(content + f" {number}-{turn}".encode())
        shutil.rmtree(inner)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
