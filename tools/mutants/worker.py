"""A pytest process that notes which test executes which line of the core, or tries mutants: `-p tools.mutants.worker`.

It imports a copy of `src` and collects the tests once. Every file of tests that is measured, and every mutant, then has
a process of its own, forked from this one: its functions get the code of the mutant, and processes that it starts
import the mutant from the copy. Where a mistake takes effect while modules are imported, it has a new process instead.
"""

import functools
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
from hypothesis import Phase, settings

from tools.mutants.operators import Mutant

IMPORTED = "while modules are imported"
COPY = "MUTANTS_COPY"
"""The variable with the folder of the copy of `src` that a worker, and all that it starts, imports."""

JOBS = "MUTANTS_JOBS"
COMMAND = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=native")
"""A short traceback: pytest's own, with the source around every line, takes longer than most tests."""

_SLOWER, _AT_LEAST = 4, 4
"""A mutant is stopped, and counts as killed, once a test computes that many times as long as usual, and seconds."""

_WAITING = 60
"""And once its processes have been found asleep every second that often. Waiting for a busy core is not sleep."""

_MEMORY = 2**32
_RUNNING = {"coverage": None, "failed": None}  # type: dict[str, Any]


def pytest_collection() -> None:
    """Have generated tests stop at the first failure: nobody reads about a simpler one."""
    settings.register_profile("first", settings.get_profile("repeatable"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("first")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Do the jobs instead of running the tests."""
    gc.unfreeze()
    jobs, output = _jobs(), os.open(os.environ[JOBS] + ".done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    by_file: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        by_file.setdefault(item.nodeid.split("::")[0], []).append(item)
    work = _measurements(by_file) if "measured" in jobs else _trials(session.items, jobs)
    for result in work:
        os.write(output, (json.dumps(result) + "\n").encode())
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember the first test that failed."""
    if report.failed and _RUNNING["failed"] is None:
        _RUNNING["failed"] = report.nodeid


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Any:
    """Note the lines of a fixture that several tests share for all tests of the file."""
    measure, item = _RUNNING["coverage"], _RUNNING.get("item")
    if measure is None or item is None or request.scope == "function":
        return (yield)
    measure.switch_context(item.split("::")[0])
    try:
        return (yield)
    finally:
        measure.switch_context(item)


def _measurements(by_file: dict[str, list[pytest.Item]]) -> Iterator[dict[str, Any]]:
    """Return, for each file of tests, how long they take and the lines that they execute."""

    def measured(items: Sequence[pytest.Item]) -> dict[str, Any]:
        measure, seconds = _RUNNING["coverage"], {}
        caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
        caches = [each for each in caches if str(each.__module__).startswith("ringfence.")]
        for item, following in _in_turn(items):
            for cache in caches:  # else only the first test that needs it would be seen to
                cache.cache_clear()
            _RUNNING["item"] = item.nodeid
            measure.switch_context(item.nodeid)
            begun = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = round(time.process_time() - begun, 3)
        measure.stop()
        return {"seconds": seconds, "lines": _lines(), "failed": _RUNNING["failed"]}

    yield {"tests": IMPORTED, "seconds": {}, "lines": _lines(), "failed": None}  # a forked process forgets them
    for file, items in by_file.items():
        ended, found = _forked(functools.partial(measured, items), 600)
        yield {"tests": file, **(found or {"failed": ended or "it was killed"})}


def _lines() -> dict[str, dict[int, list[str]]]:
    """Return what executed each line of each measured file."""
    with warnings.catch_warnings(action="ignore"):  # that there may be none
        data = _RUNNING["coverage"].get_data()
    return {str(Path(path).relative_to(_core())): data.contexts_by_lineno(path) for path in data.measured_files()}


def _trials(items: Sequence[pytest.Item], jobs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return, for each mutant, the test that killed it, if one did."""
    named, copy = {item.nodeid: item for item in items}, _core()
    functions: dict[str, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(str(copy)):
            functions.setdefault(each.__code__.co_filename, []).append(each)
    killers: dict[str, Counter[str]] = {}
    sound: set[str] = set()
    gc.freeze()
    for job in jobs["trials"]:
        mutant, seconds = Mutant(**job["mutant"]), sum(job["tests"].values())
        if not job["tests"]:
            yield {"name": mutant.name, "by": None, "fresh": False}
            continue
        path = copy / mutant.file
        known = killers.setdefault(mutant.function, Counter())
        tests = sorted(job["tests"], key=lambda name: -known[name])  # the order among others stays
        with _on_disk(path, mutant) as source:
            codes = None if job["imported"] else _codes(mutant, source, path, functions.get(str(path), []))
            if codes is None:
                by = _in_a_new_process(tests, seconds)
            else:
                chosen = {named[name]: job["tests"][name] for name in tests if name in named}
                ended, found = _forked(functools.partial(_tried, chosen, codes), _SLOWER * seconds + _AT_LEAST)
                by = found["failed"] if found else ended
        if by in named:
            known[by] += 1
            if by not in sound:  # alone, and first, as here
                sound.add(by)
                _, found = _forked(functools.partial(_tried, {named[by]: job["tests"][by]}, ()), 600)
                if found is None or found["failed"]:
                    raise RuntimeError(f"{by} fails without any mutant.")
        yield {"name": mutant.name, "by": by, "fresh": codes is None}


def _tried(items: dict[pytest.Item, float], codes: Sequence[tuple[FunctionType, CodeType]]) -> dict[str, Any]:
    for function, code in codes:
        function.__code__ = code
    most, hard = resource.getrlimit(resource.RLIMIT_CPU)
    for item, following in _in_turn(list(items)):
        longest = int(time.process_time() + _SLOWER * items[item]) + _AT_LEAST
        resource.setrlimit(resource.RLIMIT_CPU, (min(most, longest), hard))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if _RUNNING["failed"]:
            break
    return {"failed": _RUNNING["failed"]}


def _in_turn(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _codes(
    mutant: Mutant, source: bytes, path: Path, functions: Sequence[FunctionType]
) -> list[tuple[FunctionType, CodeType]] | None:
    """Return the functions that the mutant changes, with their new code; None if that is not all of the mutant."""
    old, new = (_inside(compile(text, str(path), "exec")) for text in (source, mutant.applied(source)))
    if old.keys() != new.keys() or any(len(codes) > 1 for codes in old.values()):
        return None
    changed = [
        (function, new[key][0])
        for function in functions
        if (key := _key(function.__code__)) in new and new[key][0] != old[key][0]
    ]
    fits = all(len(code.co_freevars) == len(function.__code__.co_freevars) for function, code in changed)
    return changed if changed and fits else None


def _inside(module: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    found: dict[tuple[str, int], list[CodeType]] = {}
    for code in module.co_consts:
        if isinstance(code, CodeType):
            found.setdefault(_key(code), []).append(code)
            for key, codes in _inside(code).items():
                found.setdefault(key, []).extend(codes)
    return {key: codes for key, codes in found.items() if key[0].rpartition(".")[2] not in _NEVER_FUNCTIONS}


_NEVER_FUNCTIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


_moments = count(10**9)


@contextmanager
def _on_disk(path: Path, mutant: Mutant) -> Iterator[bytes]:
    """Have the mutant in the copy of `src`; give the original source."""
    source = path.read_bytes()
    try:
        path.write_bytes(mutant.applied(source))
        os.utime(path, (moment := next(_moments), moment))  # so that no compiled module is taken for it
        yield source
    finally:
        path.write_bytes(source)
        os.utime(path, (moment := next(_moments), moment))


def _in_a_new_process(tests: Sequence[str], seconds: float) -> str | None:
    """Run the tests until one fails, and return which, or the way the process ended."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        arguments, printed = Path(folder) / "tests", Path(folder) / "printed"
        arguments.write_text("\n".join(tests), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != JOBS} | {"TMPDIR": folder}
        command = [*COMMAND, "-x", "-n", "0", f"@{arguments}"]
        with printed.open("w") as output:
            process = subprocess.Popen(  # noqa: S603
                command, env=environment, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
            )
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        most = int(_SLOWER * seconds) + 3 * _AT_LEAST
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        ended = _ended(process.pid)
        process.returncode = 0  # it has been waited for
        lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" - ")[0].removeprefix("FAILED ") if failed else ended


def _forked(what: Callable[[], dict[str, Any]], seconds: float) -> tuple[str | None, dict[str, Any] | None]:
    """Do that in a process of its own, with its own folder for files; return how it ended, and the result."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, resource.RLIM_INFINITY))
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nothing, number)
            os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
            _RUNNING["failed"] = None
            (folder / "found").write_text(json.dumps(what()), encoding="utf-8")
            status = 0
        except Exception:
            (folder / "problem").write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(status)
    ended = _ended(child)
    if (folder / "problem").exists():
        raise RuntimeError((folder / "problem").read_text())
    found = folder / "found"
    result = json.loads(found.read_text()) if ended is None and found.exists() else None
    shutil.rmtree(folder, ignore_errors=True)
    return ended, result


def _ended(process: int) -> str | None:
    """Wait for a process and stop what is left of its session; return how it ended, if not well.

    SIGKILL says nothing of the process: the machine may have run out of memory.
    """
    over, asleep = os.pidfd_open(process), 0
    while asleep < _WAITING and not select.select([over], [], [], 1)[0]:
        asleep += not _computes(process)
    os.close(over)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if asleep == _WAITING:
        return "waited for ever"
    if status in {0, -signal.SIGKILL}:
        return None
    return f"ended with {status if status > 0 else signal.Signals(-status).name}"


def _computes(session: int) -> bool:
    """Tell whether a thread of a session's processes runs, or would if a core were free."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            if os.getsid(int(process.name)) == session and any(
                (task / "stat").read_text().rpartition(") ")[2][0] in "RD" for task in (process / "task").iterdir()
            ):
                return True
    return False


def _core() -> Path:
    return Path(os.environ[COPY]) / "ringfence"


@functools.cache
def _jobs() -> dict[str, Any]:
    path = os.environ.get(JOBS)
    return dict(json.loads(Path(path).read_text(encoding="utf-8"))) if path else {}


def _begin_to_measure() -> None:
    """Import what is measured: before anything else of the core is, as by pytest's configuration of the tests."""
    jobs = _jobs()
    files = [str(_core() / file) for file in jobs["files"]]
    _RUNNING["coverage"] = measure = coverage.Coverage(data_file=None, include=files, config_file=False)
    measure.start()
    measure.switch_context(IMPORTED)
    for module in jobs["modules"]:
        importlib.import_module(module)
    measure.switch_context("")


if "measured" in _jobs():
    _begin_to_measure()
