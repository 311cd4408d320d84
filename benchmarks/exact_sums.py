"""What exact sums cost at a silo: a round's answer against the same one by plain products of matrices, in one run.

    python benchmarks/exact_sums.py

takes each in turn and compares the fastest of both, so that other work on the machine weighs on both alike.
"""

import sys
import time

import numpy as np

from ringfence.protocol import Logistic, Softmax
from ringfence.silo.queries.gradient import clipped_mean, clipped_total
from ringfence.silo.records import exact_sums
from ringfence.silo.records.records import Records

TIMES = 15
SHAPES = ((1_000_000, 50, 1), (100_000, 50, 1), (10_000, 50, 1), (100_000, 10, 1), (60_000, 200, 10))


def main() -> None:
    """Print a line for every shape."""
    for n, d, outputs in SHAPES:
        random = np.random.default_rng(0)
        loss = Logistic() if outputs == 1 else Softmax(classes=outputs)
        targets = random.choice([-1.0, 1.0], n) if outputs == 1 else random.integers(outputs, size=n).astype(float)
        records = Records(None, random.normal(size=(n, d)), targets)  # type: ignore[arg-type]
        weights, clip, chosen = random.normal(size=(d, outputs)) / d, 0.4 * d**0.5, np.ones(n)
        rows = {"features": records.features, "norms": records.norms, "targets": records.targets}
        plain: list[float] = []
        exact: list[float] = []
        for _ in range(TIMES):
            begin = time.perf_counter()
            former = clipped_mean(loss, clip, weights=weights, shares=chosen / n, **rows)
            middle = time.perf_counter()
            answer = exact_sums.quotient(clipped_total(loss, clip, weights, records, chosen, records), n, clip)
            plain.append(middle - begin)
            exact.append(time.perf_counter() - middle)
        apart = float(np.abs(answer - former).max()) / clip
        sys.stdout.write(
            f"{n:>9} records, {d:>3} features, {outputs:>2} outputs: exact {min(exact) * 1e3:7.1f} ms, plain "
            f"{min(plain) * 1e3:7.1f} ms, ratio {min(exact) / min(plain):.2f}; apart by {apart:.1e} of the clip\n"
        )


if __name__ == "__main__":
    main()
