"""The server is the untrusted room: it must not so much as load what belongs to a silo."""

import subprocess
import sys

import pytest

FORBIDDEN = ("ringfence.silo", "ringfence.planning", "ringfence.cli", "opendp", "sqlite3", "_sqlite3", "jax")


@pytest.mark.parametrize(
    "module",
    ["rounds", "survey", "algorithms", "algorithms.minibatch", "algorithms.accelerated", "transcript", "conduct"],
)
def test_importing_the_server_loads_nothing_of_a_silo(module: str) -> None:
    module = f"ringfence.server.{module}"
    script = f"import sys, {module}; print('\\n'.join(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = finished.stdout.split()
    assert module in loaded
    assert [name for name in loaded if any(name == one or name.startswith(one + ".") for one in FORBIDDEN)] == []
