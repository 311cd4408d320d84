"""An agent that meets an accident in a chosen round: python -m tests.silo.crashing_agent FOLDER [--point POINT ...]

Without a point it is the agent as `ringfence silo serve` starts it.
"""

import argparse
import resource
from pathlib import Path
from typing import Any

from ringfence.protocol.messages import Answer, RoundRequest
from ringfence.silo import agent, mechanism
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.transport import connections, serving
from tests.processes import say_ready
from tests.silo import crashing_silo

POINTS = [*crashing_silo.POINTS[:-1], "after-send"]


def fill_the_disk(full: bool) -> None:
    """Let no file grow, and none be written to, as on a full disk; or let them again."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0 if full else most, most))


def fail_with_a_record(*_: object, **__: object) -> None:
    raise ValueError("the record of patient 0.123456789 is strange")


def arm(point: str, at: int) -> None:
    """Place the trap for the given round."""
    answer, call = Gate.answer, agent.Agent.__call__
    sprung = False

    def watched(self: Gate, request: RoundRequest) -> Answer:
        nonlocal sprung
        if point == "disk-full":
            fill_the_disk(request.round == at)
        elif request.round == at:
            sprung = True
            if point == "bug":
                vars(mechanism)["release"] = fail_with_a_record
            else:
                crashing_silo.arm(point)
        given = answer(self, request)
        if sprung and point == "before-send":
            crashing_silo.die()
        return given

    async def sent(self: agent.Agent, scope: Any, receive: Any, send: Any) -> None:
        await call(self, scope, receive, send)
        if sprung and point == "after-send":
            crashing_silo.die()

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
