"""An agent that meets an accident in a chosen round: python -m tests.silo.crashing_agent FOLDER [--point POINT ...]

Without a point it is the agent as `ringfence silo serve` starts it.
"""

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringfence.protocol import Answer, RoundRequest
from ringfence.silo import agent
from ringfence.silo.channels import own_noise
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import mechanism, sampling
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.ledger import Ledger
from ringfence.storage.chain import Chain
from ringfence.transport import connections, serving
from tests.processes import say_ready


def die(*_: object, **__: object) -> None:
    """End at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_once_appended(kind: str) -> Callable[..., Any]:
    """Die when an entry of this kind is written and not yet committed."""
    append = Chain.append

    def dying(self: Chain, draft: Any, *rest: Any) -> Any:
        entry = append(self, draft, *rest)
        if draft.kind == kind:
            die()
        return entry

    return dying


FATAL: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "before-charge": (Ledger, "update", die),
    "in-charge": (Chain, "append", die_once_appended("charged")),
    "after-charge": (sampling, "draw", die),
    "after-draw": (mechanism, "release", die),
    "after-release": (own_noise, "message", die),
    "in-store": (Chain, "append", die_once_appended("released")),
}
"""By the step of a round at which the agent dies: which function kills it."""

POINTS = [*FATAL, "before-send", "after-send"]


def arm(point: str, at: int) -> None:
    """Place the trap for the given round."""
    answer, call = Gate.answer, agent.Agent.__call__
    sprung = False

    def watched(self: Gate, request: RoundRequest) -> Answer:
        nonlocal sprung
        if request.round == at:
            sprung = True
            if point in FATAL:
                setattr(*FATAL[point])
        given = answer(self, request)
        if sprung and point == "before-send":
            die()
        return given

    async def sent(self: agent.Agent, scope: Any, receive: Any, send: Any) -> None:
        await call(self, scope, receive, send)
        if sprung and point == "after-send":
            die()

    Gate.answer = watched  # type: ignore[method-assign]
    setattr(agent.Agent, "__call__", sent)  # noqa: B010 (mypy does not let a method be assigned)


def main() -> None:
    """Serve the folder."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--point", default="none")
    options.add_argument("--round", type=int, default=1)
    options.add_argument("--port", type=int)
    options.add_argument("--seconds", type=float)
    options.add_argument("--ready", type=int)
    given = options.parse_args()
    if given.point != "none":
        arm(given.point, given.round)
    if given.seconds is not None:
        serving.RECEIVE_SECONDS = connections.HEAD_SECONDS = connections.SEND_SECONDS = given.seconds
        connections.LEAST_RATE = 2.0**24

    def ready(where: str) -> None:
        print(f"is served at {where}")
        if given.ready is not None:
            say_ready(given.ready)

    agent.serve(SiloFolder.open(given.folder), port=given.port, ready=ready)


if __name__ == "__main__":
    main()
