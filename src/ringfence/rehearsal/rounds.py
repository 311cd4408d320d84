"""All rounds of a plan on given records, with seeded noise and without gates. Nothing here is private."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from threadpoolctl import threadpool_limits

from ringfence.protocol import FloatArray, Plan
from ringfence.rehearsal.answers import NoiselessAnswers, Silos
from ringfence.server.queries import handler_of
from ringfence.server.state import RoundAnswers, ServerState

CollectedNoise: TypeAlias = Callable[[Plan, int, np.random.Generator, int], FloatArray]
"""Draws the noise of a stage's average where a third party collects the answers, given the number of its numbers."""


def simulated_states(
    plan: Plan,
    silos: Silos,
    seeds: Sequence[int],
    stages: int | None = None,
    *,
    candidates: Sequence[FloatArray] = (),
    collected: CollectedNoise | None = None,
    dtype: DTypeLike = np.float64,
) -> list[ServerState]:
    """Simulate the first `stages` stages, or all, once for each seed, and return the server's state after each run.

    Every silo answers from all its records, with Gaussian noise of the plan's sigma. Where a round asks only some of
    them, the average has as much more noise. `candidates` are the weights of models that the plan compares. Silos
    compute in numbers of the type `dtype`.
    """
    with threadpool_limits(limits=1, user_api="blas"):  # products are small: threads would wait for each other
        return _states(plan, silos, seeds, stages, candidates, collected, dtype)


def _states(
    plan: Plan,
    silos: Silos,
    seeds: Sequence[int],
    stages: int | None,
    candidates: Sequence[FloatArray],
    collected: CollectedNoise | None,
    dtype: DTypeLike,
) -> list[ServerState]:
    """Simulate stages for each seed, with the server's state after each run."""
    states = [ServerState.initial(plan, candidates)] * len(seeds)
    choices = [np.random.default_rng(seed) for seed in seeds]
    noiseless = NoiselessAnswers(plan, silos, dtype)
    names, weights = [terms.name for terms in plan.silos], np.array([terms.weight for terms in plan.silos])
    sigmas = np.array([[own.sigma for own in terms.stages] for terms in plan.silos]).T
    for round in range(plan.rounds):
        stage, number, _ = plan.place(round)
        if stages is not None and number >= stages:
            break
        query, server = stage.query, handler_of(stage.query)
        arguments = [server.argument(query, own, round) for own in states]
        wider = stage.participation.share(len(names)) ** -0.5
        # A survey may use each silo's answer; training, and a shuffler, give the average alone.
        together = query.trains or stage.channel.is_collected
        exact = noiseless.means(query, arguments) if together else noiseless.each(query, arguments)
        for run, answer in enumerate(exact):
            if stage.channel.is_collected:
                drawn = (collected or _gaussian)(plan, number, choices[run], len(answer))
                mean, each = answer + drawn, {}
            else:
                drawn = sigmas[number][:, None] * choices[run].standard_normal((len(names), answer.shape[-1]))
                mean = wider * (weights @ drawn) + (answer if together else weights @ answer)
                each = {} if together else dict(zip(names, answer + drawn, strict=True))
            states[run] = server.receive(query, states[run], RoundAnswers(number, round, names, mean, each))
    return states


def _gaussian(plan: Plan, number: int, random: np.random.Generator, length: int) -> FloatArray:
    """Draw Gaussian noise of the deviation that all silos' coins have in a simulated stage's average."""
    deviation = math.hypot(*(terms.weight * terms.stages[number].sigma for terms in plan.silos))
    return deviation * random.standard_normal(length)
