"""Flower as an exchange: our own process starts the run through a SuperLink and talks to its relay."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from ringfence.errors import DeploymentError
from ringfence.storage.toml_files import toml_text
from ringfence.transport.exchange import Arrived
from ringfence.transport.relay import RelayLink

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
_STUB = "from ringfence.deployment.flower import {0} as installed\n\napp = installed.app\n"


class FlowerExchange:
    """Carries rounds through Flower; use it in a `with` block.

    `connection` is the SuperLink's name in `$FLWR_HOME/config.toml`. A run that is lost is started again, and silos
    that have not answered are asked again. Not measured beyond three silos on one machine: a round takes about five
    seconds, which is the SuperNodes' own pace.
    """

    def __init__(self, connection: str, *, tell: Callable[[str], None]) -> None:
        self._connection = connection
        self._link = RelayLink(slack=45.0, tell=tell)  # the relay may ask new nodes for their names

    def __enter__(self) -> Self:
        self._link.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._link.__exit__()

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Carry one request; see `Exchange`."""
        self._link.exchange(request, set(silos), arrived, seconds, self._start)

    def _start(self) -> None:
        app = self._link.folder / "app"
        (app / "courier_app").mkdir(parents=True, exist_ok=True)
        ours = {**_APP, "config": {"wire": self._link.path}}
        (app / "pyproject.toml").write_text(toml_text({**_PROJECT, "tool": {"flwr": {"app": ours}}}))
        (app / "courier_app" / "__init__.py").write_text("")
        (app / "courier_app" / "client.py").write_text(_STUB.format("courier"))
        (app / "courier_app" / "server.py").write_text(_STUB.format("relay"))
        flwr = Path(sys.executable).parent / "flwr"
        deadline = time.monotonic() + _PATIENCE
        while True:
            done = subprocess.run(  # noqa: S603 (no shell)
                [flwr, "run", app, self._connection], capture_output=True, text=True, env=settings(), check=False
            )
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise DeploymentError(f"Flower rejected the run: {(done.stdout + done.stderr).strip()[-500:]}")
            time.sleep(1.0)
        while time.monotonic() < deadline:
            if self._link.accept():
                return
        raise DeploymentError("Flower accepted the run but did not start it. See its SuperLink's log.")


def settings() -> dict[str, str]:
    """Return an environment in which Flower tells nobody about us, and looks for work often."""
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
