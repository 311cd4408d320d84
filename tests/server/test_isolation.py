"""The server is untrusted: it must not so much as load what belongs to a silo, or the shuffler's own state."""

import subprocess
import sys
from pathlib import Path

import ringfence.server

FORBIDDEN = (
    "ringfence.silo",
    "ringfence.accounting",
    "ringfence.planning",
    "ringfence.shuffler.service",
    "ringfence.shuffler.shuffler",
    "ringfence.shuffler.store",
    "ringfence.shuffler.witness",
    "ringfence.cli",
    "sqlite3",
    "_sqlite3",
    "jax",
)
SERVER = Path(ringfence.server.__path__[0])
MODULES = [
    ".".join(("ringfence.server", *path.relative_to(SERVER).with_suffix("").parts)) for path in SERVER.rglob("*.py")
]


def test_importing_any_of_the_server_loads_nothing_of_a_silo() -> None:
    modules = [name.removesuffix(".__init__") for name in MODULES]
    script = f"import sys, {', '.join(modules)}; print('\\n'.join(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = finished.stdout.split()
    assert set(modules) <= set(loaded)
    assert [name for name in loaded if any(name == one or name.startswith(one + ".") for one in FORBIDDEN)] == []
