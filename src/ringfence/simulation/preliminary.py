"""What is asked before training begins, simulated with the silo's own computation and the server's own conclusions."""

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import EVERYBODY, Plan
from ringfence.server.channels.own_noise import mean_update
from ringfence.server.learned import Answers, Learned
from ringfence.server.questions import using
from ringfence.silo.questions import computing
from ringfence.silo.records import Records


def learned(plan: Plan, silos: Sequence[tuple[FloatArray, FloatArray] | Records], seed: int) -> Learned:
    """Simulate the stages before the first training stage, and return what the server knows after them.

    Every silo answers, from all its records, with Gaussian noise of the plan's sigma. If a plan begins with training,
    the server knows nothing yet.
    """
    known, choices = Learned.nothing(plan), np.random.default_rng(seed)
    held = [own if isinstance(own, Records) else Records(plan.data, *own) for own in silos]
    for number, stage in enumerate(takewhile(lambda stage: not stage.question.trains, plan.stages)):
        if not stage.sampling.takes_all or stage.participation != EVERYBODY:
            raise TrainingError(
                f"The simulator asks every silo for the {stage.question.name} of all its records: leave sampling and "
                "participation of that stage out."
            )
        question, server = stage.question, using(stage.question)
        for round in range(stage.rounds):
            argument = server.argument(question, known, 0)
            noise = choices.standard_normal((len(held), question.length(plan)))
            answers = {
                terms.name: computing(question).compute(question, plan, argument, own, np.ones(len(own)), len(own))
                + terms.stages[number].sigma * fresh
                for terms, own, fresh in zip(plan.silos, held, noise, strict=True)
            }
            mean = mean_update(plan, answers)
            known = server.receive(question, known, Answers(number, round, 0, tuple(answers), mean))
    return known
