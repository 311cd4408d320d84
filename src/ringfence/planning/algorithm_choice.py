"""The choice of algorithm, rounds and steps: those with the least loss bound. No record is read.

A bound is on the excess of the trained model's expected loss over the best weights within `distance` of the
start, in the loss that is trained: clipped, and smoothed where that was needed. "Empirical" bounds are about the
silos' own records, "population" ones about fresh records of the same silos. Unknown
constants of the theory (how much records and silos differ) are replaced by their largest value: the clip.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    exceeds its margin, one case in 44. `expected` is the bound for the expected survey; choices are compared by it.
    """

    method: str
    algorithm: AlgorithmSpec
    sampling: SamplingName
    rounds: int
    bound: float
    survey: float = 0.0
    expectation: float | None = None

    @property
    def risk(self) -> Risk:
        """The risk that an algorithm's bound is on."""
        return risk_of(self.sampling)

    @property
    def expected(self) -> float:
        """The algorithm's bound expected after the survey, or the bound itself without one."""
        return self.bound if self.expectation is None else self.expectation


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
            made = list(_METHODS[name](problem, offered, rounds, survey))
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


def _minibatch(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[AlgorithmChoice]:
    """Yield minibatch SGD for each number of rounds: P6' without strong convexity or with a lasso, else P8."""
    if problem.ridge and not math.isfinite(problem.diameter):
        raise PlanError("Minibatch SGD with a ridge needs a bounded domain: give a ball or a box, not the whole space.")
    smoothness, distance = problem.smoothness + problem.ridge, problem.distance
    for R in rounds:
        # The ridge's own gradient has norm at most ridge·diameter.
        slope = problem.clip + (problem.ridge * problem.diameter if problem.ridge else 0.0)
        moment = slope**2 + problem.variance_of(sampling, R)
        is_weighed = problem.ridge > 0 and not problem.lasso
        if is_weighed:
            shape = {"distance": distance, "strong_convexity": problem.ridge, "rounds": R, "second_moment": moment}
            step = loss_bounds.minibatch_strong_step(smoothness=smoothness, **shape)  # type: ignore[arg-type]
            bound = loss_bounds.minibatch_strong_empirical(step=step, **shape)  # type: ignore[arg-type]
        else:
            step = min(1 / smoothness if smoothness else math.inf, distance / math.sqrt(R * moment))
            bound = loss_bounds.minibatch_empirical(distance=distance, step=step, rounds=R, second_moment=moment)
        spec = MinibatchSGD(step=step, growth=1 / (1 - problem.ridge * step) if is_weighed else 1.0)
        yield AlgorithmChoice("minibatch-sgd", spec, sampling, R, bound)


def _accelerated(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[AlgorithmChoice]:
    """Yield accelerated SGD for each number of rounds, with a survey of the curvature if that saves enough."""
    _require_smooth(problem)
    plain = []
    for R in rounds:
        spec, bound = _run(problem, R, problem.smoothness, problem.variance_of(sampling, R))
        plain.append(AlgorithmChoice("accelerated", spec, sampling, R, bound))
    surveyed = [
        min((_surveyed(problem, sampling, R, share) for share in SHARES), key=lambda choice: choice.expected)
        for R in rounds
    ]
    saves = min(choice.expected for choice in surveyed) < SURVEY_MUST_SAVE * min(choice.expected for choice in plain)
    yield from surveyed if survey or (survey is None and saves) else plain


def _surveyed(problem: PlanningProblem, sampling: SamplingName, R: int, share: float) -> AlgorithmChoice:
    """Return the accelerated run after a survey of curvature that takes this share of the budget.

    What it will find is not known yet; a largest eigenvalue of X²/√width, between one direction for all records and all
    directions alike, is what is counted on. The margin of two standard deviations of its noise counts twice: the
    server adds it, and the noise itself may be high. The plan's own β stays the largest possible, so nothing rests on
    the guess but this comparison.

    The bound holds for every υ between what the survey may lead to and 2β, since a smaller υ than 2β is
    taken only where β is smaller; unless the survey's noise is beyond its margin, one case in 44.
    """
    noise = problem.survey_noise / math.sqrt(share)
    expected = problem.smoothness * min(1.0, 1 / math.sqrt(problem.width) + 4 * noise)
    variance = problem.variance_of(sampling, R, 1 - share)
    spec, bound = _run(problem, R, problem.smoothness, variance)
    _, expectation = _run(problem, R, expected, variance)
    if problem.ridge and spec.upsilon:  # a υ of its own, which the survey does not change
        expectation = bound
    return AlgorithmChoice("accelerated", spec, sampling, R, bound, share, expectation)


def _run(problem: PlanningProblem, R: int, smoothness: float, variance: float) -> tuple[Accelerated, float]:
    """Return the steps and the loss bound of one run of accelerated SGD.

    With a ridge μ there are two schedules: υ = β, whose noise term is 2V²/(μ(R+1)), and a larger υ, whose noise
    term (2R+1)V²/(6υ) does not need μ. The one with the smaller bound is taken.
    """
    whole, distance = smoothness + problem.ridge, problem.distance
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


def _regularised(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[AlgorithmChoice]:
    """Yield accelerated SGD on the regularised loss, for each number of rounds."""
    _require_smooth(problem)
    for R in rounds:
        variance = problem.variance_of(sampling, R)
        penalty = loss_bounds.regularised_penalty(distance=problem.distance, rounds=R, variance=variance)
        bound = loss_bounds.regularised(
            smoothness=problem.smoothness + problem.ridge,
            distance=problem.distance,
            rounds=R,
            variance=variance,
            penalty=penalty,
        )
        spec = Accelerated(smoothness=problem.smoothness, penalty=penalty)
        yield AlgorithmChoice("regularised", spec, sampling, R, bound)


def _multistage(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[AlgorithmChoice]:
    """Yield multi-stage accelerated SGD for each number of rounds that fits a stage; it needs a ridge."""
    _require_smooth(problem)
    if not problem.ridge:
        raise PlanError("Stages halve the error of a strongly convex problem only: give a ridge.")
    # Few rounds, or small batches, may not fit a single stage; the error of the last number of rounds says so.
    fits = False
    for R in rounds:
        try:
            planned = loss_bounds.multistage_plan(
                smoothness=problem.smoothness + problem.ridge,
                strong_convexity=problem.ridge,
                # From the start to the minimiser, which may lie anywhere in the domain.
                gap=min(problem.clip * problem.diameter / 2, problem.clip**2 / (2 * problem.ridge)),
                rounds=R,
                variance=problem.variance_of(sampling, R),
            )
        except PlanError:
            if rounds[-1] == R and not fits:
                raise
            continue
        fits = True
        spec = MultiStage(smoothness=problem.smoothness, stages=planned.stages)
        yield AlgorithmChoice("multi-stage", spec, sampling, R, planned.bound)


def _localized(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[AlgorithmChoice]:
    """Yield the localized algorithm, whose phases halve each silo's records."""
    _require_smooth(problem)
    phases = int(math.log2(min(problem.records)))
    if phases < 1:
        raise PlanError("Localization splits each silo's records into halves, so every silo needs at least 2 of them.")
    equal, shift = problem.balanced()
    planned = loss_bounds.localized_phases(
        equal,
        most_rounds=rounds[-1],
        most_phases=phases,
        penalty=loss_bounds.localized_penalty(equal, shift),
        shift=shift,
    )
    spec = Localized(
        smoothness=problem.smoothness,
        phases=tuple(Phase(rounds=phase.rounds, penalty=phase.penalty) for phase in planned.phases),
    )
    yield AlgorithmChoice("localized", spec, sampling, planned.rounds, planned.bound)


def _preconditioned(
    problem: PlanningProblem, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[AlgorithmChoice]:
    """Yield preconditioned descent. No loss bound covers it: it is used on request, or as the default."""
    enough = round(
        PRECONDITIONED_ROUNDS * len(problem.records) / problem.available
    )  # every silo answers as often as where all do
    wanted = rounds[-1] if len(rounds) == 1 else min(enough, rounds[-1])
    method, share = preconditioned_for_width(problem.width)
    yield AlgorithmChoice("preconditioned", method, sampling, wanted, math.inf, 0.0 if survey is False else share)


def _require_smooth(problem: PlanningProblem) -> None:
    """Refuse accelerated algorithms for a loss with a kink."""
    if not math.isfinite(problem.smoothness):
        raise PlanError(
            "Acceleration needs a smooth loss, and this one has a kink: smooth it (leave its width to the planner), or "
            "ask for minibatch-sgd."
        )


Maker: TypeAlias = Callable[[PlanningProblem, SamplingName, Sequence[int], bool | None], Iterator[AlgorithmChoice]]

_METHODS: dict[str, Maker] = {
    "minibatch-sgd": _minibatch,
    "accelerated": _accelerated,
    "regularised": _regularised,
    "multi-stage": _multistage,
    "localized": _localized,
    "preconditioned": _preconditioned,
}

METHODS = tuple(_METHODS)
"""Names of algorithms in requests; `regularised` is accelerated with a penalty."""

BOUNDED = tuple(name for name in METHODS if name != "preconditioned")
"""Algorithms that a loss bound covers."""
