"""NVFlare as an exchange: our own process submits the job, talks to its relay, and submits again when it is lost."""

import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from ringfence.deployment.nvflare.job import job_file_bytes, job_files
from ringfence.deployment.nvflare.kit import check_kit_dates, user_of
from ringfence.deployment.processes import abandon_threads, interruptible
from ringfence.errors import DeploymentError
from ringfence.transport.exchange import Arrived
from ringfence.transport.relay import RelayedExchange

_SLOW = 3.0
"""Seconds after which a silo that has not answered is looked for."""
_LOGIN = 5.0, 40.0
"""Seconds that a login at the engine's server may take at first, and at most: twice as many after each that failed."""
_COMMAND = 30.0
"""Seconds that the engine's server may take over one command: one that is gone must not hold us up."""
_GATHER = 30.0
"""Seconds that a new job waits for silos that are not connected yet."""
_AGAIN = 60.0
"""Seconds until a new job is started again for the same silo: one that refuses our job must not stop the others."""


class NvflareExchange(RelayedExchange):
    """Carries rounds through NVFlare to the silos' sites, and to no other.

    Time in which the engine is down does not count as a silo's. After `patience` seconds without an engine there is a
    DeploymentError, and the run can be continued later. A silo that comes back is taken in by a new job.
    """

    def __init__(
        self, kit: Path, silos: Sequence[str], *, tell: Callable[[str], None], patience: float = 120.0
    ) -> None:
        """Carry requests through NVFlare with the administrator's kit; `tell` gets notices for the user."""
        super().__init__(slack=5.0, tell=tell)
        self._kit, self._silos, self._user, self._patience = kit, silos, user_of(kit), patience
        check_kit_dates(kit, "admin", tell)
        self._session: Any = None
        self._login_seconds = _LOGIN[0]
        self._admin = threading.Lock()
        self._job = ""
        self._returned = threading.Event()
        self._watch: threading.Thread | None = None
        self._taken_in: dict[str, float] = {}

    def __enter__(self) -> Self:
        """Begin the NVFlare exchange, and keep NVFlare's log quiet."""
        super().__enter__()
        self._cleanup.enter_context(interruptible())
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)
        abandon_threads()  # NVFlare's own wait for a server as long as the process lives, and would keep it alive
        return self

    def __exit__(self, *_: object) -> None:
        """End the relay's job and the administrator's NVFlare session."""
        super().__exit__()  # first: the process that ended us may not wait for the engine's goodbye
        if self._admin.acquire(timeout=15):
            self._drop_session(politely=True)
            self._admin.release()

    def __call__(self, request: bytes, silos: Sequence[str], arrived: Arrived, seconds: float) -> None:
        """Carry a request through NVFlare's job; start a new job if a silo came back."""
        missing = set(silos)
        while True:
            if self._returned.is_set():
                self._tell("A silo came back: starting a new job that includes it.")
                self.hang_up()  # which ends the job
            self.carry(request, silos, missing, arrived, seconds)
            if not (missing and self._returned.is_set()):
                break
        if missing:
            self._look_for(sorted(missing))

    def may_stop(self, missing: set[str], gone: float) -> bool:
        """Whether a silo came back that a new NVFlare job could include."""
        if gone > _SLOW:
            self._look_for(sorted(missing))
        return self._returned.is_set()

    def start_relay(self, silos: Sequence[str]) -> None:
        """Submit the NVFlare job, and wait for its relay to call."""
        deadline = time.monotonic() + self._patience
        with self._admin:
            while True:
                try:
                    self._wait_for(silos, min(deadline, time.monotonic() + _GATHER))
                    self._job = self._connected().submit_job(str(self._write_job()))
                    self._returned.clear()
                    self._accept_job(deadline)
                except DeploymentError:
                    raise
                except Exception as problem:  # nvflare raises many kinds, all of which mean: not now
                    self._drop_session()
                    if time.monotonic() > deadline:
                        raise DeploymentError(
                            f"The engine's server could not be reached for {self._patience:.0f} seconds "
                            f"({type(problem).__name__}). Start it (`ringfence server start`), and continue the run."
                        ) from None
                    time.sleep(0.5)
                else:
                    return

    def _connected(self) -> Any:
        """Return the administrator's session with NVFlare's server; log in if there is none."""
        if self._session is None:
            from nvflare.fuel.flare_api.flare_api import new_secure_session
            from nvflare.fuel.utils.config_service import ConfigService

            # Otherwise NVFlare looks for its settings in the working directory, and in every folder below.
            ConfigService.initialize(section_files={}, config_path=[str(self._kit)])
            seconds, self._login_seconds = self._login_seconds, min(2 * self._login_seconds, _LOGIN[1])
            self._session = _beside(
                lambda: new_secure_session(
                    self._user, str(self._kit), timeout=seconds, command_timeout=_COMMAND, auto_login_max_tries=1
                ),
                seconds + 2 * _COMMAND,  # a login is two commands
            )
            self._login_seconds = _LOGIN[0]
        return self._session

    def _drop_session(self, *, politely: bool = False) -> None:
        """Let go of the session; without a goodbye unless `politely`, since a server that is gone would not hear it."""
        session, self._session = self._session, None
        if session is None:
            return

        def close() -> None:
            """Close the administrator's NVFlare session."""
            if politely:
                session.set_timeout(_LOGIN[0])
                session.close()
            else:
                session.api.close()

        with contextlib.suppress(Exception):
            _beside(close, _LOGIN[0])

    def _wait_for(self, silos: Sequence[str], deadline: float) -> None:
        """Wait until all these silos' NVFlare clients are connected, or the deadline passed and one is."""
        while True:
            present = self._jobs_of(silos)
            if len(present) == len(set(silos)) or (present and time.monotonic() > deadline):
                return
            if time.monotonic() > deadline:
                raise DeploymentError("No silo is connected to the engine. Start one (`ringfence silo courier`).")
            time.sleep(0.25)

    def _jobs_of(self, silos: Sequence[str]) -> dict[str, set[str]]:
        """Return the running NVFlare jobs of those of the silos whose clients answer now."""
        session = self._connected()
        known = sorted({client.name for client in session.get_system_info().client_info}.intersection(silos))
        jobs: dict[str, set[str]] = {}
        for row in (session.get_client_job_status(known) or []) if known else []:
            if row.get("status") != "no_reply":
                jobs.setdefault(row["client_name"], set()).add(row.get("job_id", ""))
        return jobs

    def _accept_job(self, deadline: float) -> None:
        """Wait for the relay of the submitted NVFlare job; DeploymentError if it does not start."""
        while not self.accept():
            status = str(self._connected().get_job_meta(self._job).get("status", ""))
            if status.startswith("FINISHED") or time.monotonic() > deadline:
                raise DeploymentError(
                    f"The engine did not start the job ({status or 'no status'}): the sites or the engine's server "
                    "refused it. See log.txt in their kits."
                )

    def _look_for(self, silos: Sequence[str]) -> None:
        """See, in the background, whether one of these silos is connected but not part of the job."""
        now = time.monotonic()
        silos = [silo for silo in silos if now - self._taken_in.get(silo, -_AGAIN) >= _AGAIN]
        if silos and (self._watch is None or not self._watch.is_alive()):
            self._watch = threading.Thread(target=self._check_on, args=(silos, self._job), daemon=True)
            self._watch.start()

    def _check_on(self, silos: Sequence[str], job: str) -> None:
        """Find silos connected to NVFlare but outside the job, so that a new job can include them."""
        with self._admin:
            try:
                jobs = self._jobs_of(silos)
            except Exception:  # the engine is busy or gone; the next exchange will tell
                self._drop_session()
                return
        outside = [silo for silo, running in jobs.items() if job not in running]
        if outside and job == self._job:
            self._taken_in.update(dict.fromkeys(outside, time.monotonic()))
            self._returned.set()

    def _write_job(self) -> Path:
        """Write the NVFlare job's files into the temporary folder."""
        job = self.folder / "job"
        (job / "app" / "config").mkdir(parents=True, exist_ok=True)
        for file, content in job_files(self.path, self._silos).items():
            (job / file).write_bytes(job_file_bytes(content))
        return job


def _beside(call: Callable[[], Any], seconds: float) -> Any:
    """Return what an NVFlare call returns, without its chatter on standard output; TimeoutError after the seconds.

    It is made in a thread of its own. NVFlare ends a session, also after a login that failed, by waiting for its
    connection; if a server comes back in that moment, the connection is made and the waiting never ends.
    """
    done: Future[Any] = Future()

    def work() -> None:
        """Run the NVFlare call in a thread, and keep its result or exception."""
        try:
            done.set_result(call())
        except BaseException as problem:  # raised again where the result is awaited
            done.set_exception(problem)

    with tempfile.TemporaryFile("w") as nowhere, contextlib.redirect_stdout(nowhere):
        threading.Thread(target=work, daemon=True).start()
        return done.result(seconds)
