"""Which algorithm, how many rounds, which steps: whatever has the least loss bound. No record is looked at.

A bound is on the excess of the trained model's expected loss over the best weights within `distance` of the
start, in the loss that is trained: clipped, and smoothed where that was needed. "Empirical" bounds are about the
silos' own records, "population" ones about fresh records of the same silos. What the theory needs and nobody knows
(how much records and silos differ) is replaced by the largest it can be: the clip.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.planning.preconditioned import ROUNDS, method_for
from ringfence.planning.request import Risk
from ringfence.planning.setting import Setting
from ringfence.protocol.algorithms import (
    Accelerated,
    AlgorithmSpec,
    Localized,
    MinibatchSGD,
    MultiStage,
    Phase,
)
from ringfence.protocol.sampling import SamplingName, sampling_named

COVERED_SAMPLING: tuple[SamplingName, ...] = ("full", "one-pass", "phased")
"""Rules that bounds are exact for; others are taken where they are asked for."""

GOOD_ENOUGH = 1.02
"""Fewer rounds are preferred to a bound better by less than this factor."""

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Shares of the budget, in squared shift, that a survey may take."""

SURVEY_MUST_SAVE = 0.9
"""A survey is made by default if the bound is expected to fall below this fraction of what it is without."""


@dataclass(frozen=True)
class Choice:
    """A way to run the plan, and what is proved of it.

    `survey` is the share of the budget for a survey, or 0. The bound holds whatever the survey finds, unless
    its noise is beyond its margin, one case in 44; `expected` is what it comes to if the survey finds what is counted
    on, and choices are compared by it.
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
        """What the bound is about."""
        return risk_of(self.sampling)

    @property
    def expected(self) -> float:
        """The bound, or what it is expected to be after a survey."""
        return self.bound if self.expectation is None else self.expectation


def choose(
    setting: Setting,
    *,
    limit: int,
    exactly: bool = False,
    method: str | None = None,
    sampling: SamplingName | None = None,
    risk: Risk = "empirical",
    survey: bool | None = None,
) -> tuple[Choice, list[Choice]]:
    """Return the choice with the least bound, and all that were compared, best first.

    `limit` is the most rounds, or with `exactly` their number. Bounds of one `risk` compete, unless the sampling
    is named or the method has none of that risk. `survey` None means: where it pays.
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
    found: list[Choice] = []
    reasons: list[str] = []
    for name, offered in wanted or combinations:  # a method may have a bound for the other risk only
        try:
            rounds = _ladder(setting, offered, limit, exactly)
            found.append(_leanest(_METHODS[name](setting, offered, rounds, survey)))
        except PlanError as problem:
            reasons.append(str(problem))
    if not found:
        raise PlanError(" ".join(dict.fromkeys(reasons)))
    found.sort(key=lambda choice: choice.expected)
    return found[0], found


def risk_of(sampling: SamplingName) -> Risk:
    """Return what a bound is about: fresh records in every round, or phase, speak for the population."""
    return "population" if sampling_named(sampling).is_fresh else "empirical"


def _combinations(method: str | None, sampling: SamplingName | None) -> list[tuple[str, SamplingName]]:
    names = BOUNDED if method is None else (method,)
    samplings = COVERED_SAMPLING if sampling is None else (sampling,)
    if method == "preconditioned":
        return [(method, "full")]
    pairs = [(name, s) for name in names for s in samplings if (name == "localized") == sampling_named(s).is_phased]
    if not pairs:
        raise PlanError("The localized algorithm and phased sampling go together: leave the sampling out.")
    return pairs


def _ladder(setting: Setting, sampling: SamplingName, limit: int, exactly: bool) -> list[int]:
    """Return numbers of rounds to try, up to the limit, each about a tenth more than the last."""
    most = sampling_named(sampling).most_rounds(min(setting.records)) or limit
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


def _leanest(choices: Iterator[Choice]) -> Choice:
    """Return the choice with the fewest rounds among those that are as good as the best, nearly."""
    made = list(choices)
    best = min(choice.expected for choice in made)
    return next(choice for choice in made if choice.expected <= GOOD_ENOUGH * best)


def _minibatch(
    setting: Setting, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[Choice]:
    """P6' without strong convexity, P8 with it; with a lasso P6' too, whose proof weighs all rounds alike."""
    if setting.ridge and not math.isfinite(setting.diameter):
        raise PlanError("Minibatch SGD with a ridge needs a bounded domain: give a ball or a box, not the whole space.")
    smoothness, distance = setting.smoothness + setting.ridge, setting.distance
    for R in rounds:
        # The ridge's own gradient is at most ridge·diameter long.
        slope = setting.clip + (setting.ridge * setting.diameter if setting.ridge else 0.0)
        moment = slope**2 + setting.variance_of(sampling, R)
        is_weighed = setting.ridge > 0 and not setting.lasso
        if is_weighed:
            shape = {"distance": distance, "strong_convexity": setting.ridge, "rounds": R, "second_moment": moment}
            step = loss_bounds.minibatch_strong_step(smoothness=smoothness, **shape)  # type: ignore[arg-type]
            bound = loss_bounds.minibatch_strong_empirical(step=step, **shape)  # type: ignore[arg-type]
        else:
            step = min(1 / smoothness if smoothness else math.inf, distance / math.sqrt(R * moment))
            bound = loss_bounds.minibatch_empirical(distance=distance, step=step, rounds=R, second_moment=moment)
        spec = MinibatchSGD(step=step, growth=1 / (1 - setting.ridge * step) if is_weighed else 1.0)
        yield Choice("minibatch-sgd", spec, sampling, R, bound)


def _accelerated(
    setting: Setting, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[Choice]:
    _require_smooth(setting)
    plain = []
    for R in rounds:
        spec, bound = _run(setting, R, setting.smoothness, setting.variance_of(sampling, R))
        plain.append(Choice("accelerated", spec, sampling, R, bound))
    surveyed = [
        min((_surveyed(setting, sampling, R, share) for share in SHARES), key=lambda choice: choice.expected)
        for R in rounds
    ]
    saves = min(choice.expected for choice in surveyed) < SURVEY_MUST_SAVE * min(choice.expected for choice in plain)
    yield from surveyed if survey or (survey is None and saves) else plain


def _surveyed(setting: Setting, sampling: SamplingName, R: int, share: float) -> Choice:
    """Return the accelerated run after a survey of curvature that takes this share of the budget.

    What it will find is not known yet; a largest eigenvalue of X²/√width, between one direction for all records and all
    directions alike, is what is counted on. The margin of two standard deviations of its noise counts twice: the
    server adds it, and the noise itself may be high. The plan's own β stays the largest possible, so nothing rests on
    the guess but this comparison.

    The bound holds for every pace between what the survey may lead to and 2β, since a smaller pace than 2β is
    taken only where β is smaller; unless the survey's noise is beyond its margin, one case in 44.
    """
    noise = setting.survey_noise / math.sqrt(share)
    expected = setting.smoothness * min(1.0, 1 / math.sqrt(setting.width) + 4 * noise)
    variance = setting.variance_of(sampling, R, 1 - share)
    spec, bound = _run(setting, R, setting.smoothness, variance)
    _, expectation = _run(setting, R, expected, variance)
    if setting.ridge and spec.pace:  # a pace of its own, which the survey does not change
        expectation = bound
    return Choice("accelerated", spec, sampling, R, bound, share, expectation)


def _run(setting: Setting, R: int, smoothness: float, variance: float) -> tuple[Accelerated, float]:
    """Return the steps and the bound of one accelerated run.

    With a ridge μ there are two schedules: pace β, whose noise term is 2V²/(μ(R+1)), and a larger pace, whose noise
    term (2R+1)V²/(6υ) does not need μ. The one with the smaller bound is taken.
    """
    whole, distance = smoothness + setting.ridge, setting.distance
    pace = loss_bounds.accelerated_pace(smoothness=whole, distance=distance, rounds=R, variance=variance)
    damped = loss_bounds.accelerated(distance=distance, pace=pace, rounds=R, variance=variance)
    if setting.ridge:
        strong = loss_bounds.accelerated_strong(
            smoothness=whole, strong_convexity=setting.ridge, distance=distance, rounds=R, variance=variance
        )
        if strong <= damped:
            return Accelerated(smoothness=smoothness), strong
        return Accelerated(smoothness=smoothness, pace=pace), damped
    # What the noise asks for; the algorithm itself goes no lower than 2β, or what a survey makes of it.
    noise = loss_bounds.accelerated_pace(smoothness=0.0, distance=distance, rounds=R, variance=variance)
    return Accelerated(smoothness=smoothness, pace=noise), damped


def _regularised(
    setting: Setting, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[Choice]:
    _require_smooth(setting)
    for R in rounds:
        variance = setting.variance_of(sampling, R)
        penalty = loss_bounds.regularised_penalty(distance=setting.distance, rounds=R, variance=variance)
        bound = loss_bounds.regularised(
            smoothness=setting.smoothness + setting.ridge,
            distance=setting.distance,
            rounds=R,
            variance=variance,
            penalty=penalty,
        )
        spec = Accelerated(smoothness=setting.smoothness, penalty=penalty)
        yield Choice("regularised", spec, sampling, R, bound)


def _multistage(
    setting: Setting, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[Choice]:
    _require_smooth(setting)
    if not setting.ridge:
        raise PlanError("Stages halve the error of a strongly convex problem only: give a ridge.")
    # Few rounds may not hold a single stage, nor may many with small batches; the last one says so if none does.
    fits = False
    for R in rounds:
        try:
            planned = loss_bounds.multistage_plan(
                smoothness=setting.smoothness + setting.ridge,
                strong_convexity=setting.ridge,
                # From the start to the minimiser, which may lie anywhere in the domain.
                gap=min(setting.clip * setting.diameter / 2, setting.clip**2 / (2 * setting.ridge)),
                rounds=R,
                variance=setting.variance_of(sampling, R),
            )
        except PlanError:
            if rounds[-1] == R and not fits:
                raise
            continue
        fits = True
        spec = MultiStage(smoothness=setting.smoothness, stages=planned.stages)
        yield Choice("multi-stage", spec, sampling, R, planned.bound)


def _localized(
    setting: Setting, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[Choice]:
    _require_smooth(setting)
    phases = int(math.log2(min(setting.records)))
    if phases < 1:
        raise PlanError("Localization splits each silo's records into halves, so every silo needs at least 2 of them.")
    problem, shift = setting.balanced()
    planned = loss_bounds.localized_phases(
        problem,
        most_rounds=rounds[-1],
        most_phases=phases,
        penalty=loss_bounds.localized_penalty(problem, shift),
        shift=shift,
    )
    spec = Localized(
        smoothness=setting.smoothness,
        phases=tuple(Phase(rounds=phase.rounds, penalty=phase.penalty) for phase in planned.phases),
    )
    yield Choice("localized", spec, sampling, planned.rounds, planned.bound)


def _preconditioned(
    setting: Setting, sampling: SamplingName, rounds: Sequence[int], survey: bool | None
) -> Iterator[Choice]:
    """No loss bound covers it: the choice is its user's, or that of measurements on public tables."""
    enough = round(ROUNDS * len(setting.records) / setting.available)  # every silo answers as often as where all do
    wanted = rounds[-1] if len(rounds) == 1 else min(enough, rounds[-1])
    method, share = method_for(setting.width)
    yield Choice("preconditioned", method, sampling, wanted, math.inf, 0.0 if survey is False else share)


def _require_smooth(setting: Setting) -> None:
    if not math.isfinite(setting.smoothness):
        raise PlanError(
            "Acceleration needs a smooth loss, and this one has a kink: smooth it (leave its width to the planner), or "
            "ask for minibatch-sgd."
        )


Maker: TypeAlias = Callable[[Setting, SamplingName, Sequence[int], bool | None], Iterator[Choice]]

_METHODS: dict[str, Maker] = {
    "minibatch-sgd": _minibatch,
    "accelerated": _accelerated,
    "regularised": _regularised,
    "multi-stage": _multistage,
    "localized": _localized,
    "preconditioned": _preconditioned,
}

METHODS = tuple(_METHODS)
"""Names a user may ask for: those of the algorithms, and `regularised`, which is accelerated with a penalty."""

BOUNDED = tuple(name for name in METHODS if name != "preconditioned")
"""Those that a loss bound covers, which compete by it."""
