"""How fast noise is drawn, beside OpenDP's exact sampler, NumPy's inexact one and a bit for every coin, in one run.

    python benchmarks/noise.py

takes each in turn and compares the fastest of all, so that other work on the machine weighs on all alike.
"""

import json
import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.noise.randomness import gaussian_noise, heads

TIMES = 7
SIGMAS = (0.25, 0.37, 0.4999)
"""Beside powers of two strips are filled differently."""
COINS = 86_000


def opendp(count: int, sigma: float) -> None:
    space = vector_domain(atom_domain(T=float, nan=False), size=count), l2_distance(T=float)
    np.array(make_gaussian(*space, scale=sigma, k=grid_exponent(sigma))([0.0] * count))


def bits(count: int) -> None:
    """Toss every coin by itself."""
    for _ in range(count):
        int.from_bytes(os.urandom(COINS // 8), "little").bit_count()


def rates(tasks: dict[str, tuple[int, Callable[[int], object]]]) -> dict[str, float]:
    """Return numbers a second and core, of the fastest of several times."""
    best = dict.fromkeys(tasks, 0.0)
    for _ in range(TIMES):
        for name, (count, draw) in tasks.items():
            begin = time.process_time()
            draw(count)
            best[name] = max(best[name], count / (time.process_time() - begin))
    return best


def main() -> None:
    enable_features("contrib")
    random = np.random.default_rng()
    report: dict[str, dict[str, float]] = {}
    for sigma in SIGMAS:
        ours = partial(gaussian_noise, sigma=sigma, exponent=grid_exponent(sigma))
        speed = rates(
            {
                "ours": (1_000_000, ours),
                "OpenDP": (10_000, partial(opendp, sigma=sigma)),
                "NumPy": (1_000_000, random.standard_normal),
            }
        )
        report[f"Gaussian, sigma {sigma}"] = {
            "numbers a second": speed["ours"],
            "times OpenDP": speed["ours"] / speed["OpenDP"],
            "times NumPy's standard_normal, which is not exact": speed["ours"] / speed["NumPy"],
        }
    small = rates({"50 numbers": (50, lambda n: gaussian_noise(n, 0.37, grid_exponent(0.37)))})
    report["Gaussian, 50 numbers at once"] = {"numbers a second": small["50 numbers"]}
    speed = rates({"heads": (1_000_000, lambda n: heads(n, COINS)), "bits": (2000, bits)})
    report[f"heads of {COINS} coins"] = {
        "coordinates a second": speed["heads"],
        "times a bit for every coin": speed["heads"] / speed["bits"],
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
