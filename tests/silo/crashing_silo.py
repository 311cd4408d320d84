"""A silo process that kills itself at a chosen point: python -m tests.silo.crashing_silo FOLDER POINT ROUND..."""

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.errors import PlanError
from ringfence.protocol.messages import RoundRequest
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Schema
from ringfence.silo import mechanism, randomness
from ringfence.silo.channels import own_noise
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from ringfence.storage.chain import Chain

POINTS = [
    "before-charge",
    "in-charge",
    "after-charge",
    "after-draw",
    "after-release",
    "in-store",
    "before-send",
    "none",
]


def die(*_: object, **__: object) -> None:
    """End at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Place the trap."""
    append = Chain.append

    def dying_append(kind: str) -> Callable[..., Any]:
        def wrapped(self: Chain, draft: Any, *rest: Any) -> Any:
            entry = append(self, draft, *rest)
            if draft.kind == kind:
                die()
            return entry

        return wrapped

    if point == "before-charge":
        Ledger.update = die  # type: ignore[method-assign, assignment]
    elif point == "in-charge":  # written, not yet committed
        Chain.append = dying_append("charged")  # type: ignore[method-assign]
    elif point == "after-charge":
        randomness.draw = die  # type: ignore[assignment]
    elif point == "after-draw":
        mechanism.release = die  # type: ignore[assignment]
    elif point == "after-release":
        own_noise.message = die  # type: ignore[assignment]
    elif point == "in-store":
        Chain.append = dying_append("released")  # type: ignore[method-assign]


def main(folder: Path, point: str, rounds: list[int]) -> None:
    """Answer the rounds, the trap set for the last; print each answer when it would be sent."""
    plan = Plan.parse((folder / "plan.json").read_bytes(), error=PlanError)
    features, targets = pickle.loads((folder / "arrays").read_bytes())
    schema: Schema = plan.data
    with Ledger.open(folder / "clinic.ledger") as ledger:
        gate = Gate(Records(schema, features, targets), ledger)
        for round in rounds:
            if round == rounds[-1]:
                arm(point)
            answer = gate.answer(RoundRequest.at(plan.digest(), round, np.full(plan.dimension, 0.1)))
            if round == rounds[-1] and point == "before-send":
                die()
            print(answer.to_bytes().decode(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [int(round) for round in sys.argv[3:]])
