"""Statistics that silos are asked for at no weights in particular, kept beside the noise in them."""

import math
from dataclasses import replace

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Question
from ringfence.server.learned import Answers, Findings, Learned


def argument(question: Question, learned: Learned, step: int) -> FloatArray:
    """Return the start, if the plan has a model: the answer does not depend on it."""
    del question, step
    return np.zeros(learned.plan.dimension)


def receive(question: Question, learned: Learned, answers: Answers) -> Learned:
    """Return what is known with the answers' mean as the question's statistic, beside its noise.

    The mean is the server's usual (N/M)·Σ p_i·s_i over the M that answered. That is unbiased for a sum, but its weights
    add up to 1 only if everybody answered; here they are made to.
    """
    plan = learned.plan
    terms = [terms for terms in plan.silos if terms.name in answers.silos]
    weight = math.fsum(own.weight for own in terms)
    noise = math.hypot(*(own.weight * own.stages[answers.stage].sigma for own in terms))
    found = Findings(answers.mean * len(terms) / (len(plan.silos) * weight), noise / weight, weight, answers.each)
    return replace(learned, findings={**learned.findings, question.name: found})


def least_noise(plan: Plan, answers: Answers) -> Findings | None:
    """Return the silos' average with the least noise, each by the inverse of its variance; None if only sums are known.

    It leans to silos with many records and large budgets: for what shapes the steps alone, and not where they lead.
    """
    own = {terms.name: terms.stages[answers.stage].sigma for terms in plan.silos}
    if not answers.each:
        return None
    precisions = {name: own[name] ** -2 for name in answers.each}
    total = math.fsum(precisions.values())
    mean: FloatArray = np.sum([precisions[name] / total * answer for name, answer in answers.each.items()], axis=0)
    return Findings(mean, total**-0.5, each=answers.each)
