"""Gradients move the weights, by the plan's algorithm."""

from dataclasses import replace

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import Question
from ringfence.server.algorithms import algorithm_of
from ringfence.server.learned import Answers, Learned


def argument(question: Question, learned: Learned, step: int) -> FloatArray:
    """Return the weights to ask about."""
    del question
    return algorithm_of(learned.plan).query(learned.settings, learned.state, step)


def receive(question: Question, learned: Learned, answers: Answers) -> Learned:
    """Take the algorithm's step."""
    del question
    plan, algorithm = learned.plan, algorithm_of(learned.plan)
    stepped = algorithm.step(learned.settings, plan.proximal, learned.state, answers.mean, answers.step)
    return replace(learned, state=stepped)
