"""The paper's prescriptions for rounds, batches, steps and smoothing (P1 to P21 of docs/algorithms.md), made usable.

They are orders of magnitude: the constants that the paper hides are 1, and a planner that minimises ``loss_bounds``
does better. Rounds are ⌈·⌉ and at least 1, batches ⌈·⌉ and from 1 to n, logarithms ln(max{e, ·}). Corrections of the
paper are named where they are made; ``printed=True`` gives the formula as printed. The noise formulas P1, P3, P4 and
P5 are in ``paper``; the best step P6' and Stich's step P8 are in ``loss_bounds``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringfence.accounting.events import require_count
from ringfence.errors import PlanError
from ringfence.research.theory import paper
from ringfence.research.theory.conversions import Availability
from ringfence.research.theory.population import initial_gap
from ringfence.research.theory.problem import Problem, require_smooth


def theorem_batch(problem: Problem, *, rounds: int) -> int:
    """P1, the least batch of the theorem's noise: K ≥ εn/(4√(2R ln(2/δ)))."""
    K = problem.epsilon * problem.records / (4 * math.sqrt(2 * rounds * math.log(2 / problem.delta)))
    if problem.records < K:
        raise PlanError(
            f"The theorem's noise needs a batch of {math.ceil(K)}, but a silo has {problem.records} records. Ask for "
            "more rounds or a smaller epsilon, or calibrate the noise instead."
        )
    return _whole(K)


def minibatch_step(problem: Problem, *, rounds: int) -> float:
    """P6, the step of Theorem 2.1 as printed: min{1/β, (D/(L√R)) min{1, εn√M/√(Rd), √(nM/R)}}."""
    beta, n, M, R = require_smooth(problem), problem.records, problem.M, rounds
    private = problem.epsilon * n * math.sqrt(M / (R * problem.dimension))
    scale = problem.diameter / (problem.lipschitz * math.sqrt(R))
    return min(1 / beta, scale * min(1.0, private, math.sqrt(n * M / R)))


def minibatch_rounds(problem: Problem) -> int:
    """P7 and P9, rounds of Noisy MB-SGD in Theorem 2.1.

    Convex: (βD√M/L) min{√n, εn/√d} + min{nM, ε²n²M/d}. Strongly convex: the larger of
    (2β/μ) ln(βD²μMε²n²/(dL²)) and min{nM, ε²n²M/d}.
    """
    beta, n, M = require_smooth(problem), problem.records, problem.M
    private = (problem.epsilon * n) ** 2 / problem.dimension  # ε²n²/d
    enough = M * min(n, private)
    D, L, mu = problem.diameter, problem.lipschitz, problem.strong_convexity
    if mu > 0:
        return _whole(max(2 * beta / mu * _log(beta * D**2 * mu * M * private / L**2), enough))
    return _whole(beta * D * math.sqrt(M) / L * math.sqrt(min(n, private)) + enough)


def minibatch_growth(*, strong_convexity: float, step: float) -> float:
    """P8, how much more each round weighs than the one before in the strongly convex average: 1/(1 − μη)."""
    if not 0 <= strong_convexity * step < 1:
        raise PlanError(f"The averaging weights need a step below 1/μ, not {step:.4g}. Lower it.")
    return 1 / (1 - strong_convexity * step)


def smoothing_minibatch(problem: Problem) -> float:
    """P10, smoothness to give a non-smooth loss before Noisy MB-SGD: L²/β then equals the rate of Theorem 2.1."""
    n, M = problem.records, problem.M
    private = problem.dimension * math.log(1 / problem.delta) / (problem.epsilon * n) ** 2
    if problem.strong_convexity > 0:
        return problem.strong_convexity * M / (1 / n + private)
    return problem.lipschitz * math.sqrt(M) / (problem.diameter * (1 / math.sqrt(n) + math.sqrt(private)))


def smoothing_erm(problem: Problem) -> float:
    """P15, smoothness to give a non-smooth loss before Accelerated MB-SGD: εn√M L/(√d D), or μMε²n²/d."""
    private = problem.epsilon * problem.records * math.sqrt(problem.M / problem.dimension)
    if problem.strong_convexity > 0:
        return problem.strong_convexity * private**2
    return private * problem.lipschitz / problem.diameter


def smoothed(problem: Problem, smoothness: float) -> Problem:
    """Return the problem of the loss smoothed to β by its Moreau envelope: strong convexity falls to μβ/(μ+β).

    The Lipschitz constant stays (the paper's 2L is not needed), and so does the noise.
    """
    mu = problem.strong_convexity
    return replace(problem, smoothness=smoothness, strong_convexity=mu * smoothness / (mu + smoothness))


@dataclass(frozen=True)
class OnePassSchedule:
    """Batch and rounds of one pass; ``noise_dominated`` if the formula asked for more records than there are."""

    batch: int
    rounds: int
    noise_dominated: bool


def one_pass(problem: Problem, *, printed: bool = False) -> OnePassSchedule:
    """P11 and P12, batch and rounds of One-Pass Accelerated MB-SGD in Theorem 3.1.

    Convex: K = (L/(βD))^{2/5} n^{3/5} (d ln(1/δ))^{1/5} / (ε^{2/5} M^{1/5}). Strongly convex, printed: R = √κ ln(Δ/a)
    for the target a = max{L²d ln(1/δ)/(ε²n²M), φ²/(nM)}/μ; a stage halves the gap in ⌈4√(2κ)⌉ rounds, so without
    ``printed`` it is R = ⌈log₂(Δ/a)⌉⌈4√(2κ)⌉.
    """
    noise = problem.dimension * math.log(1 / problem.delta) / (problem.epsilon**2 * problem.M)
    return _one_pass(problem, noise, printed)


def shuffled_one_pass(problem: Problem, *, printed: bool = False) -> OnePassSchedule:
    """P18 and P19, the same with a shuffler (Theorem 5.2): d ln²(d/δ)/(εM)² in place of d ln(1/δ)/(ε²M).

    The paper's convex batch has a stray ISRL budget in it and its strongly convex one ln(1/δ); both are corrected.
    """
    require_shuffle_vectors(problem)
    d = problem.dimension
    return _one_pass(problem, d * math.log(d / problem.delta) ** 2 / (problem.epsilon * problem.M) ** 2, printed)


def _one_pass(problem: Problem, noise: float, printed: bool) -> OnePassSchedule:
    beta, n, L, mu = require_smooth(problem), problem.records, problem.lipschitz, problem.strong_convexity
    if mu == 0:
        K = (L / (beta * problem.diameter)) ** 0.4 * n**0.6 * noise**0.2
        batch = min(n, _whole(K))
        return OnePassSchedule(batch, n // batch, n < K)
    aim = max(L**2 * noise / n**2, problem.phi_squared / (n * problem.M)) / mu
    R = _stages(problem.condition, initial_gap(problem) / aim, printed)
    if n < R:
        raise PlanError(
            f"The multi-stage schedule needs {R} rounds, each with fresh records, but a silo has {n}. Use the "
            "single-run schedule, which works with any number of rounds."
        )
    return OnePassSchedule(n // R, R, aim > initial_gap(problem))


def erm_rounds(problem: Problem, *, batch: int | None = None, printed: bool = False) -> int:
    """P13, P14 and P15, rounds of Accelerated MB-SGD in Theorem 4.1; full batches unless ``batch`` is given.

    With x = √M εn/√(d ln(1/δ)), convex and smooth: √(βD/L · x), which makes βD²/R² equal to the rate LD/x. The paper
    prints √(√(βD/L) · x), which does not, and contradicts its own non-smooth case: there β = xL/D and R = x.
    Strongly convex: as in ``one_pass``. Sampled records add ε²n²/(K d ln(1/δ)) to the maximum, and absent silos, which
    the paper forgets, (υ/L)²((N−M)/(N−1)) ε²n²/(d ln(1/δ)).
    """
    n, M, L, mu = problem.records, problem.M, problem.lipschitz, problem.strong_convexity
    K = n if batch is None else require_count("batch", batch)
    if n < K:
        raise PlanError(f"The batch of {K} is larger than the {n} records of a silo. Lower it.")
    private = (problem.epsilon * n) ** 2 / (problem.dimension * math.log(1 / problem.delta))
    x = math.sqrt(M * private)
    if mu > 0:
        beta = smoothing_erm(problem) if problem.smoothness is None else problem.smoothness
        reach = initial_gap(problem) * mu * x**2 / L**2
        if printed:  # P14's logarithm lacks ln(1/δ)
            reach *= math.log(1 / problem.delta)
        R: float = _stages(beta / mu, reach, printed)
    elif problem.smoothness is None:
        R = x
    else:
        ratio = problem.smoothness * problem.diameter / L
        R = math.sqrt((math.sqrt(ratio) if printed else ratio) * x)
    sampled = private / K if problem.silos * n > M * K and (n > K or printed) else 0.0
    absent = 0.0 if printed else problem.absent * problem.upsilon_squared / L**2 * private
    return _whole(max(R, sampled, absent))


def shuffled_noise(problem: Problem, *, rounds: int, constant: float = 1.0) -> float:
    """P16, σ of a record's message in Shuffled MB-SGD (Theorem 5.1); the theorem leaves its ``constant`` open.

    σ² = C L²RM ln(RM²/(Nδ)) ln(R/δ) ln(1/δ) / (n²N²ε²). No guarantee follows without the constant: account for the
    noise numerically.
    """
    require_shuffle(problem, rounds=rounds)
    n, N, M, R = problem.records, problem.silos, problem.M, rounds
    return math.sqrt(constant * R * M * _shuffle_logs(problem, R)) * problem.lipschitz / (n * N * problem.epsilon)


def shuffled_step(problem: Problem, *, rounds: int) -> float:
    """P16, the step: min{1/β, (D/(L√R)) min{1, √(nM/R), εnN/√(dR·logs)}}; the 1 is missing in the paper."""
    beta, n, R = require_smooth(problem), problem.records, rounds
    private = problem.epsilon * n * problem.silos / math.sqrt(problem.dimension * R * _shuffle_logs(problem, R))
    scale = problem.diameter / (problem.lipschitz * math.sqrt(R))
    return min(1 / beta, scale * min(1.0, math.sqrt(n * problem.M / R), private))


def shuffled_rounds(problem: Problem, *, printed: bool = False) -> int:
    """P17, rounds of Shuffled MB-SGD: so many that every message is nearly private by itself, hence impractical.

    The largest of n²N²ε²/M, N/M, min{nM, ε²n²N²/d}, and (βD/L) min{√(nM), εnN/√d} or, strongly convex,
    (8β/μ) ln(βD²με²n²N²/(dL²)). The third is M times what the paper prints, because the L² of a batch's mean
    gradient does not shrink with M.
    """
    beta, n, N, M = require_smooth(problem), problem.records, problem.silos, problem.M
    D, L, mu = problem.diameter, problem.lipschitz, problem.strong_convexity
    central = (problem.epsilon * n * N) ** 2
    third = min(n * M, central / problem.dimension) / (M if printed else 1)
    if mu > 0:
        last = 8 * beta / mu * _log(beta * D**2 * mu * central / (problem.dimension * L**2))
    else:
        last = beta * D / L * math.sqrt(min(n * M, central / problem.dimension))
    return _whole(max(central / M, N / M, third, last))


def shuffled_least_silos(problem: Problem, *, rounds: int) -> int:
    """P16, how many silos Theorem 5.1 needs in a round: M ≥ 16 ln(18RM²/(Nδ))."""
    return math.ceil(16 * math.log(18 * rounds * problem.M**2 / (problem.silos * problem.delta)))


def require_shuffle(problem: Problem, *, rounds: int) -> None:
    """Refuse what Theorem 5.1 does not cover."""
    limit, least = math.log(2 / problem.delta), shuffled_least_silos(problem, rounds=rounds)
    if problem.epsilon > limit:
        raise PlanError(f"Theorem 5.1 holds for epsilon up to ln(2/δ) = {limit:.4g}. Lower epsilon.")
    if least > problem.M:
        raise PlanError(
            f"Theorem 5.1 needs at least 16 ln(18RM²/(Nδ)) = {least} silos in each of {rounds} rounds, but there are "
            f"{problem.M:g}. Use secure aggregation or the vector-sum protocol, which work with few silos."
        )


def require_shuffle_vectors(problem: Problem) -> None:
    """Refuse what Theorem 5.2 does not cover."""
    if problem.epsilon > 15 or problem.delta >= 0.5:
        raise PlanError("Theorem 5.2 holds for epsilon up to 15 and delta below 1/2. Lower them.")


def _shuffle_logs(problem: Problem, R: int) -> float:
    delta, crowd = problem.delta, R * problem.M**2 / problem.silos
    return _log(crowd / delta) * _log(R / delta) * math.log(1 / delta)


@dataclass(frozen=True)
class Unbalanced:
    """Silos that differ: how many records each has, and the guarantee each asks for; availability as in the paper."""

    records: Sequence[int]
    epsilons: Sequence[float]
    deltas: Sequence[float]
    availability: Availability

    def __post_init__(self) -> None:
        if not len(self.records) == len(self.epsilons) == len(self.deltas) > 0:
            raise PlanError("Give every silo its records, its epsilon and its delta: three lists of the same length.")
        if self.availability.most > len(self.records):
            raise PlanError(f"{self.availability.most} silos answer a round, but only {len(self.records)} exist.")
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            if epsilon > 2 * math.log(2 / delta):
                raise PlanError(f"The theorem holds for epsilon up to 2 ln(2/δ), but epsilon is {epsilon:g}. Lower it.")

    def privacy(self, rounds: int) -> float:
        """min{Ξ/M', ξ_max/M}, the noise in the unbalanced theorem; ξ_i = ln(2.5R/δ_i) ln(2/δ_i)/(n_iε_i)².

        Ξ² is the mean over M_r of the square of the average of the M_r largest ξ_i.
        """
        xi = sorted(
            (
                math.log(2.5 * rounds / delta) * math.log(2 / delta) / (n * epsilon) ** 2
                for n, epsilon, delta in zip(self.records, self.epsilons, self.deltas, strict=True)
            ),
            reverse=True,
        )
        likely = self.availability.probabilities
        Xi = math.sqrt(math.fsum(p * (math.fsum(xi[:m]) / m) ** 2 for m, p in likely.items()))
        return min(Xi / self.availability.quadratic, xi[0] / self.availability.harmonic)


def unbalanced_noise(
    silos: Unbalanced, *, batches: Sequence[int], rounds: int, clip: float
) -> tuple[paper.PaperNoise, ...]:
    """P2, the theorem's noise (P1) for each silo with its own records and guarantee."""
    return tuple(
        paper.theorem_noise(records=n, batch=K, rounds=rounds, clip=clip, epsilon=epsilon, delta=delta)
        for n, K, epsilon, delta in zip(silos.records, batches, silos.epsilons, silos.deltas, strict=True)
    )


def unbalanced_batches(silos: Unbalanced, *, rounds: int) -> tuple[int, ...]:
    """P2, batches that are the same share of every silo's records: K_i ≥ ε_in_i/(4√(2R ln(2/δ_i))).

    The paper prints n for n_i.
    """
    share = max(
        epsilon / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))
        for epsilon, delta in zip(silos.epsilons, silos.deltas, strict=True)
    )
    if share > 1:
        raise PlanError("The theorem's noise needs batches larger than the silos' records. Ask for more rounds.")
    return tuple(_whole(share * n) for n in silos.records)


def unbalanced_step(silos: Unbalanced, problem: Problem, *, rounds: int) -> float:
    """P20, min{1/β, (D/(L√R)) min{1, √(n_min M/R), 1/√(dR min{Ξ/M', ξ_max/M})}}."""
    beta, R, n = require_smooth(problem), rounds, min(silos.records)
    private = 1 / math.sqrt(problem.dimension * R * silos.privacy(R))
    scale = problem.diameter / (problem.lipschitz * math.sqrt(R))
    return min(1 / beta, scale * min(1.0, math.sqrt(n * silos.availability.harmonic / R), private))


def unbalanced_rounds(silos: Unbalanced, problem: Problem) -> int:
    """P20 and P21, rounds for unbalanced silos, with ξ = min{Ξ/M', ξ_max/M}, which depends on R: the least R that fits.

    Convex (βD/L) min{√(n_min M), 1/√(dξ)} + min{n_min M, 1/(dξ)}; strongly convex 2κ ln(βμD²/(L²dξ)) + n_min M. The
    paper's printed convex form lacks the inverse power of the first minimum.
    """
    beta, d, D, L = require_smooth(problem), problem.dimension, problem.diameter, problem.lipschitz
    crowd = min(silos.records) * silos.availability.harmonic

    def needed(R: int) -> float:
        private = 1 / (d * silos.privacy(R))
        if problem.strong_convexity > 0:
            return 2 * problem.condition * _log(beta * problem.strong_convexity * D**2 * private / L**2) + crowd
        return beta * D / L * math.sqrt(min(crowd, private)) + min(crowd, private)

    return _least(needed)


def weighted(problem: Problem, weights: Sequence[float]) -> Problem:
    """Return the problem in which silo i counts with weight p_i: L, β grow by N max p_i, and μ shrinks by N min p_i."""
    if len(weights) != problem.silos or min(weights) < 0 or not math.isclose(math.fsum(weights), 1, rel_tol=1e-9):
        raise PlanError(f"Give each of the {problem.silos} silos a weight of at least 0; the weights must add up to 1.")
    most, least = problem.silos * max(weights), problem.silos * min(weights)
    return replace(
        problem,
        lipschitz=problem.lipschitz * most,
        smoothness=None if problem.smoothness is None else problem.smoothness * most,
        strong_convexity=problem.strong_convexity * least,
        variance=None if problem.variance is None else problem.variance * most**2,
        heterogeneity=None,
    )


def _least(needed: Callable[[int], float]) -> int:
    """Return the least R with R ≥ needed(R), for a ``needed`` that falls with R."""
    low, high = 0, _whole(needed(1))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle >= needed(middle) else (middle, high)
    return high


def _stages(condition: float, ratio: float, printed: bool) -> int:
    """Return the rounds after which multi-stage acceleration has shrunk the gap by ``ratio``."""
    if printed:
        return _whole(math.sqrt(condition) * _log(ratio))
    return max(1, math.ceil(math.log2(max(2.0, ratio)))) * math.ceil(4 * math.sqrt(2 * condition))


def _whole(value: float) -> int:
    return max(1, math.ceil(value * (1 - 1e-12)))


def _log(value: float) -> float:
    return math.log(max(math.e, value))
