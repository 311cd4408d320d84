"""Noisy minibatch SGD (Algorithm 2 of the paper; Algorithm 7 for unbalanced silos)."""

from typing import NamedTuple

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import MinibatchSGD, Plan


class State(NamedTuple):
    """Where the next round is asked, the velocity, and the weighted sum of the query points so far."""

    weights: FloatArray
    velocity: FloatArray
    total: FloatArray
    mass: FloatArray | float


def init(plan: Plan, start: FloatArray) -> State:
    """Begin at `start`, which must lie in the plan's domain."""
    del plan
    return State(start, 0.0 * start, 0.0 * start, 0.0)


def query(state: State) -> FloatArray:
    """Return the weights to ask the silos about."""
    return state.weights


def step(plan: Plan, state: State, gradient: FloatArray, round: int) -> State:
    """Take a projected step: v ← momentum·v − step·g, w ← Proj(w + v).

    The average weighs round r by growth^(r − R + 1), which is growth^r without its overflow.
    """
    spec: MinibatchSGD = plan.algorithm
    share = (round >= spec.skip) * spec.growth ** (round - (plan.rounds - 1.0))
    velocity = spec.momentum * state.velocity - spec.step * (gradient + plan.ridge * state.weights)
    return State(
        plan.domain.project(state.weights + velocity),
        velocity,
        state.total + share * state.weights,
        state.mass + share,
    )


def output(state: State) -> FloatArray:
    """Return the weighted average of the query points, or the last point if no round counted."""
    return state.total / state.mass if state.mass else state.weights
