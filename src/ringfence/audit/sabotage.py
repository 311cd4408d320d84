"""Broken silos, to see that the audit has teeth. Each breaks one thing in the silo's code for the length of a block.

None of this can be reached from the silo: it is done to it, by replacing what the gate uses, and undone at the end.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.planning import charges, events, shuffling
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Reason, RoundRequest
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task, task
from ringfence.silo import gate, mechanism, randomness
from ringfence.silo.ledger import Account

NONE = "none"


@contextmanager
def sabotaged(mode: str) -> Iterator[type[gate.Gate]]:
    """Break the silo in the named way while the block runs; yields the gate to use in it."""
    if mode == "repeat-round":
        yield ForgetfulGate
        return
    with SABOTAGES[mode]():
        yield gate.Gate


class ForgetfulGate(gate.Gate):
    """Draws fresh noise for a round that it answered already, instead of repeating its bytes."""

    def _judge(
        self, account: Account, request: RoundRequest, weights: FloatArray, fingerprint: str
    ) -> Reason | bytes | Task:
        verdict = super()._judge(account, request, weights, fingerprint)
        if isinstance(verdict, bytes):
            plan = account.plans[request.plan].plan
            answered = sum(
                plan.preliminaries <= earlier < request.round for earlier in account.plans[request.plan].rounds
            )
            return task(plan, self._own_terms(plan), request.round, answered)
        return verdict


@contextmanager
def _replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    real = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, real)


@contextmanager
def _less_noise(factor: float) -> Iterator[None]:
    """Draw noise of a smaller deviation than the plan's. Of coins, toss fewer, and count half of the rest as heads."""
    real, real_heads = randomness.gaussian_noise, randomness.heads

    def fewer(dimension: int, coins: int) -> NDArray[np.int64]:
        pairs = round(coins * (1 - factor**2) / 2)
        heads: NDArray[np.int64] = real_heads(dimension, coins - 2 * pairs) + pairs
        return heads

    with (
        _replaced(randomness, "gaussian_noise", lambda dimension, sigma: real(dimension, sigma * factor)),
        _replaced(randomness, "heads", fewer),
    ):
        yield


@contextmanager
def _reused_noise() -> Iterator[None]:
    """Draw noise once, and add the same to every release of the same length."""
    drawn: dict[int, FloatArray] = {}
    tossed: dict[tuple[int, int], NDArray[np.int64]] = {}
    real_heads = randomness.heads

    def toss_once(dimension: int, coins: int) -> NDArray[np.int64]:
        if (dimension, coins) not in tossed:
            tossed[dimension, coins] = real_heads(dimension, coins)
        return tossed[dimension, coins]

    def again(dimension: int, sigma: float) -> FloatArray:
        unit = drawn.setdefault(dimension, np.random.default_rng().standard_normal(dimension))
        grid = 2.0 ** mechanism.grid_exponent(sigma)
        noise: FloatArray = np.round(sigma * unit / grid) * grid
        return noise

    with _replaced(randomness, "gaussian_noise", again), _replaced(randomness, "heads", toss_once):
        yield


@contextmanager
def _no_clip() -> Iterator[None]:
    """Add up gradients at their full length."""
    real = mechanism.clipped_mean

    def unclipped(loss: mechanism.Residuals, clip: FloatArray | float, **rest: Any) -> FloatArray:
        del clip
        return real(loss, math.inf, **rest)

    with _replaced(mechanism, "clipped_mean", unclipped):
        yield


@contextmanager
def _half_sensitivity() -> Iterator[None]:
    """Plan, approve and charge as if replacing a record moved a mean by L/K: forgotten that it moves twice that.

    Likewise counts: as if it moved them by half of the levels.
    """
    real, real_counts = events.shift_of, shuffling.binomial_shift

    def halved(*, sensitivity: float, **rest: Any) -> float:
        return real(sensitivity=sensitivity / 2, **rest)

    def halved_counts(*, reach: float, **rest: Any) -> float:
        return real_counts(reach=reach / 2, **rest)

    def charged(*, reach: float, **rest: Any) -> events.BinomialRelease:
        return events.BinomialRelease(reach=reach / 2, **rest)

    with (
        _replaced(events, "shift_of", halved),
        _replaced(charges, "shift_of", halved),
        _replaced(shuffling, "binomial_shift", halved_counts),  # what the planner looks for coins with
        _replaced(charges, "BinomialRelease", charged),
    ):
        yield


@contextmanager
def _with_replacement() -> Iterator[None]:
    """Draw a batch record by record, so that one record may be in it several times."""
    real = randomness._participation

    def drawn(plan: Plan, terms: SiloTerms, work: Task) -> FloatArray:
        sampled = plan.sampling in ("fixed", "poisson")
        eligible = np.arange(terms.records) if sampled else np.flatnonzero(real(plan, terms, work))
        chosen = np.random.default_rng().choice(eligible, size=work.batch)
        times: FloatArray = np.bincount(chosen, minlength=terms.records).astype(np.float64)
        return times

    with _replaced(randomness, "_participation", drawn):
        yield


@contextmanager
def _untouched() -> Iterator[None]:
    yield


SABOTAGES: dict[str, Callable[[], Any]] = {
    NONE: _untouched,
    "half-noise": lambda: _less_noise(0.5),
    "root-half-noise": lambda: _less_noise(math.sqrt(0.5)),
    "skip-clip": _no_clip,
    "repeat-round": _untouched,  # a gate of its own
    "with-replacement": _with_replacement,
    "wrong-sensitivity": _half_sensitivity,
    "reuse-noise": _reused_noise,
}
