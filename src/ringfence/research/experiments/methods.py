"""Algorithms with the parameters that theory gives them, and what is proved of each: nothing here is tuned."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.planning.propose import Proposal, propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Ball, FloatArray, Localized, Logistic, MinibatchSGD, Phase, Plan
from ringfence.research.experiments.abstract import Geometry, schema_of
from ringfence.research.experiments.synthetic import DISTANCE, Dataset, Size
from ringfence.research.theory import lower_bounds, population
from ringfence.research.theory.problem import Problem, equal_silos, localized_phases
from ringfence.simulation import engine
from ringfence.simulation.trials import simulated_state

CLIP = 1.0
"""L of the logistic loss for ‖x‖ ≤ 1, so nothing is clipped."""
SMOOTHNESS = 0.25
CORRELATION = 0.45
RIDGES = tuple(0.1 * 2.0**-k for k in range(14))


@dataclass(frozen=True)
class BoundedPlan:
    """A plan, and bounds on the expected excess risks of what it learns: NaN where none is proved."""

    plan: Plan
    empirical: float = math.nan
    population: float = math.nan
    remark: str = ""


@dataclass(frozen=True)
class LowerBound:
    """A lower bound, up to constants and logarithms, and which one it is."""

    empirical: float
    population: float
    name: str


Make = Callable[[Size, float], BoundedPlan]


def run(planned: BoundedPlan, data: Dataset, seeds: list[int]) -> FloatArray:
    """Train once per seed, side by side, and return the weights: one row per seed."""
    plan = planned.plan
    known = [simulated_state(plan, data.silos, seed) for seed in seeds]
    streams, runs = engine.from_plans([plan] * len(seeds), seeds, learned=known)
    weights = engine.simulate(engine.Rules.of(plan), data.federation, streams, runs)
    return np.asarray(weights, dtype=np.float64)


@cache
def planned(method: str, size: Size, epsilon: float) -> BoundedPlan:
    """Plan a method for a problem."""
    return METHODS[method](size, epsilon)


@cache
def lower_bound(size: Size, epsilon: float) -> LowerBound:
    """Return the lower bound for untrusted servers where its conditions hold, else the one with a trusted server."""
    problem = problem_of(size, epsilon)
    try:
        return LowerBound(lower_bounds.empirical(problem), lower_bounds.population(problem), "untrusted server")
    except PlanError:
        return LowerBound(
            lower_bounds.central_empirical(problem), lower_bounds.central_population(problem), "trusted server"
        )


def _proposal(size: Size, epsilon: float, request: PlanRequest) -> Proposal:
    """Complete the request by what is known of the synthetic problems, and answer it."""
    members = [Member(f"silo {i}", size.records, epsilon, size.delta) for i in range(size.silos)]
    request = replace(
        request,
        most_rounds=size.rounds if request.rounds is None else None,
        loss=Logistic(),
        clip=CLIP,
        distance=DISTANCE,
        domain=Ball(radius=DISTANCE),
        run="synthetic",
    )
    return propose(schema_of(Geometry(size.dimension, 1.0, 1.0), Logistic()), members, request)


def problem_of(size: Size, epsilon: float) -> Problem:
    """Return the synthetic problems in the numbers of theory."""
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


def _bound(proposal: Proposal) -> float:
    return math.nan if proposal.choice is None else proposal.choice.bound


def _empirical(request: PlanRequest) -> Make:
    def make(size: Size, epsilon: float) -> BoundedPlan:
        proposal = _proposal(size, epsilon, replace(request, sampling="full"))
        return BoundedPlan(proposal.plan, empirical=_bound(proposal))

    return make


def _one_pass(request: PlanRequest) -> Make:
    def make(size: Size, epsilon: float) -> BoundedPlan:
        proposal = _proposal(size, epsilon, replace(request, sampling="one-pass"))
        # Noise that depends on earlier rounds' is outside of what the bound was proved for.
        proved = not request.correlation
        return BoundedPlan(proposal.plan, population=_bound(proposal) if proved else math.nan)

    return make


def _minibatch(size: Size, epsilon: float) -> BoundedPlan:
    """Bound minibatch SGD's empirical risk, and with its stability also the population's."""
    request = PlanRequest(algorithm="minibatch-sgd", sampling="full", rounds=size.rounds)
    proposal = _proposal(size, epsilon, request)
    spec, proved = proposal.plan.algorithm, _bound(proposal)
    assert isinstance(spec, MinibatchSGD)  # noqa: S101 (as asked for)
    overfit = population.minibatch_stability(
        lipschitz=CLIP,
        smoothness=SMOOTHNESS,
        step=spec.step,
        rounds=size.rounds,
        records=size.records,
        silos=size.silos,
    )
    return BoundedPlan(proposal.plan, proved, proved + overfit)


def _surveyed(size: Size, epsilon: float) -> BoundedPlan:
    """Plan acceleration after a survey; what it will find is not known beforehand, so nothing is proved."""
    return BoundedPlan(
        _proposal(size, epsilon, PlanRequest(algorithm="accelerated", sampling="full", survey=True)).plan
    )


def _localized_by_bound(size: Size, epsilon: float) -> BoundedPlan:
    """Plan localization with the penalty that has the least bound."""
    problem = replace(problem_of(size, epsilon), distance=DISTANCE)
    return _localized(size, epsilon, localized_phases(problem, most_rounds=size.rounds))


def _localized_by_formula(size: Size, epsilon: float) -> BoundedPlan:
    """Plan localization with the penalty that gives it the optimal rate."""
    problem = problem_of(size, epsilon)
    penalty = loss_bounds.localized_penalty(equal_silos(problem))
    return _localized(size, epsilon, localized_phases(problem, most_rounds=size.rounds, penalty=penalty))


def _localized(size: Size, epsilon: float, planned: loss_bounds.LocalizedBound) -> BoundedPlan:
    phases = tuple(Phase(rounds=phase.rounds, penalty=phase.penalty) for phase in planned.phases)
    proposal = _proposal(size, epsilon, PlanRequest(algorithm=Localized(smoothness=SMOOTHNESS, phases=phases)))
    return BoundedPlan(proposal.plan, population=planned.bound, remark=_phases(proposal.plan))


def localized_rounds(size: Size, epsilon: float) -> int:
    """Return how many rounds localization with the formula's λ would take if it had no limit."""
    problem = problem_of(size, epsilon)
    return localized_phases(problem, penalty=loss_bounds.localized_penalty(equal_silos(problem))).rounds


def _phases(plan: Plan) -> str:
    assert isinstance(plan.algorithm, Localized)  # noqa: S101 (as asked for)
    phases = plan.algorithm.phases
    return f"{len(phases)} phase{'s' if len(phases) > 1 else ''}, first λ {phases[0].penalty:.2g}"


def _multistage(size: Size, epsilon: float) -> BoundedPlan:
    """Plan stages with that ridge for which the bound, with (ridge/2)D₀² for the ridge itself, is least."""
    planned = []
    for ridge in RIDGES:
        try:
            proposal = _proposal(size, epsilon, PlanRequest(algorithm="multi-stage", sampling="full", ridge=ridge))
        except PlanError:  # too small a ridge for a single stage
            continue
        planned.append((_bound(proposal) + ridge / 2 * DISTANCE**2, ridge, proposal.plan))
    if not planned:
        raise PlanError("No ridge lets a stage halve the error here. Use more records or a larger epsilon.")
    total, ridge, plan = min(planned, key=lambda found: found[0])
    return BoundedPlan(plan, empirical=total, remark=f"ridge {ridge:.2g}")


METHODS: Mapping[str, Make] = {
    "minibatch SGD": _minibatch,
    "accelerated": _empirical(PlanRequest(algorithm="accelerated", survey=False)),
    "accelerated after a survey": _surveyed,
    "regularised": _empirical(PlanRequest(algorithm="regularised")),
    "multi-stage with a ridge": _multistage,
    "one-pass accelerated": _one_pass(PlanRequest(algorithm="accelerated", survey=False)),
    "one-pass minibatch": _one_pass(PlanRequest(algorithm="minibatch-sgd")),
    "one-pass minibatch, correlated noise": _one_pass(PlanRequest(algorithm="minibatch-sgd", correlation=CORRELATION)),
    "localized, bound's λ": _localized_by_bound,
    "localized, formula's λ": _localized_by_formula,
}
