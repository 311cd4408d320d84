"""An agent that may meet an accident: python -m tests.silo.crashing_agent FOLDER [--dies-before-sending ROUND ...]

Without that round it is the agent as `ringfence silo serve` starts it.
"""

import argparse
import os
import signal
from pathlib import Path

from ringfence.protocol import Answer, RoundRequest
from ringfence.silo import agent
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.transport import connections, serving
from tests.processes import say_ready


def arm(at: int) -> None:
    """Die when this round's answer is stored and not yet sent."""
    answer = Gate.answer

    def watched(self: Gate, request: RoundRequest) -> Answer:
        given = answer(self, request)
        if request.round == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return given

    Gate.answer = watched  # type: ignore[method-assign]


def main() -> None:
    """Serve the folder."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--dies-before-sending", type=int)
    options.add_argument("--port", type=int)
    options.add_argument("--seconds", type=float)
    options.add_argument("--ready", type=int)
    given = options.parse_args()
    if given.dies_before_sending is not None:
        arm(given.dies_before_sending)
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
