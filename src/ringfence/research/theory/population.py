"""Loss bounds that `ringfence bounds` prints and no plan is chosen by: population risk, and what overfitting adds.

As in ``planning.loss_bounds``, every constant is written out, and each holds for every data set whose losses have the
stated constants. ``distance``, ``variance``, ``second_moment``, "empirical" and "population" mean the same as there.
"""

import math

from ringfence.errors import PlanError
from ringfence.planning.loss_bounds import (
    accelerated_best,
    accelerated_strong,
    minibatch_empirical,
    require_step,
)
from ringfence.research.theory.problem import Problem, require_smooth


def variance(problem: Problem, batch: int, sigma: float, *, empirical: bool) -> float:
    """Bound V² = E‖g − ∇F‖² of the average g of M noisy silo gradients over ``batch`` records each.

    Against the population loss (fresh records, the paper's variance lemma in the proof of Theorem 3.1):
    φ²/(MK) + ((N−M)/(N−1)) υ²/M + dσ²/M. Against the empirical loss (K distinct records of n, silos drawn without
    replacement): the first term shrinks by (n−K)/(n−1) and vanishes for full batches. The paper's own empirical
    lemma drops the second term, which silos that stay away cause; it is kept here.
    """
    n, K, M = problem.records, batch, problem.M
    if not 1 <= K <= n:
        raise PlanError(f"A batch must have from 1 to {n} of the silo's records, not {K}.")
    unseen = ((n - K) / (n - 1) if n > 1 else 0.0) if empirical else 1.0
    silos = problem.absent * problem.upsilon_squared / M
    return unseen * problem.phi_squared / (M * K) + silos + problem.dimension * sigma**2 / M


def second_moment(problem: Problem, sigma: float) -> float:
    """Bound c = E‖g‖² ≤ L² + dσ²/M of the averaged noisy gradient, for every batch and availability."""
    return problem.lipschitz**2 + problem.dimension * sigma**2 / problem.M


def minibatch_stability(
    *, lipschitz: float, smoothness: float, step: float, rounds: int, records: int, silos: float
) -> float:
    """How much Noisy MB-SGD may overfit, convex: α = 2L²Rη/(nN), for every weighted mean of the points asked about.

    The paper has nM for nN (its stability lemma): give M as ``silos`` for that. Ours is smaller because a silo is
    asked in a round with probability M_r/N, so that the replaced record changes the iterate by 2Lη/(nN) in expectation,
    whatever M_r is. Needs η ≤ 1/β. (For the plain mean half of it is true.)
    """
    require_step(step, 1 / smoothness, "1/β")
    return 2 * lipschitz**2 * rounds * step / (records * silos)


def minibatch_population(
    *,
    distance: float,
    lipschitz: float,
    smoothness: float,
    step: float,
    rounds: int,
    records: int,
    silos: float,
    second_moment: float,
) -> float:
    """Population risk of Noisy MB-SGD, convex: empirical plus stability; silos may differ arbitrarily.

    The paper asks for identically distributed silos; independent records are enough, since swapping a record for a
    fresh one of its own silo's distribution is all that the stability argument does.
    """
    overfit = minibatch_stability(
        lipschitz=lipschitz, smoothness=smoothness, step=step, rounds=rounds, records=records, silos=silos
    )
    return overfit + minibatch_empirical(distance=distance, step=step, rounds=rounds, second_moment=second_moment)


def minibatch_step(
    *,
    distance: float,
    lipschitz: float,
    smoothness: float,
    rounds: int,
    records: int,
    silos: float,
    second_moment: float,
) -> float:
    """P6', the step that minimises ``minibatch_population``: min{1/β, (D₀/√R)/√(4L²R/(nN) + c)}."""
    slope = 4 * lipschitz**2 * rounds / (records * silos) + second_moment
    return min(1 / smoothness, distance / math.sqrt(rounds * slope))


def minibatch_strong_stability(*, lipschitz: float, strong_convexity: float, records: int, silos: float) -> float:
    """How much Noisy MB-SGD may overfit, strongly convex, η ≤ 1/β: α = 2L²/(μnN), for every weighting.

    Each round contracts by 1 − ημ and adds 2Lη/(nN) in expectation, so two runs stay within 2L/(μnN). The paper's
    4L²/(μ(nM−1)) is larger (``bounds.strong_stability``).
    """
    return 2 * lipschitz**2 / (strong_convexity * records * silos)


def initial_gap(problem: Problem) -> float:
    """Δ ≥ F(w₀) − F* from public numbers: LD₀, or L²/(2μ) where that is smaller."""
    known = problem.lipschitz * problem.D0
    return min(known, problem.lipschitz**2 / (2 * problem.strong_convexity)) if problem.strong_convexity else known


def one_pass_batch(*, records: int, rounds: int) -> int:
    """K = ⌊n/R⌋, the largest batch that lets every record be used at most once."""
    if not 1 <= rounds <= records:
        raise PlanError(f"One pass over {records} records has from 1 to {records} rounds, not {rounds}: ask for fewer.")
    return records // rounds


def one_pass(problem: Problem, *, rounds: int, sigma: float) -> float:
    """Population risk of One-Pass Accelerated MB-SGD: every record is fresh, so no stability term is needed.

    The single strongly convex run if μ > 0, else the schedule with the best υ.
    """
    batch = one_pass_batch(records=problem.records, rounds=rounds)
    spread = variance(problem, batch, sigma, empirical=False)
    smoothness = require_smooth(problem)
    if problem.strong_convexity > 0:
        return accelerated_strong(
            smoothness=smoothness,
            strong_convexity=problem.strong_convexity,
            distance=problem.D0,
            rounds=rounds,
            variance=spread,
        )
    return accelerated_best(smoothness=smoothness, distance=problem.D0, rounds=rounds, variance=spread)
