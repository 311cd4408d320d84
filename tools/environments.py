"""`.ci/environments`: the wheel in environments as users have them, and the first steps in each (`first_steps.py`).

Newest versions: bare, with every Python at hand, and each extra alone. Lowest versions that `pyproject.toml` allows:
bare and each extra alone. A new extra fails until it has first steps. uv makes an environment in seconds, since all
share one cache.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.first_steps import OF_EXTRA

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NOT_TRIED = {"all", "comparison", "docs", "release", "test"}
"""Extras that only join others, take gigabytes, or are for developers."""

UNWANTED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "RINGFENCE_DATA", "VIRTUAL_ENV")
AT_ONCE = 3


@dataclass(frozen=True)
class Environment:
    """What is installed, with which Python, in the newest or in the lowest versions."""

    extra: str
    python: str
    lowest: bool = False

    @property
    def depth(self) -> list[str]:
        """Return how much is tried: every option where the README sends newcomers, little that others try as well."""
        if self.extra == "bare":
            return [] if self.python == PYTHONS[0] else ["brief"]
        return ["brief"] if self.lowest else ["options"] if self.extra == "estimators" else []

    def __str__(self) -> str:
        """Return a name for people, and for a folder."""
        return f"{self.extra}, {'lowest' if self.lowest else 'newest'} versions, Python {self.python}"


def python_of(version: str) -> Path | None:
    """Return a Python of this minor version: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        if found is not None and _works(Path(found)):
            return Path(found)
    return None


def _works(python: Path) -> bool:
    """Tell whether a Python runs at all: a shim of pyenv may not."""
    return subprocess.run([python, "-c", "import sqlite3"], capture_output=True, check=False).returncode == 0  # noqa: S603


def environments(pythons: list[str]) -> Iterator[Environment]:
    """Yield all environments to try, the longest first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = set(tomllib.load(file)["project"]["optional-dependencies"])
    if wrong := (declared - NOT_TRIED) ^ (set(OF_EXTRA) - {"bare"}):
        raise SystemExit(f"pyproject.toml and tools/first_steps.py disagree about extras: {', '.join(sorted(wrong))}.")
    extras = sorted(OF_EXTRA, key=lambda extra: extra not in ("deployment", "demo", "estimators", "research"))
    for extra in extras:
        for lowest in (False, True):
            yield Environment(extra, pythons[0], lowest)
    for python in pythons[1:]:
        yield Environment("bare", python)


def run(environment: Environment, wheel: Path, room: Path, python: Path) -> tuple[int, str]:
    """Make an environment and take its first steps; return a status and what was printed."""
    folder, work = room / str(environment).replace(", ", "-").replace(" ", "-"), room / f"work of {environment}"
    work.mkdir()
    settings = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    settings |= {"XDG_STATE_HOME": str(work / ".state"), "OPENBLAS_NUM_THREADS": "1"}
    uv, inner = Path(sys.executable).with_name("uv"), folder / "bin" / "python"
    wanted = str(wheel) if environment.extra == "bare" else f"ringfence[{environment.extra}] @ {wheel.as_uri()}"
    resolution = "lowest-direct" if environment.lowest else "highest"
    commands: tuple[list[str | Path], ...] = (
        [uv, "venv", "--quiet", "--python", python, folder],
        [uv, "pip", "install", "--quiet", "--python", inner, "--resolution", resolution, wanted],
        [uv, "pip", "check", "--quiet", "--python", inner],
        [folder / "bin" / "ringfence", "--version"],
        [inner, "-I", ROOT / "tools" / "first_steps.py", environment.extra, *environment.depth],
    )
    printed = ""
    for command in commands:
        done = subprocess.run(  # noqa: S603 (no shell)
            command, cwd=work, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        printed += done.stdout
        if done.returncode:
            break
    shutil.rmtree(folder, ignore_errors=True)
    return done.returncode, printed


def main(wheel: Path) -> int:
    """Try all environments, a few at once; return 1 if any fails."""
    found = {version: python for version in PYTHONS if (python := python_of(version))}
    if missing := set(PYTHONS) - set(found):
        print(f"Python {', '.join(sorted(missing))} is not here: the wheel was not tried with it.")  # noqa: T201
    failed, began = [], time.monotonic()
    with tempfile.TemporaryDirectory() as room, ThreadPoolExecutor(AT_ONCE) as pool:
        tried = list(environments(list(found)))
        for environment, (status, printed) in zip(
            tried, pool.map(lambda each: run(each, wheel, Path(room), found[each.python]), tried), strict=True
        ):
            failed += [environment] if status else []
            print(f"{environment}: {printed if status else printed.splitlines()[-1]}", flush=True)  # noqa: T201
    print(f"{len(tried)} environments, {len(failed)} failed, {time.monotonic() - began:.0f} s")  # noqa: T201
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
