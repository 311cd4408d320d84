"""Statistics that do not depend on weights: averaged over the silos, and stored beside their noise."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ringfence.estimates.answers import NoisyAnswer
from ringfence.protocol import FloatArray, Plan, Query
from ringfence.server.algorithms import algorithm_of
from ringfence.server.algorithms.survey import TargetEstimate
from ringfence.server.algorithms.whitening import FeatureMomentsEstimate
from ringfence.server.state import Findings, RoundAnswers, ServerState


def argument(query: Query, server: ServerState, round: int) -> FloatArray:
    """Return zeros for the weights, for a query whose answer, stored as a finding, does not depend on them."""
    return np.zeros(server.plan.dimension)


def receive(query: Query, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Store the mean of a query's answers, and its noise, as the finding.

    The channel's mean is (N/M)·Σ p_i·s_i over the M silos that answered. That is unbiased for a sum, but its weights
    add up to 1 only if all silos answered; here they are normalised.
    """
    plan = server.plan
    terms = [terms for terms in plan.silos if terms.name in answers.silos]
    weight = math.fsum(own.weight for own in terms)
    noise = math.hypot(*(own.weight * own.stages[answers.stage].sigma for own in terms))
    finding = Findings(answers.mean * len(terms) / (len(plan.silos) * weight), noise / weight, weight, answers.each)
    return server.with_finding(query.name, finding)


def noisy_answers(plan: Plan, stage: int, each: Mapping[str, FloatArray]) -> dict[str, NoisyAnswer]:
    """Return the silos' own answers, each with the noise and the batch that the plan gives it in a stage."""
    own = {terms.name: terms.stages[stage] for terms in plan.silos}
    return {name: NoisyAnswer(vector, own[name].sigma, own[name].batch) for name, vector in each.items()}


def least_noise(plan: Plan, answers: RoundAnswers) -> Findings | None:
    """Return a finding from answers averaged with inverse-variance weights; None if only sums are known.

    It favours silos with many records and large budgets, so it may shape the steps but not the optimum.
    """
    if not answers.each:
        return None
    noisy = noisy_answers(plan, answers.stage, answers.each).values()
    total = math.fsum(one.sigma**-2 for one in noisy)
    mean: FloatArray = np.sum([one.sigma**-2 / total * one.vector for one in noisy], axis=0)
    return Findings(mean, total**-0.5, each=answers.each)


def surveyed(
    server: ServerState, query: Query, finding: Findings, features: FeatureMomentsEstimate, target: TargetEstimate
) -> ServerState:
    """Store a survey's finding, and start the algorithm anew by its estimates, if it uses a survey."""
    server = server.with_finding(query.name, finding)
    chosen = algorithm_of(server.plan).after_survey(server.plan, features, target)
    return server if chosen is None else replace(server, settings=chosen[0], state=chosen[1])
