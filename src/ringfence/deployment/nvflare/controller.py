"""The relay inside the engine's server: requests come over the wire, go to the sites, and answers go back as they come.

It holds no state of the training: `ringfence server run` does, in its own process, and survives this one.
"""

import math
import threading
import time
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from ringfence.deployment.nvflare.job import CONTENT, SECONDS, TASK
from ringfence.transport.relay import Errand, run_relay


class Relay(Controller):  # type: ignore[misc]  # nvflare ships no types
    """Relays between the wire and the sites until `ringfence server run` hangs up, which ends the job."""

    def __init__(self, wire: str) -> None:
        """Make NVFlare's controller, which calls `ringfence server run` on the wire."""
        super().__init__()
        self._path = wire

    def start_controller(self, fl_ctx: Any) -> None:
        """Prepare nothing for the NVFlare controller."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Clean nothing up for the NVFlare controller: `control_flow` closed the wire."""

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """Drop an answer that came to the NVFlare controller after its exchange had ended."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Serve exchanges until the other end hangs up or the engine aborts the job."""
        sites = [client.name for client in fl_ctx.get_engine().get_clients()]
        run_relay(
            self._path,
            sites,
            lambda errand: self._exchange(errand, abort_signal, fl_ctx),
            lambda: bool(abort_signal.triggered),
        )
        self.log_info(fl_ctx, "the submitter hung up: the job is done")

    def _exchange(self, errand: Errand, abort_signal: Any, fl_ctx: Any) -> None:
        """Broadcast one errand to its sites as an NVFlare task, until all have answered or time is up."""
        missing = set(errand.sites)
        complete = threading.Event()

        def received(client_task: ClientTask, fl_ctx: Any) -> None:
            """Pass a site's answer to the NVFlare task on, over the wire."""
            answer = client_task.result.get(CONTENT) if isinstance(client_task.result, Shareable) else None
            missing.discard(client_task.client.name)
            if isinstance(answer, bytes):
                try:
                    errand.answer(client_task.client.name, answer)
                except OSError:
                    complete.set()  # nobody listens any more; the loop notices
            client_task.result = None
            if not missing:
                complete.set()

        content = Shareable()
        content[CONTENT] = errand.request
        content[SECONDS] = errand.seconds
        # Our own event ends the exchange; the engine's timeout, in whole seconds, only cleans up after it.
        task = Task(name=TASK, data=content, timeout=math.ceil(errand.seconds) + 1, result_received_cb=received)
        self.broadcast(task, fl_ctx, targets=errand.sites, min_responses=len(errand.sites))
        deadline = time.monotonic() + errand.seconds
        while not (complete.is_set() or abort_signal.triggered) and time.monotonic() < deadline:
            complete.wait(min(0.5, max(0.0, deadline - time.monotonic())))
            if errand.lost():
                break
        if missing:
            self.cancel_task(task, completion_status=TaskCompletionStatus.CANCELLED, fl_ctx=fl_ctx)
