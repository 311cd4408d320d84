"""Broken silos, to see that the audit has teeth. Each breaks one thing in the silo's code for the length of a block.

None of this can be reached from the silo: it is done to it, by replacing what the gate uses, and undone at the end.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from ringfence.accounting import events, shifts, shuffled_sums
from ringfence.accounting.channels import own_noise, shuffler
from ringfence.planning.channels import shuffler as shuffler_planning
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import RefusalReason, RoundRequest
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.questions import Gradient
from ringfence.protocol.sampling import Sampling
from ringfence.protocol.schedule import Task, task
from ringfence.sealed_sums import shares
from ringfence.silo import gate, randomness, sampling
from ringfence.silo.account import Account, StoredAnswer
from ringfence.silo.exact_sums import UNIT, Counts
from ringfence.silo.mechanism import Draws
from ringfence.silo.questions import gradient
from ringfence.silo.records import Records

NONE = "none"


@contextmanager
def sabotaged(mode: str) -> Iterator[type[gate.Gate]]:
    """Break the silo in the named way while the block runs; yields the gate to use in it."""
    with SABOTAGES[mode]():
        yield ForgetfulGate if mode == "repeat-round" else gate.Gate


class ForgetfulGate(gate.Gate):
    """Draws fresh noise for a round that it answered already, instead of repeating its bytes."""

    def _judge(
        self, account: Account, request: RoundRequest, weights: FloatArray, fingerprint: str
    ) -> RefusalReason | StoredAnswer | Task:
        verdict = super()._judge(account, request, weights, fingerprint)
        if isinstance(verdict, StoredAnswer):
            plan, rounds = account.plans[request.plan].plan, account.plans[request.plan].rounds
            first = request.round - plan.place(request.round).round
            answered = sum(first <= earlier < request.round for earlier in rounds)
            return task(plan, self._own_terms(plan), request.round, answered)
        return verdict


@contextmanager
def _less_noise(factor: float) -> Iterator[None]:
    """Draw noise of a smaller deviation than the plan's. Of coins, toss fewer, and count half of the rest as heads."""
    real, real_heads = randomness.gaussian_noise, randomness.heads

    def fewer(dimension: int, coins: int) -> NDArray[np.int64]:
        pairs = round(coins * (1 - factor**2) / 2)
        heads: NDArray[np.int64] = real_heads(dimension, coins - 2 * pairs) + pairs
        return heads

    def smaller(dimension: int, sigma: float, exponent: int) -> FloatArray:
        return real(dimension, sigma * factor, exponent)

    with (
        patch.object(randomness, "gaussian_noise", smaller),
        patch.object(randomness, "heads", fewer),
    ):
        yield


@contextmanager
def _reused_noise() -> Iterator[None]:
    """Draw noise once for every silo and plan, and add the same to every release of the same length."""
    drawn: dict[object, FloatArray] = {}
    tossed: dict[object, NDArray[np.int64]] = {}
    real_draw, real_heads = randomness.draw, randomness.heads
    drawing: tuple[str, str] = "", ""

    def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
        nonlocal drawing
        drawing = plan.digest(), terms.name
        return real_draw(plan, terms, work)

    def toss_once(dimension: int, coins: int) -> NDArray[np.int64]:
        key = (*drawing, dimension, coins)
        if key not in tossed:
            tossed[key] = real_heads(dimension, coins)
        return tossed[key]

    def again(dimension: int, sigma: float, exponent: int) -> FloatArray:
        key = (*drawing, dimension)
        unit = drawn.setdefault(key, np.random.default_rng().standard_normal(dimension))
        noise: FloatArray = np.round(sigma * unit / 2.0**exponent) * 2.0**exponent
        return noise

    with (
        patch.object(randomness, "draw", draw),
        patch.object(randomness, "gaussian_noise", again),
        patch.object(randomness, "heads", toss_once),
    ):
        yield


def _no_clip() -> AbstractContextManager[object]:
    """Add up gradients at their full length."""

    def unclipped(question: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        added = gradient.clipped_mean(
            plan.loss,
            math.inf,
            weights=argument.reshape(plan.data.width, -1),
            features=records.features,
            norms=records.norms,
            targets=records.targets,
            shares=records.shares(plan, chosen) / question.clip,
        )
        return np.asarray(np.vectorize(int, otypes=[object])(np.ldexp(added, UNIT)))

    return patch.object(gradient, "total", unclipped)


@contextmanager
def _half_sensitivity() -> Iterator[None]:
    """Plan, approve and charge as if replacing a record moved a mean by L/K: forgotten that it moves twice that.

    Likewise counts: as if it moved them by half of the levels.
    """
    real, real_counts = shifts.shift_of, shuffled_sums.binomial_shift

    def halved(*, sensitivity: float, **rest: Any) -> float:
        return real(sensitivity=sensitivity / 2, **rest)

    def halved_counts(*, reach: float, **rest: Any) -> float:
        return real_counts(reach=reach / 2, **rest)

    def charged(*, reach: float, **rest: Any) -> events.BinomialRelease:
        return events.BinomialRelease(reach=reach / 2, **rest)

    with (
        patch.object(own_noise, "shift_of", halved),
        patch.object(shuffled_sums, "binomial_shift", halved_counts),  # what the planner looks for coins with
        patch.object(shuffler, "BinomialRelease", charged),
    ):
        yield


@contextmanager
def _with_replacement() -> Iterator[None]:
    """Draw a batch record by record, so that one record may be in it several times."""
    real, real_total = sampling.participation, gradient.total

    def drawn(rule: Sampling, plan: Plan, terms: SiloTerms, work: Task, uniform: sampling.Uniform) -> FloatArray:
        chosen = np.flatnonzero(real(rule, plan, terms, work, uniform))
        eligible = np.arange(terms.records) if rule.is_secret else chosen
        picked = np.random.default_rng().choice(eligible, size=work.batch)
        times: FloatArray = np.bincount(picked, minlength=terms.records).astype(np.float64)
        return times

    def repeated(question: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        drawn_so_often = ((chosen >= often).astype(np.float64) for often in range(1, max(1, int(chosen.max())) + 1))
        totals = [real_total(question, plan, argument, records, some) for some in drawn_so_often]
        return np.asarray(np.sum(totals, axis=0))

    with patch.object(sampling, "participation", drawn), patch.object(gradient, "total", repeated):
        yield


@contextmanager
def _forgotten_peer() -> Iterator[None]:
    """Plan, approve and charge as if no other silo told the server its coins."""

    def all_of_them(quorum: int, colluders: int) -> int:
        del colluders
        return quorum

    with (
        patch.object(shuffler, "honest_silos", all_of_them),
        patch.object(shuffler_planning, "honest_silos", all_of_them),
    ):
        yield


def _ignored_persons() -> AbstractContextManager[object]:
    """Take every row of a person who takes part for a record: cut by itself, and counted in full."""
    real = gradient.total

    def row_by_row(
        question: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
    ) -> Counts:
        if records.persons is not None:
            chosen = chosen[records.persons.of_row]
            records = Records(records.schema, records.features, records.targets)
        return real(question, plan, argument, records, chosen)

    return patch.object(gradient, "total", row_by_row)


def _forgotten_tries() -> AbstractContextManager[object]:
    """Count what the first of several plans cost, as if nobody had seen the others."""

    def first_plan(account: Account) -> list[tuple[events.Event, int]]:
        return next(iter(account.plans.values())).charged()

    return patch.object(Account, "charged", first_plan)


SABOTAGES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    NONE: nullcontext,
    "half-noise": lambda: _less_noise(0.5),
    "root-half-noise": lambda: _less_noise(math.sqrt(0.5)),
    "skip-clip": _no_clip,
    "repeat-round": nullcontext,  # a gate of its own
    "with-replacement": _with_replacement,
    "wrong-sensitivity": _half_sensitivity,
    "reuse-noise": _reused_noise,
    "forget-peer": _forgotten_peer,
    "keep-order": lambda: patch.object(shares, "mix", lambda messages: None),  # a silo's shares stay together
    "ignore-persons": _ignored_persons,
    "forget-tries": _forgotten_tries,
}
