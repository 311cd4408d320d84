"""The choice of algorithm, rounds and steps: those with the least loss bound. No record is read.

A bound is on the excess of the trained model's expected loss over the best weights within `distance` of the
start, in the loss that is trained: clipped, and smoothed where that was needed. "Empirical" bounds are about the
silos' own records, "population" ones about fresh records of the same silos. Unknown
constants of the theory (how much records and silos differ) are replaced by their largest value: the clip.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.planning.defaults import PRECONDITIONED_ROUNDS, preconditioned_for_width
from ringfence.planning.problem import PlanningProblem
from ringfence.planning.request import Risk
from ringfence.protocol import (
    Accelerated,
    AlgorithmSpec,
    Localized,
    MinibatchSGD,
    MultiStage,
    Phase,
    SamplingName,
    sampling_named,
)

COVERED_SAMPLING: tuple[SamplingName, ...] = ("full", "one-pass", "phased")
"""Sampling rules that bounds cover exactly; others are used only on request."""

GOOD_ENOUGH = 1.02
"""Fewer rounds are preferred to a bound that is better by less than this factor."""

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Possible shares of the budget (in μ²) for a survey."""

SURVEY_MUST_SAVE = 0.9
"""By default a survey is made if the expected bound is below this fraction of the bound without one."""


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm with its sampling and rounds, and its loss bound.

    `survey` is the survey's share of the budget, or 0. The bound holds whatever the survey returns, unless its noise
    exceeds its margin, one case in 44. `expected` is the bound for the expected survey, or the bound itself without
    one; choices are compared by it.
    """

    method: str
    algorithm: AlgorithmSpec
    sampling: SamplingName
    rounds: int
    bound: float
    expected: float
    survey: float = 0.0

    @property
    def risk(self) -> Risk:
        """The risk that an algorithm's bound is on."""
        return risk_of(self.sampling)


def choose_algorithm(
    problem: PlanningProblem,
    *,
    limit: int,
    exactly: bool = False,
    method: str | None = None,
    sampling: SamplingName | None = None,
    risk: Risk = "empirical",
    survey: bool | None = None,
) -> tuple[AlgorithmChoice, list[AlgorithmChoice]]:
    """Return the choice with the least expected bound, and all that were compared, best first.

    `limit` is the most rounds, or with `exactly` their number. Bounds of one `risk` compete, unless the sampling
    is given or the method has no bound on that risk. `survey` None means: if it pays off.
    """
    if method is not None and method not in METHODS:
        raise PlanError(f"There is no algorithm '{method}'; choose one of {', '.join(METHODS)}.")
    combinations = _combinations(method, sampling)
    if survey:
        combinations = [pair for pair in combinations if pair[0] in ("accelerated", "preconditioned")]
        if not combinations:
            raise PlanError(
                "Only the accelerated and the preconditioned algorithm use a survey: leave it out, or ask for one "
                "of these."
            )
    wanted = [pair for pair in combinations if sampling is not None or risk_of(pair[1]) == risk]
    found: list[AlgorithmChoice] = []
    reasons: list[str] = []
    for name, offered in wanted or combinations:  # a method may have a bound on the other risk only
        try:
            rounds = _rounds_to_try(problem, offered, limit, exactly)
            made = _choices(name, problem, offered, rounds, survey)
            best = min(choice.expected for choice in made)
            # The fewest rounds among those nearly as good as the best.
            found.append(next(choice for choice in made if choice.expected <= GOOD_ENOUGH * best))
        except PlanError as refused:
            reasons.append(str(refused))
    if not found:
        raise PlanError(" ".join(dict.fromkeys(reasons)))
    found.sort(key=lambda choice: choice.expected)
    return found[0], found


def risk_of(sampling: SamplingName) -> Risk:
    """Return the risk that a bound is on: the population's if every round or phase has fresh records."""
    return "population" if sampling_named(sampling).is_fresh else "empirical"


def _combinations(method: str | None, sampling: SamplingName | None) -> list[tuple[str, SamplingName]]:
    """Return the pairs of algorithm and sampling rule to compare; PlanError if none fits the request."""
    names = BOUNDED if method is None else (method,)
    samplings = COVERED_SAMPLING if sampling is None else (sampling,)
    if method == "preconditioned":
        return [(method, "full")]
    pairs = [(name, s) for name in names for s in samplings if (name == "localized") == sampling_named(s).is_phased]
    if not pairs:
        raise PlanError("The localized algorithm and phased sampling go together: leave the sampling out.")
    return pairs


def _rounds_to_try(problem: PlanningProblem, sampling: SamplingName, limit: int, exactly: bool) -> list[int]:
    """Return numbers of rounds to try up to the limit, in steps of about a tenth."""
    most = sampling_named(sampling).most_rounds(min(problem.records)) or limit
    if exactly and limit > most:
        raise PlanError(
            f"One pass of {limit} rounds needs a record, or person, for each, but the smallest silo has {most}: "
            "ask for fewer rounds."
        )
    steps, rounds = {min(limit, most)}, 1.0
    while rounds < min(limit, most) and not exactly:
        steps.add(round(rounds))
        rounds *= 1.1
    return sorted(steps)


def _choices(
    method: str, problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> list[AlgorithmChoice]:
    """Return the method for each number of rounds that fits it, fewest first; PlanError if none does."""
    if method == "preconditioned":
        return [_preconditioned(problem, sampling, rounds, survey)]
    if method != "minibatch-sgd" and not math.isfinite(problem.smoothness):
        raise PlanError(
            "Acceleration needs a smooth loss, and this one has a kink: smooth it (leave its width to the planner), or "
            "ask for minibatch-sgd."
        )
    if method == "localized":
        return [_localized(problem, sampling, rounds[-1])]
    made, why = [], PlanError()
    for R in rounds:
        try:
            spec, bound = _RUNS[method](problem, R, problem.variance(sampling, R))
        except PlanError as refused:
            why = refused  # few rounds, or small batches, may not fit a single stage
        else:
            made.append(AlgorithmChoice(method, spec, sampling, R, bound, bound))
    if not made:
        raise why
    if method != "accelerated" or survey is False:
        return made
    surveyed = [
        min((_surveyed(problem, sampling, R, share) for share in SHARES), key=lambda choice: choice.expected)
        for R in rounds
    ]
    saves = min(choice.expected for choice in surveyed) < SURVEY_MUST_SAVE * min(choice.expected for choice in made)
    return surveyed if survey or saves else made


def _minibatch(problem: PlanningProblem, R: int, variance: float) -> tuple[MinibatchSGD, float]:
    """Return minibatch SGD and its loss bound: P6' without strong convexity or with a lasso, else P8."""
    if problem.ridge and not math.isfinite(problem.diameter):
        raise PlanError("Minibatch SGD with a ridge needs a bounded domain: give a ball or a box, not the whole space.")
    smoothness, distance, ridge = problem.smoothness + problem.ridge, problem.distance, problem.ridge
    # The ridge's own gradient has norm at most ridge·diameter.
    moment = (problem.clip + (ridge * problem.diameter if ridge else 0.0)) ** 2 + variance
    if not ridge or problem.lasso:
        step = min(1 / smoothness if smoothness else math.inf, distance / math.sqrt(R * moment))
        bound = loss_bounds.minibatch_empirical(distance=distance, step=step, rounds=R, second_moment=moment)
        return MinibatchSGD(step=step), bound
    step = loss_bounds.minibatch_strong_step(
        distance=distance, smoothness=smoothness, strong_convexity=ridge, rounds=R, second_moment=moment
    )
    bound = loss_bounds.minibatch_strong_empirical(
        distance=distance, strong_convexity=ridge, step=step, rounds=R, second_moment=moment
    )
    return MinibatchSGD(step=step, growth=1 / (1 - ridge * step)), bound


def _accelerated(problem: PlanningProblem, R: int, variance: float) -> tuple[Accelerated, float]:
    """Return accelerated SGD and its loss bound.

    With a ridge μ there are two schedules: υ = β, whose noise term is 2V²/(μ(R+1)), and a larger υ, whose noise
    term (2R+1)V²/(6υ) does not need μ. The one with the smaller bound is taken.
    """
    smoothness, distance = problem.smoothness, problem.distance
    whole = smoothness + problem.ridge
    upsilon = loss_bounds.accelerated_upsilon(smoothness=whole, distance=distance, rounds=R, variance=variance)
    damped = loss_bounds.accelerated(distance=distance, upsilon=upsilon, rounds=R, variance=variance)
    if problem.ridge:
        strong = loss_bounds.accelerated_strong(
            smoothness=whole, strong_convexity=problem.ridge, distance=distance, rounds=R, variance=variance
        )
        if strong <= damped:
            return Accelerated(smoothness=smoothness), strong
        return Accelerated(smoothness=smoothness, upsilon=upsilon), damped
    # The best υ for the noise; the algorithm itself takes at least 2β, or the survey's estimate of it.
    noise = loss_bounds.accelerated_upsilon(smoothness=0.0, distance=distance, rounds=R, variance=variance)
    return Accelerated(smoothness=smoothness, upsilon=noise), damped


def _surveyed(problem: PlanningProblem, sampling: SamplingName, R: int, share: float) -> AlgorithmChoice:
    """Return the accelerated run after a survey of curvature that takes this share of the budget.

    The largest eigenvalue that it will find is not known yet and is assumed to be X²/√width, between one direction for
    all records and all directions alike. The margin of two standard deviations of its noise counts twice: the server
    adds it, and the noise itself may be high. The plan's own β stays the largest possible, so only this comparison
    rests on the assumption.

    The bound holds for every υ between what the survey may lead to and 2β, since a smaller υ than 2β is
    taken only where β is smaller; unless the survey's noise is beyond its margin, one case in 44.
    """
    noise = problem.survey_noise / math.sqrt(share)
    smoothness = problem.smoothness * min(1.0, 1 / math.sqrt(problem.width) + 4 * noise)
    variance = problem.variance(sampling, R, 1 - share)
    spec, bound = _accelerated(problem, R, variance)
    _, expected = _accelerated(replace(problem, smoothness=smoothness), R, variance)
    if problem.ridge and spec.upsilon:  # a υ of its own, which the survey does not change
        expected = bound
    return AlgorithmChoice("accelerated", spec, sampling, R, bound, expected, share)


def _regularised(problem: PlanningProblem, R: int, variance: float) -> tuple[Accelerated, float]:
    """Return accelerated SGD on the regularised loss, and its bound."""
    distance = problem.distance
    penalty = loss_bounds.regularised_penalty(distance=distance, rounds=R, variance=variance)
    whole = problem.smoothness + problem.ridge
    bound = loss_bounds.regularised(smoothness=whole, distance=distance, rounds=R, variance=variance, penalty=penalty)
    return Accelerated(smoothness=problem.smoothness, penalty=penalty), bound


def _multistage(problem: PlanningProblem, R: int, variance: float) -> tuple[MultiStage, float]:
    """Return multi-stage accelerated SGD and its loss bound; PlanError without a ridge, or if no stage fits."""
    if not problem.ridge:
        raise PlanError("Stages halve the error of a strongly convex problem only: give a ridge.")
    planned = loss_bounds.multistage_plan(
        smoothness=problem.smoothness + problem.ridge,
        strong_convexity=problem.ridge,
        # From the start to the minimiser, which may lie anywhere in the domain.
        gap=min(problem.clip * problem.diameter / 2, problem.clip**2 / (2 * problem.ridge)),
        rounds=R,
        variance=variance,
    )
    return MultiStage(smoothness=problem.smoothness, stages=planned.stages), planned.bound


def _localized(problem: PlanningProblem, sampling: SamplingName, most_rounds: int) -> AlgorithmChoice:
    """Return the localized algorithm, whose phases halve each silo's records."""
    phases = int(math.log2(min(problem.records)))
    if phases < 1:
        raise PlanError("Localization splits each silo's records into halves, so every silo needs at least 2 of them.")
    equal = problem.balanced()
    planned = loss_bounds.localized_phases(equal, loss_bounds.localized_penalty(equal), most_rounds, phases)
    parts = tuple(Phase(rounds=phase.rounds, penalty=phase.penalty) for phase in planned.phases)
    spec = Localized(smoothness=problem.smoothness, phases=parts)
    return AlgorithmChoice("localized", spec, sampling, planned.rounds, planned.bound, planned.bound)


def _preconditioned(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> AlgorithmChoice:
    """Return preconditioned descent. No loss bound covers it: it is used on request, or as the default."""
    enough = round(PRECONDITIONED_ROUNDS * len(problem.records) / problem.available)  # as many answers from each silo
    wanted = rounds[-1] if len(rounds) == 1 else min(enough, rounds[-1])
    spec, share = preconditioned_for_width(problem.width)
    share = 0.0 if survey is False else share
    return AlgorithmChoice("preconditioned", spec, sampling, wanted, math.inf, math.inf, share)


_RUNS: dict[str, Callable[[PlanningProblem, int, float], tuple[AlgorithmSpec, float]]] = {
    "minibatch-sgd": _minibatch,
    "accelerated": _accelerated,
    "regularised": _regularised,
    "multi-stage": _multistage,
}
"""From a problem, the rounds R and the variance V² of a round to an algorithm's steps and its loss bound."""

BOUNDED = (*_RUNS, "localized")
"""Algorithms that a loss bound covers."""

METHODS = (*BOUNDED, "preconditioned")
"""Names of algorithms in requests; `regularised` is accelerated with a penalty."""
