"""What the server knows after some of a plan's stages, simulated round by round: before training, or with it.

All runs are asked at once: the silos' averaged answers are computed together (`simulation.questions`), and every run
has the noise of its own seed and draws the server's own conclusions. Nothing here is private.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import jax
import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import EVERYBODY, Participation, Plan, Stage
from ringfence.protocol.schedule import task
from ringfence.server.learned import Answers, Learned
from ringfence.server.questions import using
from ringfence.silo.records import Records
from ringfence.simulation.channels import simulating
from ringfence.simulation.channels.own_noise import GaussianNoise
from ringfence.simulation.questions import Federated

Silos: TypeAlias = Sequence[tuple[FloatArray, FloatArray] | Records]


def learned(plan: Plan, silos: Silos, seed: int) -> Learned:
    """Simulate the stages before the first training stage; if a plan begins with training, nothing is known yet."""
    return learned_after(plan, silos, [seed], plan.training_numbers[0])[0]


def learned_after(plan: Plan, silos: Silos, seeds: Sequence[int], stages: int) -> list[Learned]:
    """Simulate the first `stages` stages once for each seed, and return what the server knows after each run.

    Every silo answers, from all its records, with Gaussian noise of the plan's sigma, or with coins through a shuffler.
    """
    known = [Learned.nothing(plan) for _ in seeds]
    choices = [np.random.default_rng(seed) for seed in seeds]
    held = Federated(plan, silos)
    names, weights = zip(*((terms.name, terms.weight) for terms in plan.silos), strict=True)
    step = 0
    for round in range(plan.rounds):
        stage, number, place = plan.place(round)
        if number >= stages:
            break
        _require_everything(stage, len(plan.silos))
        question, server = stage.question, using(stage.question)
        arguments = [server.argument(question, own, step) for own in known]
        sigmas = np.array([task(plan, terms, round, place).sigma for terms in plan.silos])
        # Whoever surveys may look at each silo's answer; training needs the average alone, as does what is collected.
        together = question.trains or stage.channel.is_collected
        exact = held.means(question, arguments) if together else held.each(question, arguments)
        for run, found in enumerate(exact):
            if stage.channel.is_collected:
                mean, each = found + collected_noise(plan, number, choices[run], len(found)), {}
            else:
                noise = sigmas[:, None] * choices[run].standard_normal((len(sigmas), found.shape[-1]))
                mean = weights @ noise + (found if together else weights @ found)
                each = {} if together else dict(zip(names, found + noise, strict=True))
            known[run] = server.receive(question, known[run], Answers(number, place, step, names, mean, each))
        step += question.trains
    return known


def collected_noise(plan: Plan, number: int, random: np.random.Generator, length: int) -> FloatArray:
    """Draw what all silos' coins add to a stage's average, where no silo's own noise is seen."""
    own = [terms.stages[number] for terms in plan.silos]
    deviation = math.hypot(*(terms.weight * of.sigma for terms, of in zip(plan.silos, own, strict=True)))
    batches = np.array([of.batch for of in own])
    key = jax.random.key(int(random.integers(2**32)))
    drawn = simulating(plan.stages[number].channel).draw(key, length, np.ones(len(own), int), batches, np.float32)
    return deviation * np.asarray(drawn, dtype=np.float64)


def _require_everything(stage: Stage, silos: int) -> None:
    """Refuse what is simulated in compiled programs only."""
    everybody = stage.participation in (EVERYBODY, Participation(silos=silos))
    fresh = stage.channel.is_collected or simulating(stage.channel) == GaussianNoise()
    if not (stage.sampling.takes_all and everybody and fresh):
        raise TrainingError(
            f"The simulator asks every silo for the {stage.question.name} of all its records, with fresh noise in each "
            "round: leave sampling, participation and correlation of that stage out."
        )
