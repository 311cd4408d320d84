"""The paper's upper bounds on the excess risk, and the lemmas they rest on, as functions.

Orders of magnitude: the constants, and the logarithms that the paper hides, are 1; ``loss_bounds`` has constants.
A function takes the strongly convex statement where the problem's strong convexity is above 0, else the convex one,
and refuses what its theorem does not cover. Corrections of the paper are named where they are made. ℓ is ln(1/δ).
Lower bounds are in ``lower_bounds``.
"""

import math
from collections.abc import Sequence

from ringfence.errors import PlanError
from ringfence.research.theory.population import initial_gap
from ringfence.research.theory.prescriptions import (
    Unbalanced,
    require_shuffle,
    require_shuffle_vectors,
    shuffled_rounds,
)
from ringfence.research.theory.problem import Problem, require_smooth


def homogeneous(problem: Problem) -> float:
    """Theorem 2.1, population risk of Noisy MB-SGD; smoothness is not needed, and ε ≤ 2 ln(2/δ) is.

    Convex (LD/√M)(1/√n + √(dℓ)/(εn)); strongly convex (L²/(μM))(1/n + dℓ/(ε²n²)). The paper states it for silos with
    the same distribution; it holds for any independent silos (``population.minibatch_population`` says why).
    """
    _require_epsilon(problem, 2 * math.log(2 / problem.delta), "2 ln(2/δ)")
    n, private = problem.records, _private(problem)
    return _rate(problem, 1 / n / problem.M, private / problem.M)


def heterogeneous(problem: Problem) -> float:
    """Theorem 3.1, population risk of One-Pass Accelerated MB-SGD for any silos; smooth, ε ≤ 8 ln(1/δ), M ≤ N.

    Convex φD/√(nM) + (β^{1/4}LD^{3/2}√(dℓ)/(εn√M))^{4/5}; strongly convex φ²/(μnM) + √κ(L²/μ)dℓ/(ε²n²M), where the
    paper's formal statement misses a 1/μ; plus ``absent_silos`` if M < N.
    """
    _require_epsilon(problem, 8 * math.log(1 / problem.delta), "8 ln(1/δ)")
    return _one_pass_rate(problem, math.sqrt(_private(problem) / problem.M)) + absent_silos(problem)


def absent_silos(problem: Problem) -> float:
    """What silos that stay away add to Theorem 3.1; 0 if M = N.

    Convex √((N−M)/(N−1)) υL^{1/5}D^{4/5}β^{−1/5}(√(dℓ)/(εnM³))^{1/5}; strongly convex ((N−M)/(N−1)) υ²/(μ√κM).
    """
    return _absent(problem, math.sqrt(_private(problem) / problem.M))


def absorbed_heterogeneity(problem: Problem) -> float:
    """Return the υ up to which absent silos do not change the order of Theorem 3.1 (the remark after it).

    The υ for which ``absent_silos`` equals the rest of the bound; infinite if M = N.
    """
    noise = math.sqrt(_private(problem) / problem.M)
    if problem.absent == 0:
        return math.inf
    present, share = _one_pass_rate(problem, noise), _absent(problem, noise) / problem.upsilon_squared
    if problem.strong_convexity > 0:
        return math.sqrt(present / share)
    return present / (share * math.sqrt(problem.upsilon_squared))


def one_pass_with_batch(problem: Problem, *, batch: int) -> float:
    """The step before Theorem 3.1: population risk of One-Pass Accelerated MB-SGD with batches of K, R = n/K.

    Convex βD²K²/n² + φD/√(nM) + LD√(dℓ)/(ε√(KnM)) + υD√(K(N−M)/(nM(N−1))); strongly convex Δe^{−n/(K√κ)} +
    φ²/(μnM) + υ²K(N−M)/(μnM(N−1)) + (L²/μ)dℓ/(Knε²M). The exponent's constant cannot be 1: ``multistage_order``.
    """
    _require_epsilon(problem, 8 * math.log(1 / problem.delta), "8 ln(1/δ)")
    if not 1 <= batch <= problem.records:
        raise PlanError(f"A batch must have from 1 to {problem.records} of the silo's records, not {batch}.")
    n, K, M = problem.records, batch, problem.M
    noise = problem.lipschitz**2 * _private(problem) * (n / K) ** 2 / M  # dσ²/M for σ² = L²ℓ/(ε²K²)
    away = problem.absent * problem.upsilon_squared / M
    return _accelerated_order(problem, rounds=n / K, variances=(problem.phi_squared / (M * K), noise, away))


def empirical(problem: Problem, *, rounds: int | None = None) -> float:
    """Theorem 4.1, empirical risk of Accelerated MB-SGD, smooth or not; ε ≤ 2 ln(2/δ).

    Convex LD√(dℓ)/(εn√M); strongly convex (L²/μ)dℓ/(ε²n²M). With M < N the paper forgets the variance of silos that
    stay away, which falls with the rounds only: D·υ√((N−M)/((N−1)MR)), or υ²(N−M)/((N−1)MμR), is added.
    """
    _require_epsilon(problem, 2 * math.log(2 / problem.delta), "2 ln(2/δ)")
    rate = _rate(problem, 0.0, _private(problem) / problem.M)
    away = problem.absent * problem.upsilon_squared / problem.M
    if away == 0:
        return rate
    if rounds is None:
        raise PlanError(
            "Silos that do not answer add an error that falls with the rounds, so this bound needs the number of "
            "rounds: give the rounds, or let all silos take part."
        )
    return rate + (away / (problem.strong_convexity * rounds) if problem.strong_convexity > 0 else
                   problem.diameter * math.sqrt(away / rounds))  # fmt: skip


def empirical_with_batch(problem: Problem, *, batch: int, rounds: int) -> float:
    """The step before Theorem 4.1: empirical risk of Accelerated MB-SGD with R rounds of K records; smooth.

    βD²/R² + D√(V²/R), or Δe^{−√(μ/β)R} + V²/(μR), with V²/R = 1{K<n}L²/(MKR) + L²d ln²(R/δ)/(Mε²n²), to which
    ((N−M)/(N−1))υ²/(MR) is added (the paper's lemma samples from all records at once and misses it).
    """
    _require_epsilon(problem, 2 * math.log(2 / problem.delta), "2 ln(2/δ)")
    n, M = problem.records, problem.M
    sampled = problem.lipschitz**2 / (M * batch) if batch < n else 0.0
    away = problem.absent * problem.upsilon_squared / M
    private = problem.dimension * (problem.lipschitz * math.log(rounds / problem.delta) / (problem.epsilon * n)) ** 2
    return _accelerated_order(problem, rounds=rounds, variances=(sampled, away, private * rounds / M))


def shuffled_homogeneous(problem: Problem) -> float:
    """Theorem 5.1, population risk of Shuffled MB-SGD: LD(1/√(nM) + √(dℓ)/(εnN)), or (L²/μ)(1/(nM) + dℓ/(ε²n²N²)).

    Needs ε ≤ ln(2/δ) and, for the rounds that its proof takes, M ≥ 16 ln(18RM²/(Nδ)).
    """
    rounds = shuffled_rounds(problem) if problem.smoothness is not None else _least_shuffled_rounds(problem)
    require_shuffle(problem, rounds=rounds)
    return _rate(problem, 1 / (problem.records * problem.M), _private(problem) / problem.silos**2)


def shuffled_heterogeneous(problem: Problem) -> float:
    """Theorem 5.2, population risk of the one-pass algorithm with vector sums by a shuffler; ε ≤ 15, δ < 1/2, smooth.

    Theorem 3.1 with √d ln(d/δ)/(εnM) in place of √(dℓ)/(εn√M), also in the strongly convex case, where the paper
    prints ln(1/δ) but proves ln²(d/δ).
    """
    require_shuffle_vectors(problem)
    d = problem.dimension
    noise = math.sqrt(d) * math.log(d / problem.delta) / (problem.epsilon * problem.records * problem.M)
    return _one_pass_rate(problem, noise) + _absent(problem, noise)


def unbalanced(silos: Unbalanced, problem: Problem, *, rounds: int) -> float:
    """The unbalanced version of Theorem 2.1: LD(1/√(n_min M) + √(dξ)), or (L²/μ)(1/(n_min M) + dξ).

    ξ = min{Ξ/M', ξ_max/M} (``Unbalanced.privacy``) contains ln(2.5R/δ_i), hence the rounds.
    """
    crowd = min(silos.records) * silos.availability.harmonic
    return _rate(problem, 1 / crowd, problem.dimension * silos.privacy(rounds))


def unbalanced_empirical(
    *, distance: float, step: float, rounds: int, lipschitz: float, dimension: int,
    sigmas: Sequence[float], silos: Unbalanced,
) -> float:  # fmt: skip
    """The unbalanced empirical lemma: D₀²/(2ηR) + (η/2)(d min{Σ²/M', σ²_max/M} + L²), with constants.

    Σ⁴ is the mean over M_r of the squared average of the M_r largest σ_i².
    """
    squares = sorted((sigma**2 for sigma in sigmas), reverse=True)
    likely = silos.availability.probabilities
    total = math.sqrt(math.fsum(p * (math.fsum(squares[:m]) / m) ** 2 for m, p in likely.items()))
    noise = min(total / silos.availability.quadratic, squares[0] / silos.availability.harmonic)
    return distance**2 / (2 * step * rounds) + step / 2 * (dimension * noise + lipschitz**2)


def local_rate(problem: Problem) -> float:
    """LD min{1, √d/(ε√N)}, the convex rate when every record is its own silo (LDP), for N of them."""
    _require_convex(problem)
    return _scale(problem) * min(1.0, math.sqrt(problem.dimension / problem.silos) / problem.epsilon)


def central_rate(problem: Problem) -> float:
    """φD/√(Nn) + LD min{1, √d/(εnN)}, the convex rate with a trusted server (CDP); the paper prints φ² for φD."""
    _require_convex(problem)
    crowd = problem.silos * problem.records
    free = math.sqrt(problem.phi_squared / crowd) * problem.diameter
    return free + _scale(problem) * min(1.0, math.sqrt(problem.dimension) / (problem.epsilon * crowd))


def privacy_is_free(problem: Problem) -> bool:
    """Whether d ≤ ε²n: then privacy does not change the order of the risk."""
    return problem.dimension <= problem.epsilon**2 * problem.records


def strong_stability(problem: Problem) -> float:
    """The paper's stability of Noisy MB-SGD, strongly convex: 4L²/(μ(nM−1)), for n, M > 1 (exact, not an order).

    ``population.minibatch_strong_stability`` is smaller.
    """
    mu, M = problem.strong_convexity, problem.M
    if mu == 0 or min(M, problem.records) <= 1:
        raise PlanError(
            "This stability bound needs a strongly convex loss, and more than one silo and record. For convex losses, "
            "use population.minibatch_stability."
        )
    return 4 * problem.lipschitz**2 / (mu * (problem.records * M - 1))


def regularised_stability(*, lipschitz: float, penalty: float, records: int, silos: int) -> float:
    """2L²/(λnN), how much the exact minimiser of the loss plus (λ/2)‖w − w₀‖² may overfit (exact, not an order)."""
    return 2 * lipschitz**2 / (penalty * records * silos)


def contraction(*, step: float, smoothness: float, strong_convexity: float) -> float:
    """1 − ηβμ/(β+μ), by which a gradient step shrinks distances, for η ≤ 2/(β+μ); at most 1 − ημ/2."""
    limit = 2 / (smoothness + strong_convexity)
    if not 0 < step <= limit:
        raise PlanError(
            f"A gradient step contracts if it is above 0 and at most 2/(β+μ) = {limit:.4g}, but it is {step:.4g}."
        )
    return 1 - step * smoothness * strong_convexity / (smoothness + strong_convexity)


def finite_population_variance(*, population: int, sample: int, mean_square: float) -> float:
    """((Ñ−M̃)/((Ñ−1)M̃))(1/Ñ)Σ‖a‖², exactly E‖mean of M̃ of Ñ vectors that add up to 0‖², without replacement (Lei)."""
    if not 1 <= sample <= population:
        raise PlanError(f"From {population} vectors, 1 to {population} can be drawn, not {sample}.")
    return (population - sample) / ((population - 1) * sample) * mean_square if population > 1 else 0.0


def accelerated_order(*, smoothness: float, distance: float, rounds: float, variance: float) -> float:
    """βD₀²/R² + VD₀/√R, the lemma for accelerated runs that the convex theorems rest on."""
    return smoothness * distance**2 / rounds**2 + math.sqrt(variance / rounds) * distance


def multistage_order(
    *, condition: float, gap: float, strong_convexity: float, rounds: float, variance: float, printed: bool = False
) -> float:
    """Δe^{−cR/√κ} + V²/(μR), the lemma for multi-stage runs that the strongly convex theorems rest on.

    The paper prints c = 1, which no schedule of its form attains; c = ln 2/(4√2), a halving every 4√(2κ) rounds, is
    proved.
    """
    c = 1.0 if printed else math.log(2) / (4 * math.sqrt(2))
    return gap * math.exp(-c * rounds / math.sqrt(condition)) + variance / (strong_convexity * rounds)


def _accelerated_order(problem: Problem, *, rounds: float, variances: Sequence[float]) -> float:
    """Apply the lemma to the sum of the variances, term by term as the theorems print it."""
    beta, mu = require_smooth(problem), problem.strong_convexity
    if mu > 0:
        return multistage_order(
            condition=problem.condition,
            gap=initial_gap(problem),
            strong_convexity=mu,
            rounds=rounds,
            variance=math.fsum(variances),
        )
    start = accelerated_order(smoothness=beta, distance=problem.diameter, rounds=rounds, variance=0.0)
    return start + problem.diameter * math.fsum(math.sqrt(variance / rounds) for variance in variances)


def _rate(problem: Problem, sampling: float, private: float) -> float:
    """LD(√sampling + √private), or (L²/μ)(sampling + private)."""
    if problem.strong_convexity > 0:
        return problem.lipschitz**2 / problem.strong_convexity * (sampling + private)
    return _scale(problem) * (math.sqrt(sampling) + math.sqrt(private))


def _one_pass_rate(problem: Problem, noise: float) -> float:
    """Theorems 3.1 and 5.2 without absent silos; ``noise`` is √(dℓ)/(εn√M) or what replaces it."""
    beta, L, D, mu = require_smooth(problem), problem.lipschitz, problem.diameter, problem.strong_convexity
    sampling = problem.phi_squared / (problem.records * problem.M)
    if mu > 0:
        return sampling / mu + math.sqrt(problem.condition) * L**2 / mu * noise**2
    return math.sqrt(sampling) * D + math.pow(beta**0.25 * L * D**1.5 * noise, 0.8)


def _absent(problem: Problem, noise: float) -> float:
    """What silos that stay away add to Theorems 3.1 and 5.2: √K υD√((N−M)/((N−1)nM)) for the K they choose."""
    beta, L, D, mu, M = (
        require_smooth(problem), problem.lipschitz, problem.diameter, problem.strong_convexity, problem.M,
    )  # fmt: skip
    if mu > 0:
        return problem.absent * problem.upsilon_squared / (mu * math.sqrt(problem.condition) * M)
    scale = math.sqrt(problem.absent * problem.upsilon_squared / M)
    return scale * D * math.pow(L * noise / (beta * D), 0.2)


def _private(problem: Problem) -> float:
    """Return dℓ/(ε²n²)."""
    return problem.dimension * math.log(1 / problem.delta) / (problem.epsilon * problem.records) ** 2


def _scale(problem: Problem) -> float:
    return problem.lipschitz * problem.diameter


def _least_shuffled_rounds(problem: Problem) -> int:
    return math.ceil((problem.epsilon * problem.records * problem.silos) ** 2 / problem.M)


def _require_epsilon(problem: Problem, limit: float, formula: str) -> None:
    if problem.epsilon > limit:
        raise PlanError(
            f"This theorem holds for epsilon up to {formula} = {limit:.4g}, not {problem.epsilon:g}. Lower it."
        )


def _require_convex(problem: Problem) -> None:
    if problem.strong_convexity > 0:
        raise PlanError("The paper states this rate for convex losses only. Leave out the strong convexity.")
