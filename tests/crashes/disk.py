"""What a folder's files are after a crash: as they were written, or what a power failure leaves of them.

After a kill, all that was written is there. A power failure keeps what was synced: of a file its content, of a folder
its list of names. The rest may be there or not, and a file system may keep the one without the other
(`power_failures`). It writes sectors of 512 bytes, each whole or not at all.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.crashes.stops import Stop

Tree = dict[str, bytes | None]
"""A folder's files by path, with their content; None for a folder."""

_SECTOR = 512


def read_tree(folder: Path) -> Tree:
    """Return what is in a folder."""
    tree: Tree = {}
    for place, folders, files in os.walk(folder):
        start = os.path.relpath(place, folder) + "/"
        start = "" if start == "./" else start
        tree |= {start + name: None for name in folders}
        tree |= {start + name: Path(place, name).read_bytes() for name in files}
    return tree


def write_tree(folder: Path, tree: Tree) -> None:
    """Make the folder hold this and nothing else, closed to others."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir(mode=0o700)
        else:
            (folder / path).touch(mode=0o600)
            (folder / path).write_bytes(content)


@dataclass(eq=False)
class _File:
    """A file or, if its content is None, a folder, whatever its names are."""

    written: bytes | None = b""
    synced: bytes | None = b""
    before: bytes | None = b""
    """The content before the last write."""

    def torn(self) -> bytes | None:
        """Everything but the second half of the last write."""
        changed = self._changed()
        if changed is None or self.written is None or self.before is None:
            return self.written
        first, end = changed
        middle = (first + end) // 2
        if middle < len(self.before):
            middle -= middle % _SECTOR
        return self.written[:middle] + self.before[middle : len(self.before)]

    def overtaken(self) -> bytes | None:
        """What was synced, and the last write: it overtook those before it."""
        changed = self._changed()
        if changed is None or self.written is None or self.synced is None:
            return self.written
        first, end = changed[0] // _SECTOR * _SECTOR, -(-changed[1] // _SECTOR) * _SECTOR
        return self.synced[:first].ljust(first, b"\0") + self.written[first:end] + self.synced[end:]

    def _changed(self) -> tuple[int, int] | None:
        """Where the last write changed the file; None if that was synced, or cut the file off."""
        new, old = self.written, self.before
        if new is None or old is None or new == self.synced or len(new) < len(old):
            return None
        differ = [at for at, (one, other) in enumerate(zip(new, old, strict=False)) if one != other]
        differ += [len(old), len(new) - 1] if len(new) > len(old) else []
        return (differ[0], differ[-1] + 1) if differ else None


class Disk:
    """The files of a folder, followed through a process's calls."""

    def __init__(self, folder: Path) -> None:
        """Begin with the folder as it is, and all of it synced."""
        self._folder = folder
        found = read_tree(folder)
        self._names = {path: _File(content, content, content) for path, content in found.items()}
        self._synced_names = dict(self._names)
        self._begun: Stop | None = None

    def follow(self, stop: Stop | None) -> Tree:
        """Take account of the call before this one, which has been made by now; return the files as they are."""
        begun, self._begun = self._begun, stop
        if begun is not None:
            getattr(self, f"_{begun.does}")(begun)
        tree = read_tree(self._folder)
        assert tree == self._tree(self._names, lambda file: file.written), f"a change before {stop} is no point"
        return tree

    def power_failures(self) -> dict[str, Tree]:
        """Return what a power failure may leave now, by what is lost, if it is not just what was written."""
        as_written, as_synced = (lambda file: file.written), (lambda file: file.synced)
        kept = self._tree(self._names, as_written)
        left = {
            "all that was not synced": self._tree(self._synced_names, as_synced),
            "names that were not synced": self._tree(self._synced_names, as_written),
            "content that was not synced": self._tree(self._names, as_synced),
            "half of the last write": self._tree(self._names, _File.torn),
            "all that was not synced but the last write": self._tree(self._names, _File.overtaken),
        }
        distinct: dict[str, Tree] = {}
        for lost, tree in left.items():
            if tree != kept and tree not in distinct.values():
                distinct[lost] = tree
        return distinct

    @staticmethod
    def _tree(names: dict[str, _File], content: Callable[[_File], bytes | None]) -> Tree:
        """Return the files of these names, without those in folders that have none."""
        tree: Tree = {}
        for path, file in sorted(names.items()):
            above = os.path.dirname(path)
            if not above or above in tree:
                tree[path] = content(file)
        return tree

    def _create(self, stop: Stop) -> None:
        self._names[stop.path] = _File()

    def _mkdir(self, stop: Stop) -> None:
        self._names[stop.path] = _File(None, None, None)

    def _write(self, stop: Stop) -> None:
        file = self._names[stop.path]
        file.before, file.written = file.written, (self._folder / stop.path).read_bytes()

    _truncate = _write

    def _sync(self, stop: Stop) -> None:
        if stop.path != "." and self._names[stop.path].written is not None:
            self._names[stop.path].synced = self._names[stop.path].written
            return
        above = "" if stop.path == "." else stop.path
        others = {path: file for path, file in self._synced_names.items() if os.path.dirname(path) != above}
        self._synced_names = others | {path: f for path, f in self._names.items() if os.path.dirname(path) == above}

    def _rename(self, stop: Stop) -> None:
        self._names[stop.onto] = self._names.pop(stop.path)

    def _link(self, stop: Stop) -> None:
        self._names[stop.onto] = self._names[stop.path]

    def _remove(self, stop: Stop) -> None:
        del self._names[stop.path]
