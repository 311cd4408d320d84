"""Flower as an exchange: our own process starts the run through a SuperLink and talks to its relay."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from ringfence.deployment.wire import Wire
from ringfence.errors import DeploymentError

_APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "ringfence-courier"
version = "1.0.0"
dependencies = []

[tool.flwr.app]
publisher = "ringfence"

[tool.flwr.app.components]
serverapp = "courier_app.server:app"
clientapp = "courier_app.client:app"

[tool.flwr.app.config]
wire = {wire}
"""

# Flower looks for an assignment to the name, and an import is none.
_STUB = "from ringfence.deployment.flower import {0} as installed\n\napp = installed.app\n"


class FlowerExchange:
    """Carries rounds through Flower; use it in a `with` block.

    `connection` is the SuperLink's name in `$FLWR_HOME/config.toml`. A run that is lost is started again, and whoever
    has not answered is asked again. Not measured beyond three silos on one machine: a round takes about five seconds,
    which is the SuperNodes' own pace.
    """

    def __init__(
        self, connection: str, *, patience: float = 120.0, tell: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._connection, self._patience, self._tell = connection, patience, tell
        self._wire: Wire | None = None
        self._exchange = 0
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        place = "/tmp" if len(tempfile.gettempdir()) > 70 else None  # noqa: S108 (a socket's address is short)
        self._folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-", dir=place)))
        self._listener = self._cleanup.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(self._folder / "wire"))
        self._listener.listen(4)
        self._listener.settimeout(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()
        self._cleanup.close()

    def __call__(
        self, request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
    ) -> None:
        """Carry one request; see `Exchange`."""
        missing = set(silos)
        deadline = time.monotonic() + self._patience + seconds
        while missing:
            try:
                self._carry(self._wire or self._start(), request, missing, arrived, seconds)
                return
            except OSError:
                self._hang_up()
                if time.monotonic() > deadline:
                    raise DeploymentError(
                        "Flower lost the run again and again. Look after its SuperLink, and continue the run."
                    ) from None
                self._tell("The engine lost the run: starting it again.")

    def _carry(
        self, wire: Wire, request: bytes, missing: set[str], arrived: Callable[[str, bytes], None], seconds: float
    ) -> None:
        self._exchange += 1
        wire.send({"exchange": self._exchange, "sites": sorted(missing), "seconds": seconds}, request)
        deadline = time.monotonic() + seconds + 45.0  # the relay keeps the time, and may ask new nodes for their names
        while time.monotonic() < deadline:
            frame = wire.receive(0.5)
            if frame is None or frame[0].get("exchange") != self._exchange:
                continue
            if frame[0].get("done"):
                return
            if (site := frame[0]["site"]) in missing:
                missing.discard(site)
                arrived(site, frame[1])
        raise ConnectionError("the relay went silent")

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    def _start(self) -> Wire:
        app = self._folder / "app"
        (app / "courier_app").mkdir(parents=True, exist_ok=True)
        (app / "pyproject.toml").write_text(_APP.format(wire=f'"{self._folder / "wire"}"'))
        (app / "courier_app" / "__init__.py").write_text("")
        (app / "courier_app" / "client.py").write_text(_STUB.format("courier"))
        (app / "courier_app" / "server.py").write_text(_STUB.format("relay"))
        deadline = time.monotonic() + self._patience
        while True:
            flwr = Path(sys.executable).parent / "flwr"
            done = subprocess.run(  # noqa: S603 (no shell)
                [flwr, "run", app, self._connection], capture_output=True, text=True, env=settings(), check=False
            )
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise DeploymentError(f"Flower did not take the run: {(done.stdout + done.stderr).strip()[-500:]}")
            time.sleep(1.0)
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.settimeout(None)
                self._wire = Wire(connection)
                hello = self._wire.receive(60.0)
                if hello is None:
                    raise ConnectionError("the relay said nothing")
                self._tell(f"The engine runs at {', '.join(hello[0]['sites']) or 'no silo yet'}.")
                return self._wire
        raise DeploymentError("Flower took the run and did not begin it. Look at the log of its SuperLink.")


def settings() -> dict[str, str]:
    """Return an environment in which Flower tells nobody about us, and looks for work often."""
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
