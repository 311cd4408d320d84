"""All rounds of a plan on given records, with seeded noise and without gates. Nothing here is private."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from threadpoolctl import threadpool_limits

from ringfence.protocol import FloatArray, Plan
from ringfence.rehearsal.answers import NoiselessAnswers, Silos
from ringfence.server.queries import handler_of, requested
from ringfence.server.state import RoundAnswers, ServerState

CollectedNoise: TypeAlias = Callable[[Plan, int, np.random.Generator, int], FloatArray]
"""Draws the noise of a stage's average where a third party collects the answers, given the number of its numbers."""


def simulated_state(
    plan: Plan,
    silos: Silos,
    seeds: int | Sequence[int],
    stages: int | None = None,
    *,
    candidates: Sequence[FloatArray] = (),
    collected: CollectedNoise | None = None,
    dtype: DTypeLike = np.float64,
) -> ServerState:
    """Simulate the first `stages` stages, or all, and return the server's state after them.

    With several seeds, there is a run for each, and what differs between runs begins with an axis of them; these stages
    must not train. Every silo answers from all its records, with Gaussian noise of the plan's sigma. Where a round asks
    only some of them, the average has as much more noise. `candidates` are the weights of models that the plan
    compares. Silos compute in numbers of the type `dtype`.
    """
    runs = _Runs(plan, silos, seeds, collected or _gaussian, dtype)
    state = ServerState.initial(plan, candidates)
    with threadpool_limits(limits=1, user_api="blas"):  # products are small: threads would wait for each other
        for round in range(plan.rounds):
            stage, number, _ = plan.place(round)
            if stages is not None and number >= stages:
                break
            answers = runs.answered(round, requested(stage.query, state, round))
            state = handler_of(stage.query).receive(stage.query, state, answers)
    return state


class _Runs:
    """Silos that answer in one run, or in several at once, each with noise of its own seed."""

    def __init__(
        self, plan: Plan, silos: Silos, seeds: int | Sequence[int], collected: CollectedNoise, dtype: DTypeLike
    ) -> None:
        self._plan, self._collected = plan, collected
        self._shape = np.shape(seeds)
        self._random = [np.random.default_rng(seed) for seed in np.ravel(seeds).tolist()]
        self._silos, self._dtype, self._noiseless = silos, dtype, NoiselessAnswers(plan, silos, dtype)
        self._names = [terms.name for terms in plan.silos]
        self._weights = np.array([terms.weight for terms in plan.silos])
        self._sigmas = np.array([[own.sigma for own in terms.stages] for terms in plan.silos]).T

    def answered(self, round: int, argument: FloatArray) -> RoundAnswers:
        """Return the answers to an argument, or to one for each run."""
        plan, (stage, number, _) = self._plan, self._plan.place(round)
        names, weights = self._names, self._weights
        if knots := stage.query.knots(plan):
            self._place(argument[..., :knots])
        arguments = list(np.atleast_2d(argument)[:, knots:])
        # A survey may use each silo's answer; training, and a shuffler, give the average alone.
        if stage.channel.is_collected:
            mean = self._noiseless.means(stage.query, arguments)
            drawn = [self._collected(plan, number, own, mean.shape[-1]) for own in self._random]
            return RoundAnswers(number, round, names, self._of_runs(mean + np.stack(drawn)))
        shape = (len(names), stage.query.length(plan))
        noise = self._sigmas[number][:, None] * np.stack([own.standard_normal(shape) for own in self._random])
        wider = stage.participation.share(len(names)) ** -0.5
        if stage.query.trains:
            mean = self._noiseless.means(stage.query, arguments) + wider * np.einsum("i,rij->rj", weights, noise)
            return RoundAnswers(number, round, names, self._of_runs(mean))
        exact = self._noiseless.each(stage.query, arguments)
        mean = np.einsum("i,rij->rj", weights, exact) + wider * np.einsum("i,rij->rj", weights, noise)
        each = {name: self._of_runs((exact + noise)[:, silo]) for silo, name in enumerate(names)}
        return RoundAnswers(number, round, names, self._of_runs(mean), each)

    def _place(self, knots: FloatArray) -> None:
        """Have the simulated silos answer with the knots of their curves at these places."""
        placed = self._plan.data.placed(knots)  # ValueError for knots of several runs
        if placed is not self._noiseless.plan.data:
            plan = self._plan.model_copy(update={"data": placed})
            self._noiseless = NoiselessAnswers(plan, self._silos, self._dtype)

    def _of_runs(self, rows: FloatArray) -> FloatArray:
        """Return a row per run; of a single one, the row itself."""
        return rows.reshape(*self._shape, rows.shape[-1])


def _gaussian(plan: Plan, number: int, random: np.random.Generator, length: int) -> FloatArray:
    """Draw Gaussian noise of the deviation that all silos' coins have in a simulated stage's average."""
    deviation = math.hypot(*(terms.weight * terms.stages[number].sigma for terms in plan.silos))
    return deviation * random.standard_normal(length)
