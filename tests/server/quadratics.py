"""Small real plans, and silos that answer with the exact gradients of known quadratics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringfence import protocol
from ringfence.protocol import FloatArray
from ringfence.server.rounds import Ask


def make_plan(
    weights: Sequence[float] = (0.5, 0.5),
    *,
    dimension: int = 2,
    rounds: int = 5,
    records: int = 10,
    algorithm: protocol.AlgorithmSpec | Mapping[str, Any] | None = None,
    participation: Mapping[str, Any] | None = None,
    survey: protocol.Query | None = None,
    survey_sigmas: Sequence[float] = (),
    data: Mapping[str, Any] | None = None,
    **training: Any,
) -> protocol.Plan:
    """Make a plan for silos s0, s1, … with the given public weights, unconstrained unless told otherwise.

    An algorithm without a name is minibatch SGD. A survey is a first stage with that query, asked of everybody once.
    """
    spec: Any = algorithm or {"step": 0.5}
    if isinstance(spec, Mapping):
        spec = protocol.MinibatchSGD.model_validate(spec)
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    columns = dict.fromkeys(["y", *(f"x{place}" for place in range(dimension))], number)
    every = [1.0] * len(weights)
    asked: list[tuple[protocol.Query, int, protocol.Sampling, Sequence[float]]] = [
        (protocol.Gradient(clip=1.0), length, rule, every)
        for length, rule in (spec.training_stages("full", rounds) if rounds else ())
    ]
    if survey is not None:
        asked.insert(0, (survey, 1, protocol.Full(), survey_sigmas or every))

    def own_stages(silo: str, place: int) -> list[dict[str, Any]]:
        return [
            {"batch": rule.batch(silo, records=records, rounds=length, asked=None), "sigma": sigmas[place]}
            for _, length, rule, sigmas in asked
        ]

    document = {
        "run": "test",
        "data": data or {"columns": columns, "target": "y", "intercept": False},
        "training": {"loss": {"name": "squared"}, "domain": {"name": "whole-space"}, "algorithm": spec, **training},
        "stages": [
            {
                "query": query,
                "rounds": length,
                "sampling": rule,
                "participation": participation if query.trains and participation else {},
            }
            for query, length, rule, _ in asked
        ],
        "silos": [
            {
                "name": f"s{place}",
                "records": records,
                "weight": weight,
                "guarantees": [{"epsilon": 1.0, "delta": 1e-6}],
                "stages": own_stages(f"s{place}", place),
            }
            for place, weight in enumerate(weights)
        ],
    }
    return protocol.Plan.model_validate(document, strict=False)


def update(request: protocol.RoundRequest, silo: str, vector: FloatArray) -> protocol.NoisyUpdate:
    """Answer a request with a vector."""
    return protocol.NoisyUpdate(plan=request.plan, round=request.round, silo=silo, vector=protocol.pack(vector))


def refuse(request: protocol.RoundRequest, silo: str, reason: protocol.RefusalReason) -> protocol.Refusal:
    """Answer a request with a refusal."""
    return protocol.Refusal(plan=request.plan, round=request.round, silo=silo, reason=reason)


def altered(answer: protocol.Answer, **changes: object) -> protocol.Answer:
    """Return the answer with some fields changed."""
    return type(answer).model_validate({**answer.model_dump(), **changes})


def quadratics(*centers: Sequence[float]) -> Ask:
    """Make silos s0, s1, … whose objective is ½‖w − center‖², so that their exact gradient is w − center."""
    places = {f"s{place}": np.array(center, dtype=np.float64) for place, center in enumerate(centers)}

    def ask(request: protocol.RoundRequest, asked: Sequence[str]) -> Mapping[str, protocol.Answer]:
        return {name: update(request, name, protocol.unpack(request.argument) - places[name]) for name in asked}

    return ask


@dataclass
class Journal:
    """Passes requests on and writes down who was asked at which weights."""

    ask: Ask
    asked: list[tuple[str, ...]] = field(default_factory=list)
    queries: list[FloatArray] = field(default_factory=list)
    requests: list[protocol.RoundRequest] = field(default_factory=list)

    def __call__(self, request: protocol.RoundRequest, asked: Sequence[str]) -> Mapping[str, protocol.Answer]:
        """Write down, then ask."""
        self.asked.append(tuple(asked))
        self.queries.append(protocol.unpack(request.argument))
        self.requests.append(request)
        return self.ask(request, asked)
