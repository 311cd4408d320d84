"""How many small mistakes in the core would the tests notice? python -m tools.mutants [--sample N] [GROUP ...].

Makes every mutant of the core (`operators.py`), runs the tests of `make test` that execute the changed line until one
fails (`worker.py`), and writes the score into docs/audit.md. Those listed in `equivalent.toml`, each with the reason
why no test can tell it from the original, are not tried. Exits with status 1 if fewer than 95 % of the others are
killed.

`.mutants/` keeps which test executes which line, and how mutants fared: one that was killed is tried again once its
file or the file of the test that killed it has changed, and one that survived once any test has. Nothing is changed in
`src`.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from scipy.special import betaincinv

from tools.mutants.operators import Mutant, mutants
from tools.mutants.worker import COMMAND, COPY, IMPORTED, JOBS

ROOT = Path(__file__).parents[2]
SOURCE, MEMORY, PAGE = ROOT / "src" / "ringfence", ROOT / ".mutants", ROOT / "docs" / "audit.md"
GROUPS = {
    "gate": ("silo/gate/gate.py", "silo/gate/limits.py"),
    "sampling": ("silo/gate/sampling.py",),
    "mechanism": ("silo/gate/mechanism.py", "silo/channels/*.py"),
    "ledger": ("silo/ledger/*.py", "storage/chain.py"),
    "account": ("accounting/account.py", "accounting/charges.py", "accounting/events.py"),
    "filters": ("accounting/filters.py",),
    "accountant": (
        "accounting/accountant.py", "accounting/channels/*.py", "accounting/correlation.py", "accounting/pld.py",
        "accounting/profiles.py", "accounting/sampling.py", "accounting/shuffled_sums.py",
    ),
    "exact sums": ("silo/records/exact_sums.py",),
    "samplers": ("silo/noise/*.py",),
    "sections": ("protocol/plan/sections.py",),
    "sealed sums": ("shuffler/shares.py", "shuffler/vector_sum.py"),
    "gradient": ("silo/queries/gradient.py",),
    "persons": ("silo/records/persons.py",),
}  # fmt: skip
TESTS = (
    "accounting", "attacks", "golden", "planning", "protocol", "server", "shuffler", "silo", "storage",
    "estimators/test_one_ledger.py",
)  # fmt: skip
"""Folders and files of tests that reach the core in their own process."""

WORKERS = 2
ENOUGH = 0.95
SECONDS = (3, 15)
"""A mutant survives if the nearest and fastest tests that reach it, of 15 seconds together, do not notice.

All mutants are tried with the first three of these seconds before any is tried with the others.
"""

_SECTION = re.compile(r"(?<=<!-- made by python -m tools.mutants -->\n).*?(?=<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Reach:
    """Which tests execute which lines of the core, how long they take, and what is executed by imports."""

    tests: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant) -> tuple[list[str], bool]:
        """Return the tests to try a mutant with, the most promising first, and whether imports execute it."""
        return self._of(mutant.file, mutant.first_line, mutant.last_line)

    @cache  # noqa: B019 (there is one)
    def _of(self, file: str, first_line: int, last_line: int) -> tuple[list[str], bool]:
        lines = self.tests.get(file, {})
        found = set().union(*(lines.get(line, ()) for line in range(first_line, last_line + 1)))
        imported = IMPORTED in found
        if imported:  # whatever uses the file may use it
            found = found.union(*lines.values())
        files = {name for name in found if "::" not in name} - {IMPORTED, ""}
        found |= {name for name in self.seconds if name.split("::")[0] in files} if files else set()
        ordered = sorted((name for name in found if "::" in name), key=lambda name: self._promise(file, name))
        chosen: list[str] = []
        total = 0.0
        for name in ordered:
            total += self.seconds[name]
            if total > SECONDS[-1] and chosen:
                break
            chosen.append(name)
        return chosen, imported

    def _promise(self, file: str, test: str) -> float:
        parts = zip(file.split("/"), test.split("/")[1:], strict=False)
        return (self.seconds[test] + 0.01) * 4.0 ** -sum(a == b for a, b in parts)


def core(groups: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each group."""
    return {
        group: sorted(
            str(path.relative_to(SOURCE))
            for pattern in GROUPS[group]
            for path in SOURCE.glob(pattern)
            if path.name != "__init__.py"
        )
        for group in groups
    }


def equivalents() -> dict[str, str]:
    """Return the mutants that nothing can tell from the original, with the reason."""
    listed = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))
    return {name: each["reason"] for each in listed["equivalent"] for name in each["mutants"]}


def test_files() -> list[str]:
    """Return the files of tests that `make test` runs and that may reach the core."""
    command = ["make", "--no-print-directory", "--dry-run", "tests"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603
    left_out = re.findall(r"--ignore=(\S+)", told)
    places = [ROOT / "tests" / place for place in TESTS]
    paths = (path for place in places for path in ([place] if place.is_file() else place.rglob("test_*.py")))
    found = (str(path.relative_to(ROOT)) for path in paths)
    return sorted(name for name in found if not name.startswith(tuple(left_out)))


def measured() -> Reach:
    """Return which tests execute which lines; files of tests that changed are run to find out."""
    files = [file for found in core(GROUPS).values() for file in found]
    sources = hashlib.sha256(b"".join((SOURCE / file).read_bytes() for file in files)).hexdigest()
    kept = {name: MEMORY / "reach" / f"{name.replace('/', '.')}.json" for name in (IMPORTED, *test_files())}

    def known(name: str) -> dict[str, Any] | None:
        found = json.loads(kept[name].read_text()) if kept[name].exists() else {}
        return found if found.get("of") == [sources, _digest(name)] else None

    missing = [name for name in test_files() if known(name) is None]
    if missing or known(IMPORTED) is None:
        missing = missing or test_files()[:1]
        print(f"Running {len(missing)} files of tests to see which lines each test executes.", flush=True)  # noqa: T201
        modules = ["ringfence." + file.removesuffix(".py").replace("/", ".") for file in files]
        jobs = [{"measured": True, "files": files, "modules": modules} for _ in range(WORKERS)]
        for result in work(jobs, [missing[place::WORKERS] for place in range(WORKERS)]):
            if result["failed"]:
                sys.exit(f"{result['tests']} fails without any mutant: {result['failed']}.")
            path = kept[result["tests"]]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result | {"of": [sources, _digest(result["tests"])]}))
    lines: dict[str, dict[int, set[str]]] = {}
    seconds: dict[str, float] = {}
    for name in kept:
        found = known(name)
        if found is None:
            continue  # it has no test
        seconds |= found["seconds"]
        for file, by_line in found["lines"].items():
            for line, contexts in by_line.items():
                lines.setdefault(file, {}).setdefault(int(line), set()).update(contexts)
    return Reach(lines, seconds)


def tried(chosen: Sequence[Mutant]) -> dict[str, str | None]:
    """Return, by name, what killed each mutant: a test, or the way the process ended; None if it survived."""
    reach = measured()
    everything = hashlib.sha256("".join(map(_digest, test_files())).encode()).hexdigest()
    memory = MEMORY / "tried.jsonl"
    MEMORY.mkdir(exist_ok=True)
    before = [json.loads(line) for line in memory.read_text().splitlines()] if memory.exists() else []
    outcome: dict[str, str | None] = {}
    passed: dict[str, int] = {}  # by how many tests, the most promising ones, if by all
    for each in before:
        name, by = each["name"], each["by"]
        if each["of"] == [_digest(f"src/ringfence/{name.split(' ')[0]}"), _evidence(by, everything)]:
            outcome[name], passed[name] = by, each["passed"]
    with memory.open("a") as written, suppress(KeyboardInterrupt):  # the score is then of those tried so far
        for most in SECONDS:
            waiting = [mutant for mutant in chosen if outcome.get(mutant.name) is None]
            outcome |= {mutant.name: None for mutant in waiting if not reach.of(mutant)[0]}  # no test reaches it
            jobs = [job for mutant in waiting if (job := _job(mutant, reach, most, passed))["tests"]]
            print(f"Trying {len(jobs)} mutants with {most} seconds of tests.", flush=True)  # noqa: T201
            shares = [jobs[place::WORKERS] for place in range(WORKERS)]
            files = [sorted({test.split("::")[0] for job in share for test in job["tests"]}) for share in shares]
            tests = {job["name"]: len(job["tests"]) for job in jobs}
            for result in work([{"trials": share} for share in shares], files):
                name, by = result["name"], result["by"]
                outcome[name], passed[name] = by, passed.get(name, 0) + tests[name]
                of = [_digest(f"src/ringfence/{name.split(' ')[0]}"), _evidence(by, everything)]
                written.write(json.dumps({"name": name, "by": by, "passed": passed[name], "of": of}) + "\n")
                written.flush()
                if by is None and most == SECONDS[-1]:
                    print(f"survived: {name}", flush=True)  # noqa: T201
    return {mutant.name: outcome[mutant.name] for mutant in chosen if mutant.name in outcome}


def _job(mutant: Mutant, reach: Reach, most: float, passed: dict[str, int]) -> dict[str, Any]:
    """Return what a worker needs to try a mutant with the tests, of so many seconds, that it has not passed yet."""
    tests, imported = reach.of(mutant)
    ends = accumulate(reach.seconds[name] for name in tests)
    first = passed.get(mutant.name, 0)
    chosen = [name for number, (name, end) in enumerate(zip(tests, ends, strict=True)) if end <= most or not number]
    seconds = {name: reach.seconds[name] for name in chosen[first:]}
    return {"name": mutant.name, "mutant": asdict(mutant), "tests": seconds, "imported": imported}


def _evidence(by: str | None, everything: str) -> str:
    """Return the digest of what must not change for an outcome to be believed."""
    file = (by or "").split("::")[0].removeprefix("ERROR ")
    return _digest(file) if (ROOT / file).is_file() else everything


@cache
def _digest(file: str) -> str:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()[:16]


def work(jobs: Sequence[dict[str, Any]], tests: Sequence[Sequence[str]]) -> Iterable[dict[str, Any]]:
    """Have each worker do its jobs with its files of tests, in its own copy of `src`; return results as they come."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        running, done = [], []
        for number, (job, files) in enumerate(zip(jobs, tests, strict=True)):
            if not files:
                continue
            own = Path(folder) / str(number)
            shutil.copytree(ROOT / "src", own / "src")
            (own / "jobs").write_text(json.dumps(job), encoding="utf-8")
            (own / "jobs.done").touch()
            environment = os.environ | {
                JOBS: str(own / "jobs"), COPY: str(own / "src"), "PYTHONPATH": str(own / "src"),
                "OPENBLAS_NUM_THREADS": "1", "TMPDIR": folder,
            }  # fmt: skip
            command = [*COMMAND, "-p", "tools.mutants.worker"]
            with (own / "output").open("w") as output:
                running.append(
                    subprocess.Popen(  # noqa: S603
                        [*command, *files], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
                    )
                )
            done.append((own / "jobs.done").open("rb"))
        try:
            while True:
                ended = all(process.poll() is not None for process in running)
                for lines in done:
                    while (line := lines.readline()).endswith(b"\n"):
                        yield json.loads(line)
                    lines.seek(-len(line), os.SEEK_CUR)  # the rest of it is still being written
                if ended:
                    break
                _wait(running)
        finally:
            for process, lines in zip(running, done, strict=True):
                process.terminate()
                process.wait()
                lines.close()
        for number, process in enumerate(running):
            if process.returncode:
                print((Path(folder) / str(number) / "output").read_text()[-3000:])  # noqa: T201
                sys.exit(f"A worker ended with status {process.returncode}.")


def _wait(running: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Wait a moment, or until a worker has ended."""
    for process in running:
        if process.poll() is None:
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                return


def interval(killed: int, of: int) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) 95 % interval of a share."""
    low = float(betaincinv(killed, of - killed + 1, 0.025)) if killed else 0.0
    high = float(betaincinv(killed + 1, of - killed, 0.975)) if killed < of else 1.0
    return low, high


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants, print and write the scores, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all of them if none is given"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="as many mutants of each group, chosen by a hash")
    parser.add_argument("--seed", type=int, default=0, help="another one chooses another sample")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has those in the background ignore it
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}: choose from {', '.join(GROUPS)}")
    listed = equivalents()
    made = {
        group: [mutant for file in files for mutant in mutants(file, (SOURCE / file).read_bytes())]
        for group, files in core(options.groups or GROUPS).items()
    }
    if not options.groups and (stale := listed.keys() - {each.name for found in made.values() for each in found}):
        sys.exit("equivalent.toml lists mutants that no longer exist:\n" + "\n".join(sorted(stale)))
    sampled = {group: _sample(found, options.sample, options.seed) for group, found in made.items()}
    chosen = [each for found in sampled.values() for each in found if each.name not in listed]
    outcome = tried(_sample(chosen, None, options.seed))  # some of each group first
    rows, survivors = [], []
    for group, found in sampled.items():
        others = [each.name for each in found if each.name in outcome]
        left = [name for name in others if outcome[name] is None]
        survivors += left
        equal = sum(each.name in listed for each in made[group])
        rows.append((group, len(made[group]), equal, len(others), len(others) - len(left), len(left)))
    rows.append(("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))))  # type: ignore[arg-type]
    table = "\n".join(_table(rows))
    print(table, *(f"survived: {name}" for name in survivors), sep="\n")  # noqa: T201
    if not options.groups:
        text = PAGE.read_text(encoding="utf-8")
        _, total, equal, of, *_ = rows[-1]
        said = "All mutants" if of == total - equal else f"A random sample, in the order of seed {options.seed},"
        said += f" of the core at commit {_commit()}."
        PAGE.write_text(_SECTION.sub(lambda _: f"\n{said}\n\n{table}\n\n", text), encoding="utf-8")
    _, _, _, _, killed, survived = rows[-1]
    return 0 if killed >= ENOUGH * (killed + survived) else 1


def _commit() -> str:
    """Return the last commit that changed the source."""
    command = ["git", "log", "-1", "--format=%h", "--", "src"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def _sample(found: Sequence[Mutant], size: int | None, seed: int) -> list[Mutant]:
    """Return that many mutants, the same ones every time, also if others come or go."""
    return sorted(found, key=lambda each: hashlib.sha256(f"{seed} {each.name}".encode()).digest())[:size]


def _table(rows: Iterable[tuple[str, int, int, int, int, int]]) -> Iterable[str]:
    yield "| part of the core | mutants | equivalent | tried | killed | survived | score |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    sizes = shares = 0.0
    for group, total, equal, of, killed, survived in rows:
        score = f"{killed / of:.1%}" if of else "–"
        if of and of < total - equal and group != "all":
            low, high = interval(killed, of)
            score += f" ({low:.0%} to {high:.0%})"
        elif group == "all" and sizes:  # the groups' samples are as large as each other, and the groups are not
            score = f"{shares / sizes:.1%}"
        sizes, shares = sizes + (total - equal) * bool(of), shares + (total - equal) * killed / max(of, 1)
        yield f"| {group} | {total:,} | {equal} | {of:,} | {killed:,} | {survived} | {score} |"


if __name__ == "__main__":
    sys.exit(main())
