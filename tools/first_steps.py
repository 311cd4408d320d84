"""First steps with each extra, in an environment that has it alone: python -I tools/first_steps.py EXTRA (or `bare`).

Each extra has a good call and wrong ones, and its commands are called with missing and with wrong arguments; in some
environments all commands are, and with the word `options` after the extra all options. A command whose extra is missing
must name it. The word `brief` leaves out what depends on neither the extra nor its versions. A traceback, a warning of
Python or an unexpected status is a failure. Commands run in processes forked from one that has imported them, in the
current folder, which must be empty.
"""

import gc
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "ringfence.cli.main", "ringfence.federation.workflow", "ringfence.planning.propose", "ringfence.evidence.dossier",
    "ringfence.evidence.report.run_report", "ringfence.server.conduct", "ringfence.silo.operator.decisions",
    "ringfence.model.card", "ringfence.model.export", "ringfence.deployment.doctor", "rich.table",
)  # fmt: skip
PATIENCE = 600.0
"""Seconds that a step may take."""

TRAIN = "train north.csv south.csv west.csv --schema schema.toml --target ill --epsilon 1"


@dataclass(frozen=True)
class Step:
    """A command, or a program if it begins with a line break, with the status and a text that it must end with."""

    command: str
    status: int = 0
    says: str = ""
    serves: bool = False  # until it is stopped, once it has said so
    alone: bool = False  # in an empty folder, where no earlier step has made what it names


def refused(command: str, says: str) -> Step:
    """Return a step that ends with one sentence."""
    return Step(command, 1, says)


def program_of(page: str, heading: str) -> Step:
    """Return the first program below a heading of the documentation."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    if found is None:
        raise LookupError(f"{page} has no program below '{heading}'.")
    return Step("\n" + found[1])


EVERYWHERE = (
    Step("--version"),
    Step("example"),
    Step("doctor", says="packages as required"),
    Step("train --help", says="Usage: ringfence train [OPTIONS] SILO.csv..."),
    Step(f"{TRAIN} --out model.json", says="model model.json"),
    Step("model card model.json", says="epsilon"),
    Step("ledger north.ledger"),
    Step("evaluate model.json north.csv south.csv west.csv --epsilon 1", says="accuracy"),
    Step("predict model.json new.csv --out predicted.csv"),
    Step("plan --schema schema.toml --target ill --silo north=500 --silo south=800 --epsilon 1 --out plan.json"),
    refused("predict model.json schema.toml", "schema.toml"),
    refused("predict schema.toml new.csv", "schema.toml"),
    refused(f"{TRAIN} --loss nonsense --out other.json", "nonsense"),
    Step(f"{TRAIN} --epsilon much", 2, "'--epsilon'"),
)
PARQUET = """
import pyarrow.csv, pyarrow.parquet
for silo in ("north", "south", "west"):
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(f"{silo}.csv"), f"{silo}.parquet")
"""
DATABASES = """
import csv, sqlite3, duckdb
rows = list(csv.reader(open("north.csv")))[1:]
sqlite, duck = sqlite3.connect("north.db"), duckdb.connect("north.duckdb")
for database in (sqlite, duck):
    database.execute("CREATE TABLE visits (patient INTEGER, age INTEGER, pressure INTEGER, smoker TEXT, ill TEXT)")
    database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
for kind, file in (("sqlite", "north.db"), ("duckdb", "north.duckdb")):
    for name, table in ((kind, "visits"), (f"no-{kind}", "nothing")):
        with open(f"{name}.toml", "w") as description:
            description.write(f'database = "{kind}:{file}"\\nquery = "SELECT * FROM {table}"\\n')
            description.write('order_by = ["patient"]\\n')
open("broken.parquet", "wb").write(open("north.parquet", "rb").read()[:500])
"""
CUSTOM_LOSS = """
from ringfence import custom_loss
def log_cosh(score, target):
    return jnp.logaddexp(score - target, target - score)
print(custom_loss(log_cosh, largest_score=6.0).name)
"""
WITHOUT_ESTIMATORS = """
try:
    from ringfence import FederatedLogisticRegression
except ImportError as missing:
    raise SystemExit(f"ringfence: {missing}")
"""
WITHOUT_JAX = """
from ringfence.errors import RingfenceError
try:
    from ringfence.simulation import engine
except RingfenceError as missing:
    raise SystemExit(f"ringfence: {missing}")
"""

TOUR = Step("tour --rounds 2", says="ledger")
"""It takes most of a minute; its engine has one version, and the lowest of the rest serve in other steps."""

OF_EXTRA: dict[str, tuple[Step, ...]] = {
    "bare": (Step(CUSTOM_LOSS),),
    "estimators": (program_of("README.md", "Ten lines of Python"),),
    "simulation": (program_of("docs/choosing.md", "Simulating many runs"),),
    "serving": (
        Step("silo init silo --name north --data north.csv --schema schema.toml --epsilon 3 --delta 1e-5 "
             "--same-data-as north.ledger --note policy"),
        Step("silo serve silo", says="is served at", serves=True),
        Step("silo page silo", says="in a browser", serves=True),
        refused("silo serve nowhere", "nowhere"),
        Step("silo page silo --port many", 2, "'--port'"),
        Step("shuffler init shuffler"),
        Step("shuffler serve shuffler --port 0", says="is served at", serves=True),
        refused("shuffler serve silo", "silo"),
    ),
    "deployment": (
        Step("federation init federation --server localhost:8002 --silo north --here"),
        Step("silo request kit --name north", says="kit.request"),
        Step("federation sign federation kit.request", says="response"),
        refused("federation sign federation plan.json", "plan.json"),
        refused("silo join nowhere kit", "nowhere"),
        refused("server run plan.json --folder run --engine nvflare", "--kit"),
        Step("tour --rounds 0", 2, "'--rounds'"),
        TOUR,
    ),
    "flower": (
        Step("\nimport ringfence.deployment.flower.apps"),
        refused("server run plan.json --folder run --engine flower", "--superlink"),
    ),
    "tracking": (
        Step(f"{TRAIN} --track runs --out tracked.json", says="model tracked.json"),
        Step("\nfrom pathlib import Path\nassert list(Path('runs').rglob('*tfevents*'))"),
        refused(f"{TRAIN} --track north.csv --out other.json", "north.csv"),
    ),
    "data": (
        Step(PARQUET),
        Step(DATABASES),
        Step("schema check schema.toml north.parquet"),
        Step("schema check schema.toml sqlite.toml"),
        Step("schema check schema.toml duckdb.toml"),
        Step("predict model.json north.parquet --out predicted.parquet"),
        refused("schema check schema.toml broken.parquet", "broken.parquet"),
        refused("schema check schema.toml no-sqlite.toml", "did not complete the query"),
        refused("schema check schema.toml no-duckdb.toml", "did not complete the query"),
    ),
    "onnx": (
        Step("model export model.json --to onnx --out model.onnx"),
        Step("\nimport onnx\nonnx.checker.check_model(onnx.load('model.onnx'))"),
        refused("model export schema.toml --to onnx --out other.onnx", "schema.toml"),
    ),
    "demo": (Step("demo", says="Privacy statement"), Step("demo digits", 2, "digits")),
    "research": (
        Step("\nimport ringfence.research.experiments.reproduce"),
        Step("reproduce looking --out looking --quick"),
        refused("reproduce nonsense --out nonsense --quick", "There is no experiment 'nonsense'"),
        refused("reproduce mnist --out mnist --data nowhere", "nowhere"),
    ),
}  # fmt: skip

NEEDS = (
    (Step(WITHOUT_ESTIMATORS, 1), "estimators", "sklearn"),
    (Step(WITHOUT_JAX, 1), "simulation", "jax"),
    (Step("silo serve silo", 1), "serving", "starlette"),
    (Step("silo page silo", 1), "serving", "uvicorn"),
    (Step("shuffler serve shuffler", 1), "serving", "starlette"),
    (Step("shuffler restore shuffler", 1), "serving", "starlette"),
    (Step("tour", 1), "deployment", "psutil"),
    (Step("silo request kit --name north", 1), "deployment", "nvflare"),
    (Step("silo join silo kit", 1), "deployment", "nvflare"),
    (Step("silo courier silo kit", 1), "deployment", "nvflare"),
    (Step("server request kits --host localhost", 1), "deployment", "nvflare"),
    (Step("server join kits server.response", 1), "deployment", "nvflare"),
    (Step("server start kit", 1), "deployment", "nvflare"),
    (Step("server run plan.json --folder run --engine nvflare --kit kit", 1), "deployment", "nvflare"),
    (Step("federation init federation --server localhost --silo north", 1), "deployment", "nvflare"),
    (Step("federation sign federation north.request", 1), "deployment", "nvflare"),
    (Step("server run plan.json --folder run --engine flower --superlink here", 1), "flower", "flwr"),
    (Step(f"{TRAIN} --track runs --out tracked.json", 1), "tracking", "tensorboardX"),
    (Step("predict model.json new.csv --out predicted.parquet", 1), "data", "pyarrow"),
    (Step("model export model.json --to onnx --out model.onnx", 1), "onnx", "onnx"),
    (Step("demo", 1), "demo", "mlxtend"),
    (Step("reproduce mnist --out mnist --quick", 1), "research", "matplotlib"),
)
"""What needs an extra, and a package that the extra brings."""

NEED_NOTHING = ("audit", "demo", "example", "tour")
"""Commands that do something, some for long, when they are called without arguments."""


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group of the command line, with its words."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def misuse(extra: str, depth: str = "") -> Iterator[tuple[list[str], set[int]]]:
    """Yield calls with missing and with wrong arguments, and the statuses that each may end with.

    All commands in environments that differ in typer; else those of the extra.
    """
    from typer.main import get_command

    from ringfence.cli.main import app

    for words, command in commands(get_command(app)):
        own = any(step.command.startswith(" ".join((*words, ""))) for step in OF_EXTRA[extra])
        if not own and (depth == "brief" or (depth != "options" and extra not in ("bare", "flower"))):
            continue
        needed: list[str] = []
        for each in command.params:
            if each.required:
                needed += ["1"] if each.param_type_name == "argument" else [each.opts[0], "1"]
        yield [*words, "--help"], {0}
        yield [*words, "--nonsense"], {2}
        if needed:
            yield list(words), {2}
            yield [*words, *needed], {0, 1}
        elif " ".join(words) not in NEED_NOTHING:
            yield list(words), {0, 1, 2}
        for each in command.params if depth == "options" and " ".join(words) not in NEED_NOTHING else ():
            if each.param_type_name == "option" and not getattr(each, "is_flag", False):
                yield [*words, *needed, each.opts[0], "nonsense"], {0, 1, 2}


def call(step: Step) -> tuple[int, str]:
    """Run a step in a process of its own; return its status and what it printed."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            _become(step, printed.fileno())
        deadline, stopped = time.monotonic() + PATIENCE, False
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            text = os.pread(printed.fileno(), 10**6, 0).decode(errors="replace")
            if ended:
                return os.waitstatus_to_exitcode(status), text
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            elif step.serves and step.says in text and not stopped:
                os.kill(child, signal.SIGTERM)
                stopped = True
            time.sleep(0.01)


def _become(step: Step, printed: int) -> None:
    """Turn a forked process into a command, or a program, that prints to a file."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    if step.alone:
        os.chdir(tempfile.mkdtemp(dir="."))
    if step.command.startswith("\n"):
        Path("program.py").write_text(step.command, encoding="utf-8")
        os.execv(sys.executable, [sys.executable, "program.py"])  # noqa: S606 (no shell)
    sys.argv = ["ringfence", *shlex.split(step.command)]
    status = 1
    try:
        import_module("ringfence.cli.main").run()
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def fault(step: Step, status: int, printed: str, expected: set[int]) -> str:
    """Return what is wrong with how a step ended, or an empty text."""
    if "Traceback" in printed:
        return "it ended in a traceback"
    if re.search(r"^\S+\.py:\d+: \w*Warning: ", printed, re.MULTILINE):
        return "it warns of its own code"
    if step.command.endswith("--help") and (printed.count("rguments:\n") > 1 or re.search(r"<\w| None", printed)):
        return "its help shows arguments twice, types, or None"
    if status not in expected:
        return f"its status is {status} instead of {' or '.join(map(str, sorted(expected)))}"
    if status and not printed.strip():
        return "it says nothing"
    return "" if step.says in printed else f"it does not say '{step.says}'"


def steps(extra: str, depth: str) -> Iterator[tuple[Step, set[int]]]:
    """Yield all steps of an environment, and the statuses that each may end with."""
    for step in (*EVERYWHERE, *OF_EXTRA[extra]):
        if depth != "brief" or step is not TOUR:
            yield step, {step.status}
    for step, needed, package in NEEDS:
        if depth != "brief" and find_spec(package) is None:
            yield Step(step.command, step.status, f'pip install "ringfence[{needed}]"'), {step.status}
    for words, statuses in misuse(extra, depth):
        yield Step(shlex.join(words), alone=True), statuses


def main(extra: str, depth: str = "") -> int:
    """Take all steps of an environment; return 1 if any of them fails."""
    for module in IMPORTED:
        import_module(module)
    gc.freeze()  # or every fork's first collection copies all of it
    count, failed, slowest = 0, 0, (0.0, "")
    for step, statuses in steps(extra, depth):
        began = time.monotonic()
        status, printed = call(step)
        slowest = max(slowest, (time.monotonic() - began, step.command))
        count += 1
        if wrong := fault(step, status, printed, statuses):
            failed += 1
            print(f"ringfence {step.command}\n{wrong}. It printed:\n{printed}", flush=True)  # noqa: T201
    longest = " ".join(slowest[1].split())[:80]
    print(f"{count} steps, {failed} failed; the slowest took {slowest[0]:.0f} s: {longest}")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
