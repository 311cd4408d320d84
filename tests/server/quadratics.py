"""Small real plans, and silos that answer with the exact gradients of known quadratics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringfence.protocol.algorithms import AlgorithmSpec
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, NoisyUpdate, Reason, Refusal, RoundRequest, pack, unpack
from ringfence.protocol.plan import Plan
from ringfence.server.rounds import Ask


def make_plan(
    weights: Sequence[float] = (0.5, 0.5),
    *,
    dimension: int = 2,
    rounds: int = 5,
    algorithm: AlgorithmSpec | Mapping[str, Any] | None = None,
    **changes: Any,
) -> Plan:
    """Make a plan for silos s0, s1, … with the given public weights, unconstrained unless told otherwise.

    An algorithm without a name is minibatch SGD.
    """
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    terms = {"records": 10, "batch": 10, "sigma": 1.0, "epsilon": 1.0, "delta": 1e-6}
    spec: Any = algorithm or {"step": 0.5}
    if isinstance(spec, Mapping):
        spec = {"name": "minibatch-sgd", **spec}
    document = {
        "run": "test",
        "data": {
            "columns": dict.fromkeys(["y", *(f"x{place}" for place in range(dimension))], number),
            "target": "y",
            "intercept": False,
        },
        "loss": {"name": "squared"},
        "clip": 1.0,
        "domain": {"name": "whole-space"},
        "sampling": "full",
        "rounds": rounds,
        "algorithm": spec,
        "silos": [{"name": f"s{place}", "weight": weight, **terms} for place, weight in enumerate(weights)],
    }
    return Plan.model_validate({**document, **changes}, strict=False)


def update(request: RoundRequest, silo: str, vector: FloatArray) -> NoisyUpdate:
    """Answer a request with a vector."""
    return NoisyUpdate(plan=request.plan, round=request.round, silo=silo, vector=pack(vector))


def refuse(request: RoundRequest, silo: str, reason: Reason) -> Refusal:
    """Answer a request with a refusal."""
    return Refusal(plan=request.plan, round=request.round, silo=silo, reason=reason)


def altered(answer: Answer, **changes: object) -> Answer:
    """Return the answer with some fields changed."""
    return type(answer).model_validate({**answer.model_dump(), **changes})


def quadratics(*centers: Sequence[float]) -> Ask:
    """Make silos s0, s1, … whose objective is ½‖w − center‖², so that their exact gradient is w − center."""
    places = {f"s{place}": np.array(center, dtype=np.float64) for place, center in enumerate(centers)}

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {name: update(request, name, unpack(request.weights) - places[name]) for name in asked}

    return ask


@dataclass
class Journal:
    """Passes requests on and writes down who was asked at which weights."""

    ask: Ask
    asked: list[tuple[str, ...]] = field(default_factory=list)
    queries: list[FloatArray] = field(default_factory=list)
    requests: list[RoundRequest] = field(default_factory=list)

    def __call__(self, request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        """Write down, then ask."""
        self.asked.append(tuple(asked))
        self.queries.append(unpack(request.weights))
        self.requests.append(request)
        return self.ask(request, asked)
