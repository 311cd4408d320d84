"""From one privacy statement to another: groups, rounds, subsamples, shuffling, availability (the paper's appendix).

Closed forms that hold for every mechanism. Where the mechanism is known, ``accountant`` proves more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ringfence.accounting.events import require_count, require_positive
from ringfence.errors import AccountingError, PlanError
from ringfence.planning.problem import answer_probabilities, harmonic_mean_of_answers


class EpsilonDelta(NamedTuple):
    """(ε, δ). A delta of 1 promises nothing."""

    epsilon: float
    delta: float


def central(epsilon: float, delta: float) -> EpsilonDelta:
    """What everybody outside learns when every silo's messages are (ε, δ)-DP: the same. The converse is false."""
    return EpsilonDelta(epsilon, delta)


def group(epsilon: float, delta: float, size: int) -> EpsilonDelta:
    """Replacing ``size`` records at once: (kε, k e^{(k−1)ε} δ)."""
    k = require_count("size", size)
    return EpsilonDelta(k * epsilon, _capped(k * _exp((k - 1) * epsilon) * delta))


def user_level(epsilon: float, delta: float, records: int) -> EpsilonDelta:
    """Replacing a silo's whole data set of n records: (nε, n e^{(n−1)ε} δ); a promise only if ε is about 1/n."""
    return group(epsilon, delta, records)


def deletion_group(epsilon: float, delta: float) -> EpsilonDelta:
    """From "close to one reference distribution" to "close to each other": (2ε, (1 + e^ε) δ)."""
    return EpsilonDelta(2 * epsilon, _capped((1 + _exp(epsilon)) * delta))


def perturbed_delta(epsilon: float, delta: float, distance: float) -> float:
    """Return δ + (e^ε + 1)δ', true of two outputs within total variation δ' of two that are (ε, δ)-close."""
    return _capped(delta + (_exp(epsilon) + 1) * distance)


def advanced_composition(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> EpsilonDelta:
    """Compose rounds: ε = √(2 Σε_r² ln(1/δ')) + Σ ε_r(e^{ε_r} − 1), δ = Σδ_r + δ' with ``slack`` δ'."""
    if len(epsilons) != len(deltas):
        raise AccountingError("Give every round an epsilon and a delta: two lists of the same length.")
    if not 0 < slack < 1:
        raise AccountingError(f"The slack δ' must lie strictly between 0 and 1, but is {slack!r}.")
    squares = math.fsum(epsilon**2 for epsilon in epsilons)
    drift = math.fsum(epsilon * (_exp(epsilon) - 1) for epsilon in epsilons)
    return EpsilonDelta(math.sqrt(2 * squares * math.log(1 / slack)) + drift, _capped(math.fsum(deltas) + slack))


def per_round(epsilon: float, delta: float, rounds: int) -> EpsilonDelta:
    """Split a budget over R rounds as the paper does: ε/(2√(2R ln(2/δ))), δ/(2R).

    With slack δ/2, advanced composition gives at most (ε, δ) back; needs ε ≤ 2 ln(2/δ).
    """
    R, limit = require_count("rounds", rounds), 2 * math.log(2 / delta)
    if epsilon > limit:
        raise AccountingError(
            f"The split holds for epsilon up to 2 ln(2/δ) = {limit:.4g}, but epsilon is {epsilon:g}. Lower it."
        )
    return EpsilonDelta(epsilon / (2 * math.sqrt(2 * R * math.log(2 / delta))), delta / (2 * R))


def subsampled(epsilon: float, delta: float, rate: float) -> EpsilonDelta:
    """A mechanism run on a secret share ``rate`` of the records, drawn without replacement: ln(1 + q(e^ε − 1)), qδ.

    This is the mixture lemma; the paper's 2qε for ε ≤ 1 is larger.
    """
    if not 0 < rate <= 1:
        raise AccountingError(f"A sampling rate must be above 0 and at most 1, but is {rate!r}.")
    return EpsilonDelta(math.log1p(rate * math.expm1(epsilon)), rate * delta)


def compositionality(round_epsilons: Sequence[float], epsilon: float) -> float:
    """Return the C of a C-compositional algorithm: √(Σε_r²)/ε. One pass of R rounds has √R."""
    return math.sqrt(math.fsum(part**2 for part in round_epsilons)) / require_positive("epsilon", epsilon)


def shuffled_round(epsilon: float, delta: float, *, records: int, silos: int, slack: float) -> EpsilonDelta:
    """One round of N silos' messages, each (ε, δ)-DP by itself for its n records, after a shuffler.

    ε' = ln[1 + ((e^ε−1)/(e^ε+1)) (8√(e^{nε} ln(4/δ'))/√N + 8e^{nε}/N)] and, with ``slack`` δ',
    δ' + (e^{ε'} + 1) 2Nn e^{(n−1)ε} δ. The paper drops the factor e^{ε'} + 1, which its own total-variation lemma
    asks for. Needs ε ≤ ln(N/(16 ln(2/δ')))/n.
    """
    n, N = require_count("records", records), require_count("silos", silos)
    crowd = 16 * math.log(2 / slack)
    limit = math.log(N / crowd) / n
    if not 0 < epsilon <= limit:
        needed = math.ceil(crowd * _exp(n * epsilon)) if n * epsilon < 50 else math.inf
        raise AccountingError(
            f"Shuffling is proved to help only if epsilon is at most ln(N/(16 ln(2/δ')))/n = {limit:.4g}, but it is "
            f"{epsilon:g}. Lower epsilon, or find {needed} silos."
        )
    weight = _exp(n * epsilon)
    crowding = 8 * math.sqrt(weight * math.log(4 / slack) / N) + 8 * weight / N
    hidden = math.log1p(math.tanh(epsilon / 2) * crowding)
    moved = 2 * N * n * _exp((n - 1) * epsilon) * delta
    return EpsilonDelta(hidden, perturbed_delta(hidden, slack, moved))


def shuffled_run(
    round_epsilons: Sequence[float], round_deltas: Sequence[float], *, records: int, silos: int
) -> EpsilonDelta:
    """All rounds of a fully interactive algorithm after a shuffler: slack Nnδ_r a round, then advanced composition.

    The paper bounds the result by O(C²ε ln(1/(nNδ_min))/√N) and 14Nn Σδ_r; the 14 is true only while every round's ε'
    is at most 0.188, so the exact sum is returned.
    """
    slacks = [silos * records * delta for delta in round_deltas]
    if any(slack >= 1 for slack in slacks) or math.fsum(slacks) >= 1:
        raise AccountingError("The rounds' deltas must add up to less than 1/(nN). Lower them.")
    rounds = [
        shuffled_round(epsilon, delta, records=records, silos=silos, slack=slack)
        for epsilon, delta, slack in zip(round_epsilons, round_deltas, slacks, strict=True)
    ]
    return advanced_composition([each.epsilon for each in rounds], [each.delta for each in rounds], math.fsum(slacks))


def shuffled_sequential(epsilon: float, delta: float, *, records: int, silos: int) -> EpsilonDelta:
    """A sequentially interactive algorithm, where every silo speaks once, in random order; slack Nnδ.

    The paper's 7Nnδ is at least 11.9Nnδ once its missing factor is restored.
    """
    return shuffled_round(epsilon, delta, records=records, silos=silos, slack=silos * records * delta)


def shuffled_order(
    epsilon: float, smallest_delta: float, *, records: int, silos: int, compositionality: float = 1.0
) -> float:
    """C²ε ln(1/(nNδ_min))/√N, the paper's order of the shuffled epsilon (constant 1); needs ε ≤ √N."""
    if epsilon > math.sqrt(silos):
        raise AccountingError(f"The order holds for epsilon up to √N = {math.sqrt(silos):.4g}. Lower epsilon.")
    return compositionality**2 * epsilon * math.log(1 / (records * silos * smallest_delta)) / math.sqrt(silos)


def local_to_central(round_epsilons: Sequence[float], slack: float) -> float:
    """Return 2Σε_r² + √(2Σε_r² ln(1/δ')), advanced composition for rounds with ε_r ≤ 1, as the lower bound uses it."""
    if max(round_epsilons) > 1:
        raise AccountingError(
            "This form of composition needs rounds with an epsilon of at most 1. Use advanced_composition."
        )
    squares = math.fsum(epsilon**2 for epsilon in round_epsilons)
    return 2 * squares + math.sqrt(2 * squares * math.log(1 / slack))


def randomized_response(universe: int, epsilon: float) -> tuple[float, float]:
    """d-ary randomized response: the probability of the truth, and of each other element; their ratio is e^ε."""
    if universe < 2:
        raise AccountingError(f"Randomized response needs at least 2 possible answers, not {universe}.")
    other = 1 / (_exp(epsilon) + universe - 1)
    return 1 - (universe - 1) * other, other


@dataclass(frozen=True)
class Availability:
    """How many silos answer a round: the probability of each number. A round that nobody answers does not count."""

    probabilities: Mapping[int, float]

    def __post_init__(self) -> None:
        likely = {m: p for m, p in self.probabilities.items() if p > 0 or m < 1}
        if any(m < 1 for m in likely) or not likely:
            raise PlanError("At least one silo answers in a round that counts. Leave out 0 and rescale the rest to 1.")
        if not math.isclose(math.fsum(likely.values()), 1, rel_tol=1e-9):
            raise PlanError("The probabilities of how many silos answer must add up to 1.")
        object.__setattr__(self, "probabilities", MappingProxyType(likely))

    @property
    def mean(self) -> float:
        """E[M_r]."""
        return math.fsum(p * m for m, p in self.probabilities.items())

    @property
    def harmonic(self) -> float:
        """The paper's M: 1/E[1/M_r]."""
        return harmonic_mean_of_answers(self.probabilities)

    @property
    def quadratic(self) -> float:
        """The paper's M': 1/√E[1/M_r²], at most M."""
        return 1 / math.sqrt(math.fsum(p / m**2 for m, p in self.probabilities.items()))

    @property
    def most(self) -> int:
        """The largest number of silos that may answer."""
        return max(self.probabilities)


def always(silos: int) -> Availability:
    """The same number of silos in every round."""
    return Availability({require_count("silos", silos): 1.0})


def independent(silos: int, probability: float) -> Availability:
    """Each of N silos answers with ``probability``, by itself; rounds without any answer do not count."""
    return Availability(answer_probabilities(silos, probability))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _capped(delta: float) -> float:
    return min(1.0, delta) if delta == delta else 1.0  # 0·∞ promises nothing  # noqa: PLR0124
