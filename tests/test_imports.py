"""Which packages of others a new process loads: whoever starts a command waits for them, and an agent keeps them."""

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from ringfence.deployment.door import Door
from ringfence.protocol import NoisyUpdate, parse_answer
from tests.silo.agents import approved, make_silo_folder, request
from tests.support import MakePlan

COMMAND = "click shellingham typer"
CORE = (
    "annotated_types cryptography numpy numpy.fft numpy.lib numpy.linalg numpy.matrixlib numpy.typing pydantic "
    "pydantic_core scipy threadpoolctl typing_extensions typing_inspection"
)
SPECIAL_FUNCTIONS = (
    "scipy.special charset_normalizer numpy.char numpy.core numpy.ctypeslib numpy.f2py numpy.ma numpy.random numpy.rec "
    "numpy.strings numpy.testing"
)
"""scipy.special, and what it loads by itself."""

OPTIMISERS = "scipy.optimize scipy.constants scipy.fft scipy.linalg scipy.sparse scipy.spatial"
"""scipy.optimize, and what it loads by itself: it fits the possible shares of an evaluation."""

SERVICE = "anyio h11 starlette tomli_w uvicorn watchfiles"

TRAIN = "train north.csv south.csv west.csv --schema schema.toml --target ill --epsilon 1 --out model.json"
COMMANDS = {"--version": COMMAND, TRAIN: f"{COMMAND} rich numpy.polynomial {CORE} {SPECIAL_FUNCTIONS} {OPTIMISERS}"}
AGENT = f"{COMMAND} {CORE} {SERVICE}"

OTHERS = set(packages_distributions()) - {"ringfence"}

TELL = 'print("loaded:", *[name for name, own in sys.modules.items() if "." not in name or hasattr(own, "__path__")])'
RUN = f"""
import sys
from ringfence.cli.main import run
try:
    run()
finally:
    {TELL}
"""


def packages(printed: str) -> set[str]:
    """Return the packages of others that a process told; of NumPy and SciPy, their public packages too."""
    loaded = [name.split(".") for name in printed.partition("loaded:")[2].split()]
    assert ["ringfence"] in loaded
    named = [parts[: 2 if parts[0] in ("numpy", "scipy") else 1] for parts in loaded if parts[0] in OTHERS]
    return {".".join(parts) for parts in named if not any(part.startswith("_") for part in parts)}


def ran(code: str, *arguments: str, folder: Path) -> str:
    return subprocess.check_output([sys.executable, "-c", code, *arguments], cwd=folder, text=True)


def test_importing_ringfence_loads_no_package_of_others(tmp_path: Path) -> None:
    assert packages(ran(f"import sys, ringfence; {TELL}", folder=tmp_path)) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_what_it_uses_and_nothing_else(command: str, tmp_path: Path) -> None:
    ran(RUN, "example", folder=tmp_path)
    assert packages(ran(RUN, *command.split(), folder=tmp_path)) == set(COMMANDS[command].split())


def test_an_agent_that_answers_loads_what_it_uses_and_nothing_else(tmp_path: Path, plan_of: MakePlan) -> None:
    silo_folder = make_silo_folder(tmp_path)
    plan = approved(silo_folder, plan_of())
    command = [sys.executable, "-c", RUN, "silo", "serve", str(silo_folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stdout is not None
            assert "is served at" in agent.stdout.readline()
            answer = parse_answer(Door.read(silo_folder.path, patience=5.0).ask(request(plan, 0)))
            assert isinstance(answer, NoisyUpdate)
            agent.terminate()
            printed = agent.communicate(timeout=60)[0]
        except BaseException:
            agent.kill()
            raise
    assert packages(printed) == set(AGENT.split())
