"""Algorithms with the parameters that theory gives them, and what is certified of each: nothing here is tuned."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ringfence.errors import PlanError
from ringfence.experiments.synthetic import DISTANCE, Dataset, Size
from ringfence.planning import certificates, lower_bounds
from ringfence.planning.prescribe import Member, Proposal, propose
from ringfence.planning.problem import Problem
from ringfence.protocol.algorithms import Localized, MinibatchSGD, Phase
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.domain import Ball
from ringfence.protocol.losses import Logistic
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Geometry
from ringfence.simulation import engine
from ringfence.simulation.abstract import schema_of

CLIP = 1.0
"""L of the logistic loss for ‖x‖ ≤ 1, so nothing is clipped."""
SMOOTHNESS = 0.25
CORRELATION = 0.45
RIDGES = tuple(0.1 * 2.0**-k for k in range(14))


@dataclass(frozen=True)
class Certified:
    """A plan, and bounds on the expected excess risks of what it learns: NaN where none is proved."""

    plan: Plan
    empirical: float = math.nan
    population: float = math.nan
    remark: str = ""


@dataclass(frozen=True)
class Bound:
    """A lower bound, up to constants and logarithms, and which one it is."""

    empirical: float
    population: float
    name: str


Make = Callable[[Size, float], Certified]


def run(certified: Certified, data: Dataset, seeds: list[int]) -> FloatArray:
    """Train once per seed, side by side, and return the weights: one row per seed."""
    plan = certified.plan
    found = [engine.surveyed_smoothness(plan, data.silos, seed) for seed in seeds]
    streams, runs = engine.from_plans([plan] * len(seeds), seeds, smoothness=found)
    weights = engine.simulate(engine.Rules.of(plan), data.federation, streams, runs)
    return np.asarray(weights, dtype=np.float64)


@cache
def certified(method: str, size: Size, epsilon: float) -> Certified:
    """Plan a method for a problem."""
    return METHODS[method](size, epsilon)


@cache
def lower_bound(size: Size, epsilon: float) -> Bound:
    """Return the lower bound for untrusted servers where its conditions hold, else the one with a trusted server."""
    problem = _problem(size, epsilon)
    try:
        return Bound(lower_bounds.empirical(problem), lower_bounds.population(problem), "untrusted server")
    except PlanError:
        return Bound(
            lower_bounds.central_empirical(problem), lower_bounds.central_population(problem), "trusted server"
        )


def _proposal(size: Size, epsilon: float, **wishes: Any) -> Proposal:
    members = [Member(f"silo {i}", size.records, epsilon, size.delta) for i in range(size.silos)]
    wishes = wishes if "rounds" in wishes else {"most_rounds": size.rounds, **wishes}
    return propose(
        schema_of(Geometry(size.dimension, 1.0, 1.0), Logistic()),
        members,
        loss=Logistic(),
        clip=CLIP,
        distance=DISTANCE,
        domain=Ball(radius=DISTANCE),
        run="synthetic",
        **wishes,
    )


def _problem(size: Size, epsilon: float) -> Problem:
    return Problem(
        silos=size.silos,
        records=size.records,
        dimension=size.dimension,
        lipschitz=CLIP,
        diameter=2 * DISTANCE,
        epsilon=epsilon,
        delta=size.delta,
        smoothness=SMOOTHNESS,
    )


def _certificate(proposal: Proposal) -> float:
    return math.nan if proposal.choice is None else proposal.choice.certificate


def _empirical(**wishes: Any) -> Make:
    def make(size: Size, epsilon: float) -> Certified:
        proposal = _proposal(size, epsilon, sampling="full", **wishes)
        return Certified(proposal.plan, empirical=_certificate(proposal))

    return make


def _one_pass(**wishes: Any) -> Make:
    def make(size: Size, epsilon: float) -> Certified:
        proposal = _proposal(size, epsilon, sampling="one-pass", **wishes)
        # Noise that depends on earlier rounds' is outside of what the certificate was proved for.
        proved = not proposal.plan.correlation
        return Certified(proposal.plan, population=_certificate(proposal) if proved else math.nan)

    return make


def _minibatch(size: Size, epsilon: float) -> Certified:
    """Certify minibatch SGD's empirical risk, and with its stability also the population's."""
    proposal = _proposal(size, epsilon, algorithm="minibatch-sgd", sampling="full", rounds=size.rounds)
    spec, proved = proposal.plan.algorithm, _certificate(proposal)
    assert isinstance(spec, MinibatchSGD)  # noqa: S101 (as asked for)
    overfit = certificates.minibatch_stability(
        lipschitz=CLIP,
        smoothness=SMOOTHNESS,
        step=spec.step,
        rounds=size.rounds,
        records=size.records,
        silos=size.silos,
    )
    return Certified(proposal.plan, proved, proved + overfit)


def _surveyed(size: Size, epsilon: float) -> Certified:
    """Plan acceleration after a survey; what it will find is not known beforehand, so nothing is certified."""
    return Certified(_proposal(size, epsilon, algorithm="accelerated", sampling="full", survey=True).plan)


def _localized_by_certificate(size: Size, epsilon: float) -> Certified:
    """Plan localization with the penalty that has the least certificate."""
    problem = replace(_problem(size, epsilon), distance=DISTANCE)
    return _localized(size, epsilon, certificates.localized_phases(problem, most_rounds=size.rounds))


def _localized_by_formula(size: Size, epsilon: float) -> Certified:
    """Plan localization with the penalty that gives it the optimal rate."""
    problem = _problem(size, epsilon)
    penalty = certificates.localized_penalty(problem)
    return _localized(size, epsilon, certificates.localized_phases(problem, most_rounds=size.rounds, penalty=penalty))


def _localized(size: Size, epsilon: float, planned: certificates.Localized) -> Certified:
    phases = tuple(Phase(rounds=phase.rounds, penalty=phase.penalty) for phase in planned.phases)
    proposal = _proposal(size, epsilon, algorithm=Localized(smoothness=SMOOTHNESS, phases=phases))
    return Certified(proposal.plan, population=planned.certificate, remark=_phases(proposal.plan))


def localized_rounds(size: Size, epsilon: float) -> int:
    """Return how many rounds localization with the formula's λ would take if it had no limit."""
    problem = _problem(size, epsilon)
    return certificates.localized_phases(problem, penalty=certificates.localized_penalty(problem)).rounds


def _phases(plan: Plan) -> str:
    assert isinstance(plan.algorithm, Localized)  # noqa: S101 (as asked for)
    phases = plan.algorithm.phases
    return f"{len(phases)} phase{'s' if len(phases) > 1 else ''}, first λ {phases[0].penalty:.2g}"


def _multistage(size: Size, epsilon: float) -> Certified:
    """Plan stages with that ridge for which the certificate, with (ridge/2)D₀² for the ridge itself, is least."""
    planned = []
    for ridge in RIDGES:
        try:
            proposal = _proposal(size, epsilon, algorithm="multi-stage", sampling="full", ridge=ridge)
        except PlanError:  # too small a ridge for a single stage
            continue
        planned.append((_certificate(proposal) + ridge / 2 * DISTANCE**2, ridge, proposal.plan))
    if not planned:
        raise PlanError("No ridge lets a stage halve the error here: give more records, or more epsilon.")
    total, ridge, plan = min(planned, key=lambda found: found[0])
    return Certified(plan, empirical=total, remark=f"ridge {ridge:.2g}")


METHODS: Mapping[str, Make] = {
    "minibatch SGD": _minibatch,
    "accelerated": _empirical(algorithm="accelerated", survey=False),
    "accelerated after a survey": _surveyed,
    "regularised": _empirical(algorithm="regularised"),
    "multi-stage with a ridge": _multistage,
    "one-pass accelerated": _one_pass(algorithm="accelerated", survey=False),
    "one-pass minibatch": _one_pass(algorithm="minibatch-sgd"),
    "one-pass minibatch, correlated noise": _one_pass(algorithm="minibatch-sgd", correlation=CORRELATION),
    "localized, certificate's λ": _localized_by_certificate,
    "localized, formula's λ": _localized_by_formula,
}
