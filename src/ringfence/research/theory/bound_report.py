"""All that the theory says about one problem: what can be reached, what cannot be beaten, and what is proved."""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ringfence.accounting import calibrate
from ringfence.accounting.events import require_count
from ringfence.errors import AccountingError, PlanError
from ringfence.planning import loss_bounds
from ringfence.research.theory import bounds, conversions, lower_bounds, population
from ringfence.research.theory.problem import Problem, localized_phases, phase_noise, require_smooth

MOST_ROUNDS = 10_000
"""The most rounds that are tried where none are given."""


@dataclass(frozen=True)
class Row:
    """One bound: ``value`` on the excess risk ``about`` the population or the records at hand, or ``why`` not.

    ``rounds`` and ``sigma`` belong to a loss bound: the run that it is about and its noise, by the exact accountant.
    """

    name: str
    about: str
    value: float | None
    why: str | None = None
    rounds: int | None = None
    sigma: float | None = None


@dataclass(frozen=True)
class BoundReport:
    """Upper and lower bounds and reference rates are orders of magnitude; loss bounds have every constant.

    ``position`` is where the silos sit between records that trust nobody (0, LDP) and a trusted server (1, CDP). The
    rates' noise terms are √d/(ε√(nN)) for LDP, √d/(εn√N) for silos and √d/(εnN) for CDP, so that on a logarithmic
    scale it is ln n/ln(nN).
    """

    problem: Problem
    upper: tuple[Row, ...]
    lower: tuple[Row, ...]
    loss_bounds: tuple[Row, ...]
    reference: tuple[Row, ...]
    position: float
    privacy_is_free: bool
    user_level: conversions.EpsilonDelta

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return {**asdict(self), "user_level": self.user_level._asdict()}


def bound_report(problem: Problem, *, rounds: int | None = None) -> BoundReport:
    """Evaluate every bound for the problem; a loss bound is for ``rounds`` rounds, or for its best number."""
    if rounds is not None:
        require_count("rounds", rounds)
    everybody = replace(problem, silos=problem.silos * problem.records, records=1, available=None)
    return BoundReport(
        problem=problem,
        upper=(
            _row("minibatch SGD (Theorem 2.1)", "population", lambda: bounds.homogeneous(problem)),
            _row("one-pass accelerated (Theorem 3.1)", "population", lambda: bounds.heterogeneous(problem)),
            _row("accelerated (Theorem 4.1)", "empirical", lambda: bounds.empirical(problem, rounds=rounds)),
            _row("shuffled minibatch SGD (Theorem 5.1)", "population", lambda: bounds.shuffled_homogeneous(problem)),
            _row("shuffled one-pass (Theorem 5.2)", "population", lambda: bounds.shuffled_heterogeneous(problem)),
        ),
        lower=(
            _row("without a trusted server", "population", lambda: lower_bounds.population(problem)),
            _row("without a trusted server", "empirical", lambda: lower_bounds.empirical(problem)),
            _row("even with a trusted server", "population", lambda: lower_bounds.central_population(problem)),
            _row("even with a trusted server", "empirical", lambda: lower_bounds.central_empirical(problem)),
            _row("even without privacy", "population", lambda: lower_bounds.non_private(problem)),
        ),
        loss_bounds=_loss_bounds(problem, rounds),
        reference=(
            _row("a record from each silo (LDP)", "population", lambda: bounds.local_rate(problem)),
            _row("every record for itself (LDP)", "population", lambda: bounds.local_rate(everybody)),
            _row("trusted server (CDP)", "population", lambda: bounds.central_rate(problem)),
        ),
        position=math.log(problem.records) / math.log(everybody.silos) if everybody.silos > 1 else 1.0,
        privacy_is_free=bounds.privacy_is_free(problem),
        user_level=conversions.user_level(problem.epsilon, problem.delta, problem.records),
    )


def _row(name: str, about: str, bound: Callable[[], float]) -> Row:
    try:
        return Row(name, about, bound())
    except (PlanError, AccountingError) as refused:
        return Row(name, about, None, str(refused))


def _loss_bounds(problem: Problem, rounds: int | None) -> tuple[Row, ...]:
    tried = _tried(MOST_ROUNDS) if rounds is None else [rounds]
    short = [R for R in tried if problem.records >= R] or tried
    rows = [
        Row("no training", "population", population.initial_gap(problem), rounds=0),
        _best("minibatch SGD", "population", problem, tried, _minibatch),
        _best("minibatch SGD", "empirical", problem, tried, _minibatch_empirical),
        _best("accelerated", "empirical", problem, tried, _accelerated),
        _best("one-pass accelerated", "population", problem, short, _one_pass, one_pass=True),
        _localized(problem, rounds),
    ]
    if problem.strong_convexity > 0:
        rows.insert(4, _best("accelerated, in stages", "empirical", problem, tried, _multistage))
    else:
        rows.insert(4, _best("accelerated, regularised", "empirical", problem, tried, _regularised))
    return tuple(rows)


def _tried(most: int) -> list[int]:
    """Return round numbers from 1 to ``most``, each about a fifth more than the one before."""
    return sorted({round(math.exp(step * math.log(most) / 50)) for step in range(51)})


def _best(
    name: str,
    about: str,
    problem: Problem,
    tried: Iterable[int],
    bound: Callable[[Problem, int, float], float],
    *,
    one_pass: bool = False,
) -> Row:
    """Take the number of rounds with the least bound, then calibrate its noise with the accountant."""
    n, L, shift = problem.records, problem.lipschitz, calibrate.gaussian_shift(problem.epsilon, problem.delta)
    found: dict[int, float] = {}
    why = "There is no number of rounds to try."
    for R in tried:
        try:
            batch = population.one_pass_batch(records=n, rounds=R) if one_pass else n
            found[R] = bound(problem, R, 2 * L * math.sqrt(1 if one_pass else R) / (batch * shift))
        except PlanError as refused:
            why = str(refused)
    if not found:
        return Row(name, about, None, why)
    R = min(found, key=lambda rounds: found[rounds])
    try:
        sigma = calibrate.noise(
            "one-pass" if one_pass else "full",
            records=n,
            batch=n // R if one_pass else n,
            rounds=R,
            clip=L,
            epsilon=problem.epsilon,
            delta=problem.delta,
            dimension=problem.dimension,
        )
    except AccountingError as refused:
        return Row(name, about, None, str(refused))
    return Row(name, about, bound(problem, R, sigma), rounds=R, sigma=sigma)


def _minibatch(problem: Problem, R: int, sigma: float) -> float:
    beta, c = require_smooth(problem), population.second_moment(problem, sigma)
    sizes = {"lipschitz": problem.lipschitz, "smoothness": beta, "records": problem.records, "silos": problem.silos}
    shape = {"distance": problem.D0, "rounds": R, "second_moment": c}
    step = population.minibatch_step(**sizes, **shape)  # type: ignore[arg-type]
    plain = population.minibatch_population(step=step, **sizes, **shape)  # type: ignore[arg-type]
    if problem.strong_convexity == 0:
        return plain
    overfit = population.minibatch_strong_stability(
        lipschitz=problem.lipschitz,
        strong_convexity=problem.strong_convexity,
        records=problem.records,
        silos=problem.silos,
    )
    return min(plain, overfit + _minibatch_strong(problem, beta, R, c))


def _minibatch_empirical(problem: Problem, R: int, sigma: float) -> float:
    c = population.second_moment(problem, sigma)
    step = problem.D0 / math.sqrt(R * c)  # the best; smoothness is not needed
    plain = loss_bounds.minibatch_empirical(distance=problem.D0, step=step, rounds=R, second_moment=c)
    if problem.strong_convexity == 0 or problem.smoothness is None:
        return plain
    return min(plain, _minibatch_strong(problem, problem.smoothness, R, c))


def _minibatch_strong(problem: Problem, smoothness: float, R: int, second_moment: float) -> float:
    D0, mu = problem.D0, problem.strong_convexity
    step = loss_bounds.minibatch_strong_step(
        distance=D0, smoothness=smoothness, strong_convexity=mu, rounds=R, second_moment=second_moment
    )
    return loss_bounds.minibatch_strong_empirical(
        distance=D0, strong_convexity=mu, step=step, rounds=R, second_moment=second_moment
    )


def _accelerated(problem: Problem, R: int, sigma: float) -> float:
    beta, spread = require_smooth(problem), _spread(problem, sigma)
    best = loss_bounds.accelerated_best(smoothness=beta, distance=problem.D0, rounds=R, variance=spread)
    if problem.strong_convexity == 0:
        return best
    strong = loss_bounds.accelerated_strong(
        smoothness=beta,
        strong_convexity=problem.strong_convexity,
        distance=problem.D0,
        rounds=R,
        variance=spread,
    )
    return min(best, strong)


def _regularised(problem: Problem, R: int, sigma: float) -> float:
    beta, spread = require_smooth(problem), _spread(problem, sigma)
    penalty = loss_bounds.regularised_penalty(distance=problem.D0, rounds=R, variance=spread)
    return loss_bounds.regularised(smoothness=beta, distance=problem.D0, rounds=R, variance=spread, penalty=penalty)


def _multistage(problem: Problem, R: int, sigma: float) -> float:
    return loss_bounds.multistage_plan(
        smoothness=require_smooth(problem),
        strong_convexity=problem.strong_convexity,
        gap=population.initial_gap(problem),
        rounds=R,
        variance=_spread(problem, sigma),
    ).bound


def _one_pass(problem: Problem, R: int, sigma: float) -> float:
    return population.one_pass(problem, rounds=R, sigma=sigma)


def _localized(problem: Problem, rounds: int | None) -> Row:
    name, about = "localized accelerated", "population"
    try:
        plan = localized_phases(problem, most_rounds=MOST_ROUNDS if rounds is None else rounds)
    except (PlanError, AccountingError) as refused:
        return Row(name, about, None, str(refused))
    return Row(
        name, about, plan.bound, rounds=plan.rounds, sigma=max(phase_noise(problem, phase) for phase in plan.phases)
    )


def _spread(problem: Problem, sigma: float) -> float:
    return population.variance(problem, problem.records, sigma, empirical=True)
