"""The paper's closed forms for the noise, by name, each beside the epsilon that it truly delivers.

The numbers P1, P3, P4, P5 are those of the table of prescriptions in docs/algorithms.md. ``nominal_epsilon`` is what
the formula was asked for; ``true_epsilon`` is what ``accountant`` proves for the noise it returns, at the same delta
and under replace-one adjacency. Where the true one is larger, the paper's formula does not deliver its promise.
"""

import math
from dataclasses import dataclass
from functools import partial

from ringfence.accounting import accountant
from ringfence.accounting.events import require_count, require_positive, require_probability
from ringfence.accounting.runs import run_events
from ringfence.errors import PlanError

__all__ = [
    "PaperNoise",
    "closed_form",
    "local_sgd_noise",
    "one_pass_noise",
    "practical_batch",
    "practical_noise",
    "theorem_noise",
]


@dataclass(frozen=True)
class PaperNoise:
    """A noise level that the paper prescribes, and what it costs.

    ``sigma`` is the noise's standard deviation per coordinate of the averaged gradient; ``batch`` records take part in
    each of ``rounds`` releases.
    """

    name: str
    sigma: float
    nominal_epsilon: float
    true_epsilon: float
    delta: float
    sampling: str
    records: int
    batch: int
    rounds: int

    @property
    def delivers(self) -> bool:
        """Whether the noise is proved to meet the epsilon it was asked for."""
        return self.true_epsilon <= self.nominal_epsilon


def theorem_noise(
    *,
    records: int,
    batch: int,
    rounds: int,
    clip: float,
    epsilon: float,
    delta: float,
    dimension: int = 1,
    sampling: str = "fixed",
) -> PaperNoise:
    """P1, the noise of Theorem 2.1 and of the empirical-risk theorem: σ² = 256 L² R ln(2.5R/δ) ln(2/δ) / (n² ε²).

    Needs ε ≤ 2 ln(2/δ) and εn / (4√(2R ln(2/δ))) ≤ K ≤ n, with K distinct records in each batch.
    """
    n, K, R, L = _checked(records, batch, rounds, clip, epsilon, delta)
    _require_epsilon_at_most(2 * math.log(2 / delta), "2 ln(2/δ)", epsilon)
    least_batch = epsilon * n / (4 * math.sqrt(2 * R * math.log(2 / delta)))
    if least_batch > K:
        raise PlanError(
            f"The paper's theorem needs a batch of at least εn/(4√(2R ln(2/δ))) = {least_batch:.4g}, but the batch is "
            f"{K}. Raise the batch or the rounds, or calibrate the noise instead."
        )
    sigma = 16 * L * math.sqrt(R * math.log(2.5 * R / delta) * math.log(2 / delta)) / (n * epsilon)
    return _with_true_epsilon("theorem", sigma, epsilon, delta, sampling, n, K, R, L, dimension)


def one_pass_noise(
    *, records: int, batch: int, rounds: int, clip: float, epsilon: float, delta: float, dimension: int = 1
) -> PaperNoise:
    """P3, one pass over disjoint batches: σ² = 32 L² ln(1.25/δ) / (ε² K²); needs ε ≤ 8 ln(1/δ) and RK ≤ n."""
    n, K, R, L = _checked(records, batch, rounds, clip, epsilon, delta)
    _require_epsilon_at_most(8 * math.log(1 / delta), "8 ln(1/δ)", epsilon)
    sigma = L * math.sqrt(32 * math.log(1.25 / delta)) / (epsilon * K)
    return _with_true_epsilon("one-pass", sigma, epsilon, delta, "one-pass", n, K, R, L, dimension)


def practical_batch(*, records: int, rounds: int, epsilon: float) -> int:
    """P4, the batch of the paper's experiments: K = n√ε / (2√R), to the nearest whole number from 1 to n."""
    n, R = require_count("records", records), require_count("rounds", rounds)
    K = n * math.sqrt(require_positive("epsilon", epsilon)) / (2 * math.sqrt(R))
    return round(min(max(K, 1), n))


def practical_noise(
    *,
    records: int,
    batch: int,
    rounds: int,
    clip: float,
    epsilon: float,
    delta: float,
    dimension: int = 1,
    sampling: str = "fixed",
) -> PaperNoise:
    """P4, the noise of the paper's experiments: σ² = 8 L² ln(1/δ) R / (n² ε²).

    It rests on an asymptotic theorem and under-delivers at larger ε: read ``true_epsilon``.
    """
    n, K, R, L = _checked(records, batch, rounds, clip, epsilon, delta)
    sigma = L * math.sqrt(8 * math.log(1 / delta) * R) / (n * epsilon)
    return _with_true_epsilon("practical", sigma, epsilon, delta, sampling, n, K, R, L, dimension)


def local_sgd_noise(
    *, records: int, local_steps: int, rounds: int, clip: float, epsilon: float, delta: float, dimension: int = 1
) -> PaperNoise:
    """P5, the Local SGD baseline of the paper's experiments: σ² = 8 L² ln(1/δ) R K / (n² ε²), K = ``local_steps``.

    The true epsilon composes all RK local steps, each on one record drawn from n, as if every step were visible. Only
    the last iterate of a round is sent, so less may be true, but the paper's argument does not show it.
    """
    n, K, R, L = _checked(records, local_steps, rounds, clip, epsilon, delta)
    sigma = L * math.sqrt(8 * math.log(1 / delta) * R * K) / (n * epsilon)
    return _with_true_epsilon("local-sgd", sigma, epsilon, delta, "fixed", n, 1, R * K, L, dimension)


def closed_form(
    name: str, sampling: str, *, records: int, batch: int, rounds: int, clip: float, epsilon: float, delta: float
) -> PaperNoise:
    """Return the closed form called ``name``, with its true epsilon under ``sampling``.

    "one-pass" and "local-sgd" say themselves how records are drawn; for "local-sgd" the batch is the number of local
    steps.
    """
    forms = {
        "theorem": partial(theorem_noise, batch=batch, sampling=sampling),
        "practical": partial(practical_noise, batch=batch, sampling=sampling),
        "one-pass": partial(one_pass_noise, batch=batch),
        "local-sgd": partial(local_sgd_noise, local_steps=batch),
    }
    if name in forms:
        return forms[name](records=records, rounds=rounds, clip=clip, epsilon=epsilon, delta=delta)
    raise PlanError(f"Unknown noise {name!r}. Choose exact, theorem, practical, one-pass or local-sgd.")


def _checked(
    records: int, batch: int, rounds: int, clip: float, epsilon: float, delta: float
) -> tuple[int, int, int, float]:
    require_positive("epsilon", epsilon)
    require_probability("delta", delta)
    n, K, R = require_count("records", records), require_count("batch", batch), require_count("rounds", rounds)
    return n, K, R, require_positive("clip", clip)


def _require_epsilon_at_most(limit: float, formula: str, epsilon: float) -> None:
    if epsilon > limit:
        raise PlanError(
            f"The paper's formula holds for epsilon up to {formula} = {limit:.4g}, but epsilon is {epsilon:g}. Lower "
            "epsilon, or calibrate the noise instead."
        )


def _with_true_epsilon(
    name: str,
    sigma: float,
    epsilon: float,
    delta: float,
    sampling: str,
    n: int,
    K: int,
    R: int,
    L: float,
    dimension: int,
) -> PaperNoise:
    run = run_events(sampling, R, records=n, batch=K, clip=L, sigma=sigma, dimension=dimension, partition="one pass")
    return PaperNoise(
        name=name,
        sigma=sigma,
        nominal_epsilon=epsilon,
        true_epsilon=accountant.epsilon(run, delta),
        delta=delta,
        sampling=sampling,
        records=n,
        batch=K,
        rounds=R,
    )
