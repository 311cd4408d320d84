"""No process of ours leaves its memory behind when it crashes, whatever the machine would allow."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.deployment.processes import Family
from tests.silo.agents import make_silo_folder

ALLOWED = ["sh", "-c", 'ulimit -c "$(ulimit -H -c)" && exec "$@"', "sh"]
SERVE = [sys.executable, "-m", "ringfence", "silo", "serve"]

TELLING = """
import ctypes, sys
from ringfence.cli import main
said = []
main.app = lambda: said.append(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
main.run()
print(*said)
"""


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT])
def test_an_agent_that_crashes_leaves_no_core_dump(tmp_path: Path, number: signal.Signals) -> None:
    folder = make_silo_folder(tmp_path).path
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    agent = subprocess.Popen([*ALLOWED, *SERVE, str(folder)], stdout=subprocess.PIPE, cwd=crashes)
    assert agent.stdout is not None
    with agent.stdout:
        try:
            assert agent.stdout.readline().startswith(b"silo 'clinic' is served")
            limits = Path(f"/proc/{agent.pid}/limits").read_text()
        finally:
            agent.send_signal(number)
            _, status = os.waitpid(agent.pid, 0)
            agent.returncode = os.waitstatus_to_exitcode(status)
    assert re.search(r"Max core file size +0 +0 ", limits)
    assert os.WTERMSIG(status) == number
    assert not os.WCOREDUMP(status)
    assert list(crashes.iterdir()) == []


def test_the_process_is_not_dumpable_since_dumps_that_go_to_a_program_are_made_whatever_the_limit_is() -> None:
    said = subprocess.run([sys.executable, "-c", TELLING], capture_output=True, text=True, check=True)
    assert said.stdout == "0\n"


def test_a_family_ends_its_own_commands_though_they_hide_their_marks(tmp_path: Path) -> None:
    folder = make_silo_folder(tmp_path).path
    with Family(tmp_path) as family:
        family.environment["PYTHONUNBUFFERED"] = "1"
        agent = family.start("agent", ["silo", "serve", folder])
        assert agent.pid in {member.pid for member in family.members()}
    assert agent.poll() is not None
