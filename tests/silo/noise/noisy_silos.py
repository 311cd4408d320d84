"""Silos that answer in processes of their own: python -m tests.silo.noise.noisy_silos MODE FOLDER

fork      eight silos of the same records and plan, six of them in forked processes; prints their answers
inherit   a forked process uses the gate that its parent opened; prints what it answers
unseeded  every kind of plan, while all generators that can be seeded raise; prints which were answered
"""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Answer, NoisyUpdate, Plan, PublicKeys, Refusal, RoundRequest, unpack
from ringfence.shuffler import sealing
from ringfence.shuffler.sealing import verifying_key
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from tests.shuffler.shuffled_federation import NAMES, make_shuffled_plan, records_of, schema_of

SCHEMA = schema_of(3)
KEY = sealing.new_key()


def made(sampling: str = "full", **said: Any) -> Plan:
    options = {"rounds": 2, "survey": False, "sampling": sampling, **said}
    return make_plan(SCHEMA, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(**options))


def ask(gate: Gate, plan: Plan, round: int) -> Answer:
    return gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))


def opened(path: Path) -> Gate:
    """Return the gate of a new silo; all have the same records."""
    ledger = Ledger.create(path, silo="clinic", budget=Budget(50.0, 1e-6))
    return Gate(records_of(SCHEMA, 40, 0), ledger, KEY)


def answer_two_rounds(path: Path, plan: Plan) -> None:
    gate = opened(path)
    gate.approve(plan)
    for round in range(2):
        answer = ask(gate, plan, round)
        assert isinstance(answer, NoisyUpdate)
        print(unpack(answer.vector).tobytes().hex(), flush=True)


def in_a_fork(work: Callable[[], None]) -> None:
    """Do something in a forked process, and wait for it."""
    child = os.fork()
    if child == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def fork(folder: Path) -> None:
    """The parent draws first, so that whatever state its sampler has is handed down to every child."""
    plan = made()
    answer_two_rounds(folder / "first.ledger", plan)
    for number in range(6):
        in_a_fork(lambda number=number: answer_two_rounds(folder / f"{number}.ledger", plan))  # type: ignore[misc]
    answer_two_rounds(folder / "last.ledger", plan)


def inherit(folder: Path) -> None:
    plan, gate = made(), opened(folder / "clinic.ledger")
    gate.approve(plan)

    def answer() -> None:
        refused = ask(gate, plan, 0)
        assert isinstance(refused, Refusal)
        print(refused.reason.value)

    in_a_fork(answer)


def forbid(module: ModuleType) -> None:
    """Let every function and class of a module raise."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a seeded generator was used")

    for name, value in list(vars(module).items()):
        if callable(value):
            setattr(module, name, fail)


def unseeded(folder: Path) -> None:
    silos = {name: verifying_key(KEY) for name in NAMES}
    server, shuffler = (sealing.public_key(sealing.new_key()) for _ in range(2))
    keys = PublicKeys(server=server, shuffler=shuffler, silos=silos)
    plans = {kind: made(kind) for kind in ("full", "fixed", "poisson")}
    plans["one-pass"] = made("one-pass", correlation=0.5)
    plans["surveyed"] = made(survey=True)
    plans["shuffled"] = make_shuffled_plan(SCHEMA, keys, dict.fromkeys(NAMES, 40))
    gate = opened(folder / "clinic.ledger")
    assert not {name.split(".")[0] for name in sys.modules} & {"jax", "torch", "sklearn"}
    for name, module in list(sys.modules.items()):
        if name.startswith("ringfence."):
            kept = [value for value in vars(module).values() if isinstance(value, np.random.Generator | random.Random)]
            assert not kept, name
    forbid(random)
    forbid(np.random)
    for kind, plan in plans.items():
        gate.approve(plan)
        if not any(isinstance(ask(gate, plan, round), Refusal) for round in range(plan.rounds)):
            print(f"{kind} answered")


if __name__ == "__main__":
    {"fork": fork, "inherit": inherit, "unseeded": unseeded}[sys.argv[1]](Path(sys.argv[2]))
