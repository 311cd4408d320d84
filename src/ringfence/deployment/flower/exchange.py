"""Flower as an exchange: our own process starts the run through a SuperLink and talks to its relay."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ringfence.errors import DeploymentError
from ringfence.storage.toml_files import toml_text
from ringfence.transport.relay import RelayedExchange

_PATIENCE = 120.0
"""Seconds that Flower may take to begin the run."""

_APP = {
    "publisher": "ringfence",
    "components": {"serverapp": "courier_app.server:app", "clientapp": "courier_app.client:app"},
}
_PROJECT = {
    "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
    "project": {"name": "ringfence-courier", "version": "1.0.0", "dependencies": []},
}

# Flower looks for an assignment to the name, and an import is none.
_STUB = "from ringfence.deployment.flower import apps\n\napp = apps.{0}\n"


class FlowerExchange(RelayedExchange):
    """Carries rounds through Flower.

    `connection` is the SuperLink's name in `$FLWR_HOME/config.toml`. Not measured beyond three silos on one machine: a
    round takes about five seconds, which is the SuperNodes' own pace.
    """

    def __init__(self, connection: str, *, tell: Callable[[str], None]) -> None:
        """Carry requests through the Flower federation of that connection."""
        super().__init__(slack=45.0, tell=tell)  # the relay may ask new nodes for their names
        self._connection = connection

    def start_relay(self, silos: Sequence[str]) -> None:
        """Write our Flower app, have `flwr` run it, and wait for its relay to call."""
        app = self.folder / "app"
        (app / "courier_app").mkdir(parents=True, exist_ok=True)
        ours = {**_APP, "config": {"wire": self.path}}
        (app / "pyproject.toml").write_text(toml_text({**_PROJECT, "tool": {"flwr": {"app": ours}}}))
        (app / "courier_app" / "__init__.py").write_text("")
        for part in ("client", "server"):
            (app / "courier_app" / f"{part}.py").write_text(_STUB.format(part))
        flwr = Path(sys.executable).parent / "flwr"
        deadline = time.monotonic() + _PATIENCE
        while True:
            done = subprocess.run(  # noqa: S603 (no shell)
                [flwr, "run", app, self._connection], capture_output=True, text=True, env=flower_environment(),
                check=False,
            )  # fmt: skip
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise DeploymentError(f"Flower rejected the run: {(done.stdout + done.stderr).strip()[-500:]}")
            time.sleep(1.0)
        while time.monotonic() < deadline:
            if self.accept():
                return
        raise DeploymentError("Flower accepted the run but did not start it. See its SuperLink's log.")


def flower_environment() -> dict[str, str]:
    """Return an environment in which Flower reports nothing to others, and looks for work often."""
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
