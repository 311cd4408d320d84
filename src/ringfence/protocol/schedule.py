"""What a plan has one silo do in one round: the silo's mechanism, its accountant and the simulator all read it here."""

import math
from dataclasses import dataclass
from typing import Literal

from ringfence.protocol.algorithms import Localized
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schema import Categorical


@dataclass(frozen=True)
class Task:
    """One round's work of one silo.

    Its answer is a vector of `length` numbers: the mean over `batch`, with noise of standard deviation `sigma` per
    number. `part` is the part of the plan's partition that the records come from, which begins at place `first` of
    it; None means that the plan's sampling draws from all records.
    """

    query: Literal["survey", "gradient"]
    length: int
    batch: int
    sigma: float
    part: int | None = None
    first: int = 0


def task(plan: Plan, terms: SiloTerms, round: int, answered: int) -> Task:
    """Return what the silo does in that round of messages, after `answered` earlier answers to this plan."""
    if round < plan.preliminaries:
        assert terms.survey_sigma is not None  # noqa: S101 (the plan was validated)
        return Task("survey", survey_length(plan), terms.records, terms.survey_sigma)
    if plan.sampling == "one-pass":
        # By the silo's own count of answers: a round that it missed wastes no record.
        return Task("gradient", plan.dimension, terms.batch, terms.sigma, answered, answered * terms.batch)
    if isinstance(plan.algorithm, Localized):
        return _phase_task(plan, plan.algorithm, terms, phase_of(plan.algorithm, round - plan.preliminaries))
    return Task("gradient", plan.dimension, terms.batch, terms.sigma)


def phase_of(spec: Localized, round: int) -> int:
    """Return the phase, from 0, that a round of gradients belongs to."""
    for number, phase in enumerate(spec.phases):
        if round < phase.rounds:
            return number
        round -= phase.rounds
    raise IndexError("the plan has fewer rounds")


def _phase_task(plan: Plan, spec: Localized, terms: SiloTerms, phase: int) -> Task:
    size = terms.records >> (phase + 1)
    first = sum(terms.records >> (earlier + 1) for earlier in range(phase))
    return Task("gradient", plan.dimension, size, terms.sigma * spec.noise(terms.records, phase), phase, first)


def survey_length(plan: Plan) -> int:
    """Return how many numbers the survey's answer has."""
    if plan.survey is None or plan.survey.statistic == "curvature":
        return 1
    return 2 * (plan.data.width + (not isinstance(plan.data.target_column, Categorical)))


def survey_sensitivity(plan: Plan, records: int) -> float:
    """Return how far replacing one of the records can move the survey's answer, in Euclidean norm.

    Curvature: the matrix moves by (xxᵀ − x'x'ᵀ)/n, whose eigenvalues lie in ±X²/n, and its largest eigenvalue by no
    more (Weyl). Moments: in the units used, the means move by at most 2/n, the mean squares, which are
    non-negative vectors of norm at most 1, by √2/n, a target's by 2/n and 1/n.
    """
    if plan.survey is None or plan.survey.statistic == "curvature":
        return plan.data.feature_norm**2 / records
    return math.sqrt(6.0 if isinstance(plan.data.target_column, Categorical) else 11.0) / records
