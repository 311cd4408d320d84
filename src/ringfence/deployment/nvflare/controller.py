"""The relay inside the engine's server: requests come over the wire, go to the sites, and answers go back as they come.

It holds no state of the training: `ringfence server run` does, in its own process, and survives this one. Requests are
pushed to the sites as NVFlare's auxiliary messages; sites that ask for tasks would wait for their next turn.
"""

import threading
import time
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from ringfence.deployment.nvflare.job import CONTENT, SECONDS, TASK
from ringfence.transport.relay import Errand, run_relay

_WAIT = 5.0, 40.0
"""Seconds for an answer, at first and at most, before a site is asked again: the request may be lost."""
_PAUSE = 1.0
"""Seconds after which a site is asked again if it could not be reached, or its agent could not."""


class Relay(Controller):  # type: ignore[misc]  # nvflare ships no types
    """Relays between the wire and the sites until `ringfence server run` hangs up, which ends the job."""

    def __init__(self, wire: str) -> None:
        """Make NVFlare's controller, which calls `ringfence server run` on the wire."""
        super().__init__()
        self._path = wire
        self._ready: dict[str, threading.Event] = {}
        """Set while a site of the job can be asked."""

    def start_controller(self, fl_ctx: Any) -> None:
        """Hear from NVFlare's clients that they are ready to be asked."""
        engine = fl_ctx.get_engine()
        self._ready = {client.name: threading.Event() for client in engine.get_clients()}
        engine.register_aux_message_handler(TASK, self._called)

    def stop_controller(self, fl_ctx: Any) -> None:
        """Clean nothing up for the NVFlare controller: `control_flow` closed the wire."""

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """Drop the result of an NVFlare task: the relay sets none."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Serve exchanges until the other end hangs up or the engine aborts the job."""
        engine = fl_ctx.get_engine()
        run_relay(
            self._path,
            self._ready,
            lambda errand: self._exchange(errand, abort_signal, engine),
            lambda: bool(abort_signal.triggered),
        )
        self.log_info(fl_ctx, "the submitter hung up: the job is done")

    def _called(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        """Note that an NVFlare client is ready to be asked."""
        if ready := self._ready.get(fl_ctx.get_peer_context().get_identity_name()):
            ready.set()
        return make_reply(ReturnCode.OK)

    def _exchange(self, errand: Errand, abort_signal: Any, engine: Any) -> None:
        """Ask an errand's sites through NVFlare, each in a thread, until all have answered or time is up."""
        deadline, over = time.monotonic() + errand.seconds, threading.Event()
        missing = set(errand.sites)

        def ask(site: str) -> None:
            """Ask one NVFlare client until it answers or the errand is over, and pass its answer on."""
            answer = self._answer(site, errand, deadline, over, engine)
            if answer is not None and not over.is_set():
                try:
                    errand.answer(site, answer)
                except OSError:
                    over.set()  # nobody listens any more; the loop notices
            missing.discard(site)
            if not missing:
                over.set()

        for site in sorted(missing.intersection(self._ready)):
            threading.Thread(target=ask, args=(site,), name=f"errand to {site}", daemon=True).start()
        while missing and not (over.is_set() or abort_signal.triggered) and time.monotonic() < deadline:
            over.wait(min(0.5, max(0.0, deadline - time.monotonic())))
            if errand.lost():
                break
        over.set()

    def _answer(self, site: str, errand: Errand, deadline: float, over: threading.Event, engine: Any) -> bytes | None:
        """Return what the NVFlare client's courier brings from its agent, or None if the errand is over before."""
        ready, (wait, longest) = self._ready[site], _WAIT
        while not over.is_set() and (left := deadline - time.monotonic()) > 0:
            ready.wait(min(wait, left))
            content = Shareable()
            content[CONTENT], content[SECONDS] = errand.request, left
            with engine.new_context() as fl_ctx:
                replies = engine.send_aux_request([site], TASK, content, min(wait, left), fl_ctx, optional=True)
            reply = (replies or {}).get(site)
            if isinstance(reply, Shareable) and isinstance(answer := reply.get(CONTENT), bytes):
                return answer
            wait = min(2 * wait, longest)
            over.wait(min(_PAUSE, left))
        return None
