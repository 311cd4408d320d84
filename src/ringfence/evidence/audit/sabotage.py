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

from ringfence.accounting import events
from ringfence.accounting.channels import own_noise, shuffler
from ringfence.accounting.sampling import shift_of
from ringfence.accounting.shuffled_sums import binomial_shift
from ringfence.planning.channels import coins
from ringfence.planning.channels import shuffler as shuffler_planning
from ringfence.protocol import FloatArray, Gradient, Plan, RefusalReason, RoundRequest, Sampling, SiloTerms, Task
from ringfence.protocol.plan.plan import task
from ringfence.shuffler import shares
from ringfence.silo.gate import gate, sampling
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.ledger.history import Account, StoredAnswer
from ringfence.silo.noise import randomness
from ringfence.silo.queries import gradient
from ringfence.silo.records.exact_sums import UNIT, Counts
from ringfence.silo.records.records import Records

NONE = "none"


def _forgetful_gate() -> AbstractContextManager[object]:
    """Sabotage: draw fresh noise for a round that was answered already, instead of repeating its bytes."""
    real = gate.Gate._judge

    def judge_anew(
        self: gate.Gate, account: Account, request: RoundRequest, weights: FloatArray, fingerprint: str
    ) -> RefusalReason | StoredAnswer | Task:
        """Sabotage the gate: answer a repeated request anew instead of by the stored answer."""
        verdict = real(self, account, request, weights, fingerprint)
        if isinstance(verdict, StoredAnswer):
            plan, rounds = account.plans[request.plan].plan, account.plans[request.plan].rounds
            first = request.round - plan.place(request.round).round
            answered = sum(first <= earlier < request.round for earlier in rounds)
            return task(plan, gate.terms_in(plan, self.silo), request.round, answered)
        return verdict

    return patch.object(gate.Gate, "_judge", judge_anew)


@contextmanager
def _less_noise(factor: float) -> Iterator[None]:
    """Sabotage: draw less noise than the plan's. Of coins, toss fewer, and count half of the rest as heads."""
    real, real_heads = randomness.gaussian_noise, randomness.heads

    def fewer(dimension: int, coins: int) -> NDArray[np.int64]:
        """Toss fewer coins than the plan says: sabotage."""
        pairs = round(coins * (1 - factor**2) / 2)
        heads: NDArray[np.int64] = real_heads(dimension, coins - 2 * pairs) + pairs
        return heads

    def smaller(dimension: int, sigma: float, exponent: int) -> FloatArray:
        """Draw noise of a smaller deviation than the plan says: sabotage."""
        return real(dimension, sigma * factor, exponent)

    with patch.object(randomness, "gaussian_noise", smaller), patch.object(randomness, "heads", fewer):
        yield


@contextmanager
def _reused_noise() -> Iterator[None]:
    """Sabotage: draw noise once for every silo and plan, and add it to every release of the same length."""
    drawn: dict[object, FloatArray] = {}
    tossed: dict[object, NDArray[np.int64]] = {}
    real_draw, real_heads = sampling.draw, randomness.heads
    drawing: tuple[str, str] = "", ""

    def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
        """Remember whose noise is drawn, for the sabotage that reuses it."""
        nonlocal drawing
        drawing = plan.digest(), terms.name
        return real_draw(plan, terms, work)

    def toss_once(dimension: int, coins: int) -> NDArray[np.int64]:
        """Return the same heads every time for a silo and plan: sabotage."""
        key = (*drawing, dimension, coins)
        if key not in tossed:
            tossed[key] = real_heads(dimension, coins)
        return tossed[key]

    def again(dimension: int, sigma: float, exponent: int) -> FloatArray:
        """Return the same noise every time for a silo and plan, scaled to sigma: sabotage."""
        key = (*drawing, dimension)
        unit = drawn.setdefault(key, np.random.default_rng().standard_normal(dimension))
        noise: FloatArray = np.round(sigma * unit / 2.0**exponent) * 2.0**exponent
        return noise

    with (
        patch.object(sampling, "draw", draw),
        patch.object(randomness, "gaussian_noise", again),
        patch.object(randomness, "heads", toss_once),
    ):
        yield


def _no_clip() -> AbstractContextManager[object]:
    """Sabotage: add up gradients at their full length."""

    def unclipped(query: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        """Add up gradients without clipping them: sabotage."""
        added = gradient.clipped_mean(
            plan.loss,
            math.inf,
            weights=argument.reshape(plan.data.width, -1),
            features=records.features,
            norms=records.norms,
            targets=records.targets,
            shares=records.shares(plan, chosen) / query.clip,
        )
        return np.asarray(np.vectorize(int, otypes=[object])(np.ldexp(added, UNIT)))

    return patch.object(gradient, "total", unclipped)


@contextmanager
def _half_sensitivity() -> Iterator[None]:
    """Sabotage: plan, approve and charge as if the sensitivity of a mean were L/K, half of the true one.

    Likewise for counts: half of the levels.
    """

    def halving(argument: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with one argument halved, for the sabotaged sensitivity."""
        return lambda **given: real(**{**given, argument: given[argument] / 2})

    with (
        patch.object(own_noise, "shift_of", halving("sensitivity", shift_of)),
        patch.object(coins, "binomial_shift", halving("reach", binomial_shift)),
        patch.object(shuffler, "BinomialRelease", halving("reach", events.BinomialRelease)),
    ):
        yield


@contextmanager
def _with_replacement() -> Iterator[None]:
    """Sabotage: draw a batch record by record, so that one record may be in it several times."""
    real, real_total = sampling.participation, gradient.total

    def drawn(rule: Sampling, plan: Plan, terms: SiloTerms, work: Task, uniform: sampling.Uniform) -> FloatArray:
        """Return how often each record is drawn, with replacement: sabotage."""
        chosen = np.flatnonzero(real(rule, plan, terms, work, uniform))
        eligible = np.arange(terms.records) if rule.is_secret else chosen
        picked = np.random.default_rng().choice(eligible, size=work.batch)
        times: FloatArray = np.bincount(picked, minlength=terms.records).astype(np.float64)
        return times

    def repeated(query: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        """Add up gradients, each as often as its record was drawn: sabotage."""
        drawn_so_often = ((chosen >= often).astype(np.float64) for often in range(1, max(1, int(chosen.max())) + 1))
        totals = [real_total(query, plan, argument, records, some) for some in drawn_so_often]
        return np.asarray(np.sum(totals, axis=0))

    with patch.object(sampling, "participation", drawn), patch.object(gradient, "total", repeated):
        yield


@contextmanager
def _forgotten_peer() -> Iterator[None]:
    """Sabotage: plan, approve and charge as if no other silo colluded with the server."""
    with (
        patch.object(shuffler, "honest_silos", lambda quorum, colluders: quorum),
        patch.object(shuffler_planning, "honest_silos", lambda quorum, colluders: quorum),
    ):
        yield


def _ignored_persons() -> AbstractContextManager[object]:
    """Sabotage: treat every row of a person as a record, clipped by itself and counted in full."""
    real = gradient.total

    def row_by_row(query: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        """Add up gradients as if every row were a record: sabotage of persons."""
        if records.persons is not None:
            chosen = chosen[records.persons.of_row]
            records = Records(records.schema, records.features, records.targets)
        return real(query, plan, argument, records, chosen)

    return patch.object(gradient, "total", row_by_row)


def _forgotten_tries() -> AbstractContextManager[object]:
    """Sabotage: charge the first of several plans alone."""
    return patch.object(Account, "charged", lambda account: next(iter(account.plans.values())).charged())


SABOTAGES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    NONE: nullcontext,
    "half-noise": lambda: _less_noise(0.5),
    "root-half-noise": lambda: _less_noise(math.sqrt(0.5)),
    "skip-clip": _no_clip,
    "repeat-round": _forgetful_gate,
    "with-replacement": _with_replacement,
    "wrong-sensitivity": _half_sensitivity,
    "reuse-noise": _reused_noise,
    "forget-peer": _forgotten_peer,
    "keep-order": lambda: patch.object(
        shares, "shuffle_messages", lambda messages: None
    ),  # a silo's shares stay together
    "ignore-persons": _ignored_persons,
    "forget-tries": _forgotten_tries,
}
