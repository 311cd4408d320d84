"""How many silos answer a round, and what that number is in the harmonic mean, which noise and variance depend on."""

import math
from collections.abc import Mapping

from ringfence.accounting.events import require_count
from ringfence.errors import PlanError


def answering(silos: int, probability: float) -> dict[int, float]:
    """Return how likely each number of answers is if each of N silos answers with ``probability``, by itself.

    Rounds without any answer do not count.
    """
    N = require_count("silos", silos)
    if not 0 < probability <= 1:
        raise PlanError(f"A silo answers with a probability above 0 and at most 1, not {probability!r}.")
    if probability == 1:
        return {N: 1.0}
    # Binomial, in logarithms since the coefficients of a thousand silos overflow.
    likely = {
        m: math.exp(
            math.lgamma(N + 1)
            - math.lgamma(m + 1)
            - math.lgamma(N - m + 1)
            + m * math.log(probability)
            + (N - m) * math.log1p(-probability)
        )
        for m in range(1, N + 1)
    }
    some = math.fsum(likely.values())
    return {m: p / some for m, p in likely.items()}


def harmonic(likely: Mapping[int, float]) -> float:
    """Return the paper's M, 1/E[1/M_r], of the probabilities of every number of answers."""
    return 1 / math.fsum(p / m for m, p in likely.items())


def turns_needed(rounds: int, share: float) -> int:
    """Return how many of so many rounds a silo answers at most if each asks that share of all, those with fewest turns.

    Nobody has a turn more than anybody else has, so that it is the average, rounded up.
    """
    return math.ceil(rounds * share * (1 - 1e-12))
