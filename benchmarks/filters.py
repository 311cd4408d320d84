"""What a plan pays for being chosen by earlier answers, as a factor on its noise: python -m benchmarks.filters

Half of the budget's squared shift was used by full batches. Beside the filter stands a Rényi filter of the best order,
known in advance: both in units of the noise that exact composition would have allowed.
"""

import json
import math
from collections.abc import Callable

import numpy as np

from ringfence.accounting import Commitment, GaussianRelease, accountant, gaussian_shift, noise, pld, run_events, used
from ringfence.accounting.events import Events
from ringfence.protocol import Guarantee

BUDGET = Guarantee(epsilon=1.0, delta=1e-5)
RECORDS = 10_000
ORDERS = np.concatenate([np.arange(2, 60, 2), np.arange(60, 200, 20)])


def renyi(events: Events, order: float) -> float:
    """Return the Rényi divergence of that order that the events come to."""
    (composed,) = accountant._composed(events)
    sketch = pld.CumulantSketch.of(composed.parts, 0.0)
    return float(sketch.cumulants(np.array([order - 1.0]))[0]) / (order - 1)


def allowed(order: float) -> float:
    """Return how much of that divergence the budget allows (Canonne, Kamath & Steinke 2020)."""
    return BUDGET.epsilon - math.log((order - 1) / order) + (math.log(BUDGET.delta) + math.log(order)) / (order - 1)


def factors(kind: str, rate: float, rounds: int) -> dict[str, float]:
    """Return what a second plan of that kind pays under either filter."""
    batch = int(RECORDS * rate)
    first = [(GaussianRelease(gaussian_shift(BUDGET.epsilon, BUDGET.delta) * math.sqrt(0.5)), 1)]
    exact = noise(
        kind, records=RECORDS, batch=batch, rounds=rounds, clip=1.0, epsilon=BUDGET.epsilon, delta=BUDGET.delta,
        already=first,
    )  # fmt: skip

    def least(fits: Callable[[Events], bool]) -> float:
        low, high = exact / 2, exact * 20
        while high / low > 1 + 1e-4:
            middle = math.sqrt(low * high)
            events = run_events(kind, rounds, records=RECORDS, batch=batch, clip=1.0, sigma=middle)
            low, high = (low, middle) if fits(events) else (middle, high)
        return high / exact

    def by_order(order: float) -> float:
        return least(lambda second: renyi(first, order) + renyi(second, order) <= allowed(order))

    founding = Commitment.of(first, founding=True)
    return {
        "filter": least(lambda second: used([founding, Commitment.of(second)], BUDGET) <= BUDGET.epsilon),
        "Rényi": min(by_order(order) for order in ORDERS if renyi(first, order) < allowed(order)),
    }


if __name__ == "__main__":
    found = {
        f"{kind}, {rate:.0%}, {rounds} rounds": factors(kind, rate, rounds)
        for rate, kinds in ((0.01, ("fixed", "poisson")), (0.1, ("fixed", "poisson")), (1.0, ("full",)))
        for rounds in (10, 100, 1000)
        for kind in kinds
    }
    print(json.dumps(found, indent=2, ensure_ascii=False))
