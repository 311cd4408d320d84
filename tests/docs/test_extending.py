"""A reader who follows `docs/extending.md` gets what it promises, in no more files than it says."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of

PAGE = "docs/extending.md"


@dataclass
class Walk:
    """What one section of the page has its reader write, and how it checks that."""

    files: dict[str, str] = field(default_factory=dict)
    edits: dict[str, str] = field(default_factory=dict)
    check: str | None = None

    def follow(self, tree: Path) -> None:
        """Write the files, and make the edits, in a copy of the source."""
        shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for path, content in self.files.items():
            assert not (tree / path).exists(), f"{path} is called new, but exists"
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(content)
        for path, change in self.edits.items():
            (tree / path).write_text(edited((tree / path).read_text(), change))


def edited(content: str, change: str) -> str:
    """Return the file with a change made: lines after `-` are replaced by the lines after `+` that follow them.

    Added lines that replace none go before the first import of the file's own package, where imports stand.
    """
    for removed, added in re.findall(r"((?:^-.*\n)*)((?:^\+.*\n)+)", change, re.MULTILINE):
        old = re.sub(r"^-", "", removed, flags=re.MULTILINE)
        new = re.sub(r"^\+", "", added, flags=re.MULTILINE)
        if not old:
            old = re.search(r"^from ringfence.*\n", content, re.MULTILINE).group()  # type: ignore[union-attr]
            new = new + old
        assert content.count(old) == 1, f"the page replaces what does not stand there once: {old!r}"
        content = content.replace(old, new)
    return content


def walks() -> dict[str, Walk]:
    """Return the page's walks by the heading that they stand under."""
    headings = [(m.start(), m.group(1)) for m in re.finditer(r"^## (.*?)(?::.*)?$", _page(), re.MULTILINE)]
    found: dict[str, Walk] = {}
    for block in blocks_of(PAGE):
        offset = sum(len(line) for line in _page().splitlines(keepends=True)[: block.line - 1])
        heading = [name for start, name in headings if start <= offset][-1] if headings[0][0] <= offset else ""
        walk = found.setdefault(heading, Walk())
        if "file" in block.asked:
            walk.files[block.asked["file"]] = block.content
        elif "edit" in block.asked:
            walk.edits[block.asked["edit"]] = block.content
        elif "check" in block.asked:
            walk.check = block.content
    return {name: walk for name, walk in found.items() if walk.files}


def _page() -> str:
    return (ROOT / PAGE).read_text()


def _run(command: list[str], tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    subprocess.run([sys.executable, "-m", "ringfence", "example", "example"], cwd=tree, env=environment, check=True)
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("what", "files", "new"), [("A query", 5, 3), ("A loss", 2, 1), ("An algorithm", 3, 1)])
def test_the_walk_takes_no_more_files_than_the_page_promises(what: str, files: int, new: int) -> None:
    walk = walks()[what]
    assert (len(walk.files) + len(walk.edits), len(walk.files)) == (files, new)


def test_a_query_that_follows_the_page_is_asked_charged_and_answered(tmp_path: Path) -> None:
    walks()["A query"].follow(tmp_path)
    _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_shares.py"], tmp_path)


@pytest.mark.parametrize("what", ["A loss", "An algorithm"])
def test_what_follows_the_page_trains_through_real_gates(tmp_path: Path, what: str) -> None:
    walk = walks()[what]
    assert walk.check is not None
    walk.follow(tmp_path)
    _run([sys.executable, "-c", walk.check], tmp_path)
