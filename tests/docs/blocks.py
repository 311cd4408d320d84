"""The code blocks of a Markdown page, and a folder in which they run one after the other as a reader would run them.

The convention (CONTRIBUTING states it for writers): every fence names its language. `python` and `sh` blocks are run,
in the order of the page, in one folder; a page's Python blocks share their names, its shell blocks the current folder.
A `text` block directly after one that was run is its output. A comment directly above a fence may say more:

    <!-- not run: REASON -->          the block is only checked: its options must exist
    <!-- in: FOLDER -->               run it in this folder, seen from where the page began
    <!-- background: TEXT -->         leave it running while the page lasts, once it has printed TEXT
    <!-- file: PATH -->               a new file of the source tree, and
    <!-- edit: PATH -->               a change of one, in a copy of it, where
    <!-- check: WHAT -->              this is run (`test_extending.py`)
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUN = ("python", "sh")
SHOWN = ("text", "toml", "diff")
SECONDS = 120  # a block that takes longer hangs

_FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<content>.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!-- (?P<word>not run|in|background|file|edit|check): (?P<value>[^\n]*) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it begins, what it says, what the comments above it ask for, what is shown below it."""

    page: str
    line: int
    language: str
    content: str
    asked: dict[str, str]
    output: str | None

    @property
    def place(self) -> str:
        """Name the block for a message."""
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Return why it is not run, if it is not."""
        elsewhere = "it is run in a copy of the source tree" if self.asked.keys() & {"file", "edit", "check"} else None
        return self.asked.get("not run", elsewhere)


def pages() -> list[str]:
    """Return the pages whose blocks are run: the README and all of `docs/` but measured results."""
    return ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def blocks_of(page: str) -> list[Block]:
    """Return the page's blocks in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    blocks = []
    for fence, following in zip_longest(fences, fences[1:]):
        beside = following is not None and not text[fence.end() : following.start()].strip()
        output = following["content"] if following is not None and beside and following["language"] == "text" else None
        line = text.count("\n", 0, fence.start()) + 1
        asked = _asked(text[: fence.start()])
        blocks.append(Block(page, line, fence["language"], fence["content"], asked, output))
    return blocks


def _asked(before: str) -> dict[str, str]:
    asked: dict[str, str] = {}
    while found := _COMMENT.search(before):
        asked[found["word"]] = found["value"]
        before = before[: found.start()]
    return asked


def shape(text: str) -> str:
    """Return the text without what differs from run to run: numbers, digests, dates, and how lines are broken."""
    text = re.sub(r"(?<![\w.])[0-9a-f]{12,}\b", "#", text)  # a digest; what follows a point is a number's, below
    text = re.sub(r"[-+]?\d(?:[\d.:eT+-]|,(?=\d{3}\b))*", "#", text)  # with or without commas in thousands
    return re.sub(r"\s+", "", text)


def missing_pieces(shown: str, printed: str) -> list[str]:
    """Return the pieces of a shown output, between its `[...]`, that do not occur in what was printed, in order."""
    rest, missing = shape(printed), []
    for piece in shown.split("[...]"):
        found = rest.find(shape(piece))
        if found < 0:
            missing.append(piece.strip())
        else:
            rest = rest[found + len(shape(piece)) :]
    return missing


class Reader:
    """Somebody who follows a page in an empty folder, with this environment's `python` and `ringfence` on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.current = folder
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep),
        }
        self._python: subprocess.Popen[str] | None = None
        self._background: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._background:
            os.killpg(process.pid, signal.SIGTERM)
        for process in [*self._background, *filter(None, [self._python])]:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(SECONDS)
            if process.stdout is not None:
                process.stdout.close()

    def run(self, block: Block) -> tuple[int, str]:
        """Run a block; return its status and all that it printed."""
        if "in" in block.asked:
            self.current = self.folder / block.asked["in"]
        if block.language == "python":
            return self._run_python(block)
        if "background" in block.asked:
            return self._start(block)
        return self._run_shell(block)

    def _run_shell(self, block: Block) -> tuple[int, str]:
        left = self.folder / ".left"
        script = f"trap 'pwd > {left}' EXIT\n{block.content}"
        finished = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.current, env=self.environment, text=True, timeout=SECONDS, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.current = Path(left.read_text().strip())
        return finished.returncode, finished.stdout

    def _start(self, block: Block) -> tuple[int, str]:
        log = self.folder / f".line-{block.line}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {block.content.strip()}"],
                cwd=self.current, env=self.environment, text=True, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._background.append(process)
        end = time.monotonic() + SECONDS
        while block.asked["background"] not in log.read_text():
            if process.poll() is not None or time.monotonic() > end:
                return 1, log.read_text()
            time.sleep(0.05)
        return 0, log.read_text()

    def _run_python(self, block: Block) -> tuple[int, str]:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("notebook.py"))],
                cwd=self.current, env=self.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        child = self._python
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("the notebook has no pipes")
        child.stdin.write(json.dumps({"code": block.content, "folder": str(self.current)}) + "\n")
        child.stdin.flush()
        answer: dict[str, Any] = json.loads(child.stdout.readline())
        return answer["status"], answer["printed"]


def commands_of(script: str) -> Iterator[list[str]]:
    """Return the `ringfence` commands of a shell block, as words."""
    joined = re.sub(r"\\\n\s*", " ", script)
    for found in re.finditer(r"(?:^|-- )ringfence ([^\n|&;#]*)", joined, re.MULTILINE):
        yield found[1].split()
