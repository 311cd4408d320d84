"""What no private algorithm can beat: the paper's lower bounds.

Orders of magnitude: constants and hidden logarithms are 1. They speak of the worst problem with the given constants,
not of every problem. All silos answer in every round (M = N).
"""

import math

from ringfence.errors import PlanError
from ringfence.research.theory.problem import Problem


def population(
    problem: Problem,
    *,
    compositionality: float = 1.0,
    rounds: int = 1,
    round_epsilon: float = 0.0,
    round_delta: float | None = None,
) -> float:
    """The lower bound of section 2 on the population risk of C-compositional or sequentially interactive algorithms.

    Convex φD/√(Nn) + LD min{1, √d/(εn√N C²)}; strongly convex φ²/(μnN) + LD min{1, d/(ε²n²N C⁴)}. Accelerated and
    minibatch SGD with advanced composition have C = 1, one pass of R rounds has C = √R. See ``require`` for what the
    theorem asks of the rounds.
    """
    require(problem, rounds=rounds, round_epsilon=round_epsilon, round_delta=round_delta)
    return non_private(problem) + _private(problem, math.sqrt(problem.silos) * compositionality**2)


def empirical(
    problem: Problem,
    *,
    compositionality: float = 1.0,
    rounds: int = 1,
    round_epsilon: float = 0.0,
    round_delta: float | None = None,
) -> float:
    """The lower bound of section 4 on the empirical risk: the private part of ``population``.

    For algorithms that do not get worse when silos swap their data, as those that treat all silos alike.
    """
    require(problem, rounds=rounds, round_epsilon=round_epsilon, round_delta=round_delta)
    return _private(problem, math.sqrt(problem.silos) * compositionality**2)


def central_population(problem: Problem) -> float:
    """The lower bound with a trusted server: φD/√(Nn) + LD min{1, √d/(εnN)}, or φ²/(μnN) + LD min{1, d/(ε²n²N²)}.

    It holds for every ISRL-DP algorithm too, since that is stronger, with any number of silos.
    """
    _require_delta(problem)
    return non_private(problem) + _private(problem, float(problem.silos))


def central_empirical(problem: Problem) -> float:
    """The empirical lower bound with a trusted server: LD min{1, √d/(εnN)}, or LD min{1, d/(ε²n²N²)}."""
    _require_delta(problem)
    return _private(problem, float(problem.silos))


def non_private(problem: Problem) -> float:
    """φD/√(Nn), or φ²/(μnN): what finitely many records cost even without privacy."""
    crowd = problem.silos * problem.records
    if problem.strong_convexity > 0:
        return problem.phi_squared / (problem.strong_convexity * crowd)
    return math.sqrt(problem.phi_squared / crowd) * problem.diameter


def one_pass_compositionality(problem: Problem) -> float:
    """C = (εn√N/√d)^{1/5}, which the paper's table uses in its row for differing silos."""
    return math.pow(problem.epsilon * problem.records * math.sqrt(problem.silos / problem.dimension), 0.2)


def require(problem: Problem, *, rounds: int = 1, round_epsilon: float = 0.0, round_delta: float | None = None) -> None:
    """Refuse what the theorem does not cover; with one silo nothing is asked, for then it is the central bound.

    M = N, ε ≤ √N, δ < 1/(nN); in each round ε_r ≤ 1/n, δ_r ≤ 1/(14nNR), and N ≥ 16 e^{nε_r} ln(2/(nNδ_r)), where the
    paper prints N ≥ 16 ln(2/(nδ_r)) but its proof uses the former. Where the rounds are not given, the mildest case
    is asked for: one round with the largest δ_r, which needs 54 silos.
    """
    N, n = problem.silos, problem.records
    _require_delta(problem)
    if problem.M < N:
        raise PlanError("The lower bound is proved for rounds in which all silos answer. Leave out the availability.")
    if N == 1:
        return
    if problem.epsilon > math.sqrt(N):
        raise PlanError(
            f"The lower bound is proved for epsilon up to √N = {math.sqrt(N):.4g}, not {problem.epsilon:g}. Lower it."
        )
    largest = 1 / (14 * n * N * rounds)
    delta = largest if round_delta is None else round_delta
    if round_epsilon > 1 / n or not 0 < delta <= largest:
        raise PlanError(
            f"The lower bound is proved for rounds of epsilon at most 1/n = {1 / n:.4g} and delta at most 1/(14nNR) = "
            f"{largest:.4g}. Lower them."
        )
    needed = math.ceil(16 * math.exp(n * round_epsilon) * math.log(2 / (n * N * delta)))
    if needed > N:
        raise PlanError(
            f"The lower bound is proved by shuffling, which takes at least {needed} silos here, but there are {N}. "
            "With so few, only the bound with a trusted server is proved."
        )


def _private(problem: Problem, hidden: float) -> float:
    """LD min{1, √d/(εn·hidden)}, or its square in the minimum."""
    share = math.sqrt(problem.dimension) / (problem.epsilon * problem.records * hidden)
    return problem.lipschitz * problem.diameter * min(1.0, share**2 if problem.strong_convexity > 0 else share)


def _require_delta(problem: Problem) -> None:
    crowd = problem.silos * problem.records
    if problem.delta * crowd >= 1:
        raise PlanError(
            f"Lower bounds are proved for delta well below 1/(nN) = {1 / crowd:.4g}, not {problem.delta:g}. Lower it."
        )
