"""Loss bounds: upper bounds on the expected excess risk with every constant written out, from public numbers only.

Each holds for every data set whose losses have the stated constants, so a planner may minimise it before any record
is seen. They rest on the paper's algorithms but are derived here; the paper states orders of magnitude only (those
are in ``research``). "Empirical" is the average loss over the records at hand, "population" the expected loss of the
distributions that the records were drawn from. ``distance`` is D₀ ≥ ‖w₀ − w*‖, with w* the minimiser of the objective
that is bounded; ``variance`` is V² ≥ E‖g − ∇F‖² of the server's averaged noisy gradient g; ``second_moment`` is
c ≥ E‖g‖². Accelerated runs use α_r = 2/(r + 1) and η_r = 4υ/(r(r + 1)) with υ (`upsilon`).
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from ringfence.errors import PlanError
from ringfence.planning.problem import EqualSilos
from ringfence.protocol import Restart


def minibatch_empirical(*, distance: float, step: float, rounds: int, second_moment: float) -> float:
    """Empirical risk of Noisy MB-SGD, convex: D₀²/(2ηR) + (η/2)c for the mean of the R points asked about."""
    return distance**2 / (2 * step * rounds) + step / 2 * second_moment


def minibatch_strong_empirical(
    *, distance: float, strong_convexity: float, step: float, rounds: int, second_moment: float
) -> float:
    """Empirical risk of Noisy MB-SGD, strongly convex: μD₀²/(2((1−μη)^−R − 1)) + (η/2)c, weights γ_r = (1−μη)^−(r+1).

    From E‖w_{r+1}−w*‖² ≤ (1−μη)E‖w_r−w*‖² − 2ηE[F(w_r)−F*] + η²c, multiplied by γ_r and summed over the rounds.
    Needs μη < 1; for μ → 0 it is the convex bound.
    """
    require_step(step, (1 - 1e-12) / strong_convexity, "1/μ")
    exponent = -rounds * math.log1p(-strong_convexity * step)
    start = 0.0 if exponent > 700 else strong_convexity * distance**2 / (2 * math.expm1(exponent))
    return start + step / 2 * second_moment


def minibatch_strong_step(
    *, distance: float, smoothness: float, strong_convexity: float, rounds: int, second_moment: float
) -> float:
    """P8, Stich's step: min{1/(2β), ln(max{2, μ²D₀²R²/c})/(μR)}."""
    mu, R = strong_convexity, rounds
    return min(1 / (2 * smoothness), math.log(max(2.0, (mu * distance * R) ** 2 / second_moment)) / (mu * R))


def accelerated(*, distance: float, upsilon: float, rounds: int, variance: float) -> float:
    """Accelerated Noisy MB-SGD without strong convexity, υ ≥ 2β: 2υD₀²/(R(R+1)) + (2R+1)V²/(6υ)."""
    R = rounds
    return 2 * upsilon * distance**2 / (R * (R + 1)) + (2 * R + 1) * variance / (6 * upsilon)


def accelerated_upsilon(*, smoothness: float, distance: float, rounds: int, variance: float) -> float:
    """Return the υ that minimises ``accelerated``: max{2β, (V/D₀)√(R(R+1)(2R+1)/12)}."""
    R = rounds
    return max(2 * smoothness, math.sqrt(variance * R * (R + 1) * (2 * R + 1) / 12) / distance)


def accelerated_best(*, smoothness: float, distance: float, rounds: int, variance: float) -> float:
    """``accelerated`` at its best υ, at most 4βD₀²/(R(R+1)) + 2√(2/3)·VD₀/√R."""
    upsilon = accelerated_upsilon(smoothness=smoothness, distance=distance, rounds=rounds, variance=variance)
    return accelerated(distance=distance, upsilon=upsilon, rounds=rounds, variance=variance)


def accelerated_strong(
    *, smoothness: float, strong_convexity: float, distance: float, rounds: int, variance: float
) -> float:
    """Accelerated Noisy MB-SGD, strongly convex, one run with υ = β: 2βD₀²/(R(R+1)) + 2V²/(μ(R+1)).

    The schedule needs to know neither the noise nor the gap.
    """
    R = rounds
    return 2 * smoothness * distance**2 / (R * (R + 1)) + 2 * variance / (strong_convexity * (R + 1))


def regularised_penalty(*, distance: float, rounds: int, variance: float) -> float:
    """λ = V/(D₀√R), the penalty (λ/2)‖w − w₀‖² of the paper's convex runs (its factor-two ambiguity resolved)."""
    return math.sqrt(variance / rounds) / distance


def regularised(*, smoothness: float, distance: float, rounds: int, variance: float, penalty: float) -> float:
    """Accelerated Noisy MB-SGD on the loss plus (λ/2)‖w − w₀‖²: the strongly convex bound plus (λ/2)D₀².

    The penalised minimiser is no farther from w₀ than w*, so D₀ serves for both; the penalty is public and adds no
    variance.
    """
    if not penalty > 0:
        raise PlanError("Without noise there is nothing to regularise: use the plain accelerated schedule.")
    run = accelerated_strong(
        smoothness=smoothness + penalty, strong_convexity=penalty, distance=distance, rounds=rounds, variance=variance
    )
    return run + penalty / 2 * distance**2


@dataclass(frozen=True)
class MultiStageBound:
    """Stages for a strongly convex loss; ``bound`` is on the gap after the last one."""

    stages: tuple[Restart, ...]
    bound: float


def multistage_plan(
    *, smoothness: float, strong_convexity: float, gap: float, rounds: int, variance: float
) -> MultiStageBound:
    """Plan as many stages as fit into ``rounds``, each of which halves the bound on the gap; leftovers go to the last.

    The paper's multi-stage schedule with Δ = ``gap`` at the start: R_k = ⌈max{4√(2β/μ), 128V²/(3μΔ2^−(k+1))}⌉ and
    υ_k = max{2β, √(μV²R_k(R_k+1)(R_k+2)/(3Δ2^−(k−1)))}; the paper prints that product in the denominator, where it
    belongs in the numerator. A stage that starts with expected gap g starts at E‖w − w*‖² ≤ 2g/μ, hence ends with
    4υg/(μR(R+1)) + (2R+1)V²/(6υ), which is below 0.49Δ2^−(k−1). The bound is this recursion: at most Δ2^−U.
    """
    mu, shortest = strong_convexity, 4 * math.sqrt(2 * smoothness / strong_convexity)
    lengths: list[int] = []
    left = rounds
    while gap * 0.5 ** len(lengths) > 1e-300:
        needed = max(shortest, 128 * variance / (3 * mu * gap * 0.5 ** (len(lengths) + 2)))  # Δ2^−(k+1)
        if needed > left:
            break
        lengths.append(math.ceil(needed))
        left -= lengths[-1]
    if not lengths:
        needed = math.ceil(max(shortest, 512 * variance / (3 * mu * gap)))
        raise PlanError(
            f"The first stage needs {needed} rounds to halve the gap, but there are {rounds}: ask for more rounds, or "
            "use the single-run schedule, which works with any number."
        )
    lengths[-1] += left
    stages, bound = [], gap
    for k, R in enumerate(lengths):
        upsilon = max(2 * smoothness, math.sqrt(mu * variance * R * (R + 1) * (R + 2) / (3 * gap * 0.5**k)))
        bound = 4 * upsilon * bound / (mu * R * (R + 1)) + (2 * R + 1) * variance / (6 * upsilon)
        stages.append(Restart(rounds=R, upsilon=upsilon))
    return MultiStageBound(tuple(stages), bound)


@dataclass(frozen=True)
class PhaseBound:
    """One phase of the localized algorithm, on records that no other phase uses.

    ``penalty`` λ pulls towards the phase's start; ``inner`` bounds the expected gap of the penalised empirical loss
    when the phase ends.
    """

    records: int
    penalty: float
    rounds: int
    inner: float


@dataclass(frozen=True)
class LocalizedBound:
    """Phases and the bound on the expected excess population risk at the end of the last one."""

    phases: tuple[PhaseBound, ...]
    bound: float

    @property
    def rounds(self) -> int:
        """Rounds of all phases together."""
        return sum(phase.rounds for phase in self.phases)


def localized_bound(silos: EqualSilos, phases: tuple[PhaseBound, ...]) -> float:
    """Bound E F(w_τ) − F* of localized Accelerated MB-SGD; our own derivation, for any heterogeneity of the silos.

    Phase i minimises G_i(w) = F̂_i(w) + (λ_i/2)‖w − w_{i−1}‖² over W, where F̂_i is the empirical loss of n_i fresh
    records per silo; ŵ_i is its minimiser and E[G_i(w_i) − G_i(ŵ_i)] ≤ b_i (``PhaseBound.inner``), so by strong
    convexity E‖w_i − ŵ_i‖² ≤ 2b_i/λ_i. Replacing a record moves ŵ_i by at most 2L/(λ_iNn_i), hence E F(ŵ_i) ≤
    E F̂_i(ŵ_i) + 2L²/(λ_iNn_i), and for every w that does not depend on the phase's records, F̂_i(ŵ_i) ≤ F̂_i(w) +
    (λ_i/2)‖w − w_{i−1}‖² gives E[F(ŵ_i) − F(w)] ≤ (λ_i/2)E‖w − w_{i−1}‖² + 2L²/(λ_iNn_i). Take w = ŵ_{i−1}, with
    ŵ_0 = w*, add up, and close with F(w_τ) − F(ŵ_τ) ≤ L‖w_τ − ŵ_τ‖:

        λ_1D₀²/2 + Σ_i 2L²/(λ_iNn_i) + Σ_{i≥2} (λ_i/λ_{i−1}) b_{i−1} + L√(2b_τ/λ_τ).
    """
    L, last = silos.lipschitz, phases[-1]
    overfit = math.fsum(2 * L**2 / (phase.penalty * silos.silos * phase.records) for phase in phases)
    handed_on = math.fsum(following.penalty / phase.penalty * phase.inner for phase, following in pairwise(phases))
    start = phases[0].penalty / 2 * silos.distance**2
    return start + overfit + handed_on + L * math.sqrt(2 * last.inner / last.penalty)


def localized_penalty(silos: EqualSilos) -> float:
    """λ = (L/D₀)√(1/(Nn) + 4z²d/(n²M)), the first phase's penalty that gives localization its optimal rate.

    A larger one has a smaller bound, whose constants are large, but does worse where it was measured
    (docs/results/algorithms).
    """
    n = silos.records
    return silos.lipschitz / silos.distance * math.sqrt(1 / (silos.silos * n) + silos.noise / n**2)


def localized_phases(silos: EqualSilos, penalty: float, most_rounds: int, most_phases: int) -> LocalizedBound:
    """Plan the localized algorithm: phase i has ⌊n/2^i⌋ records, penalty λ·growth^(i−1) and its own full budget.

    growth = 2^max{3, 3/2 + ½log_n M}. Each phase is one strongly convex accelerated run (μ = λ_i, υ = β + λ_i) on
    full batches, whose noise σ_i = 2Lz√R_i/n_i makes the noise term nearly independent of R_i; so R_i is the least for
    which the other terms fall to a quarter of a_i = (L²/λ_i)(1/(Nn_i) + 4z²d/(n_i²M)). If ``most_rounds`` is less than
    all phases need, each gets its share. As many phases are kept as make ``localized_bound`` least. With M < N every
    phase carries the variance of silos that stay away.
    """
    growth = 2 ** max(3.0, 1.5 + 0.5 * math.log(silos.available) / math.log(silos.records))
    longest = min(most_rounds, most_phases)
    wanted = [_phase(silos, i, penalty * growth ** (i - 1)) for i in range(1, longest + 1)]
    plans = []
    for kept in range(1, longest + 1):
        rounds = _shares([phase.rounds for phase in wanted[:kept]], most_rounds)
        phases = tuple(
            _phase(silos, i, phase.penalty, R)
            for i, (phase, R) in enumerate(zip(wanted, rounds, strict=False), start=1)
        )
        plans.append(LocalizedBound(phases, localized_bound(silos, phases)))
    return min(plans, key=lambda plan: plan.bound)


def _phase(silos: EqualSilos, i: int, penalty: float, rounds: int | None = None) -> PhaseBound:
    """Return phase i of the localized algorithm, with as many rounds as it wants where none are given."""
    L, records, beta, noise, away = silos.lipschitz, silos.records >> i, silos.smoothness, silos.noise, silos.absence
    reach = min(L / penalty, silos.first_reach if i == 1 else silos.diameter)  # how far ŵ_i can be
    if rounds is None:
        aim = L**2 / (4 * penalty) * (1 / (silos.silos * records) + noise / records**2)
        # The least R with start/(R(R+1)) + spread/(R+1) ≤ aim, that is, R² + R(1 − spread/aim) − start/aim ≥ 0.
        start, spread = 2 * (beta + penalty) * reach**2, 2 * away / penalty
        half = (spread / aim - 1) / 2
        rounds = max(1, math.ceil(half + math.sqrt(half**2 + start / aim)))
    variance = noise * L**2 * rounds / records**2 + away
    inner = accelerated_strong(
        smoothness=beta + penalty, strong_convexity=penalty, distance=reach, rounds=rounds, variance=variance
    )
    return PhaseBound(records, penalty, rounds, inner)


def _shares(wanted: list[int], most: int) -> list[int]:
    """Scale rounds of the localized phases down to a sum of at most ``most``, each at least 1."""
    if sum(wanted) <= most:
        return wanted
    spare, above = most - len(wanted), sum(wanted) - len(wanted)
    return [1 + (rounds - 1) * spare // above for rounds in wanted]


def require_step(step: float, limit: float, formula: str) -> None:
    """Refuse a step that no loss bound is proved for."""
    if not 0 < step <= limit * (1 + 1e-12):
        raise PlanError(f"The bound needs a step above 0 and at most {formula} = {limit:.4g}, not {step:.4g}.")
