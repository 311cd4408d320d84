"""The trusted core is small, and a running agent loads nothing else of ours."""

import subprocess
import sys
from pathlib import Path

from ringfence.deployment.door import Door
from ringfence.protocol import NoisyUpdate, Plan, parse_answer
from tests.silo.agents import make_silo_folder, request
from tests.support import MakePlan
from tools import core

AGENT = """
import sys
from pathlib import Path
from ringfence.protocol import load_plan
from ringfence.silo import agent
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate

folder = SiloFolder.open(Path(sys.argv[1]))
with folder.ledger() as ledger:
    gate = Gate(folder.current_records(ledger), ledger, folder.key(), limits=folder.limits)
    gate.approve(load_plan(Path(sys.argv[2])))
agent.serve(folder, ready=lambda where: print(where, flush=True))
print(*sys.modules)
"""
"""Approves a plan, serves it until it is stopped, and prints what was loaded for that."""


def test_the_core_has_at_most_ten_thousand_lines() -> None:
    lines = sum(map(core.code_lines, core.core()))
    assert 5_000 < lines <= core.MOST_LINES, "move what need not be right for the guarantee out of the core"


def test_the_page_lists_the_core_as_it_is() -> None:
    page = core.PAGE.read_text(encoding="utf-8")
    assert page == core.renewed(page), "the core has changed: run `python -m tools.core`, and look at what it changes"


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert core.code_lines("ringfence.silo") == 0
    assert core.code_lines("ringfence.__main__") == 2


def test_an_agent_that_approves_and_answers_loads_the_core_and_its_edges_alone(
    tmp_path: Path, plan_of: MakePlan
) -> None:
    loaded = loaded_by_an_agent(tmp_path, plan_of())
    assert {"ringfence.silo.gate.gate", "ringfence.silo.noise.exact_draws", "ringfence.storage.chain"} <= loaded
    assert loaded <= core.imported()
    outside = {module for module in loaded if core.edge_of(module)}
    assert {".".join(module.split(".")[:2]) for module in outside} == set(core.EDGES)


def loaded_by_an_agent(folder: Path, plan: Plan) -> set[str]:
    """Return our modules that a fresh process loads to approve a plan and answer its first round."""
    silo_folder = make_silo_folder(folder)
    (folder / "plan.json").write_bytes(plan.content)
    command = [sys.executable, "-c", AGENT, str(silo_folder.path), str(folder / "plan.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline().startswith("unix:")
            answer = parse_answer(Door.read(silo_folder.path, patience=5.0).ask(request(plan, 0)))
            assert isinstance(answer, NoisyUpdate)
            agent.terminate()
            modules = agent.communicate(timeout=60)[0].split()
        except BaseException:
            agent.kill()
            raise
    return {module for module in modules if module.partition(".")[0] == "ringfence"}
