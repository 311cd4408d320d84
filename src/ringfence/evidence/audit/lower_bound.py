"""From the score of an attack to a lower bound on epsilon, with a stated confidence and no assumption on the noise.

*The game.* A fair coin decides, for each canary, which of two records stands in the silo's data: the canary or its
replacement. The adversary sees everything that left the gate and guesses every coin. A run's *score* is the share of
coins it guessed right.

*What a claim allows.* Let δ(ε) be the claimed privacy profile, δ(0) the largest total variation distance between
neighbours. Whatever the adversary computes, it guesses a given coin with probability at most ½(1 + δ(0)): the best
test between P and Q with equal priors is right with probability ½(1 + TV(P, Q)). That holds for each canary, with the
other canaries' coins fixed in any way, so the *expected* score of a run is at most ½(1 + δ(0)) however the guesses
within a run depend on each other. Runs are independent: each has a fresh ledger, gate, coins and noise.

*Confidence.* ``lower_bound_of_mean`` bounds the mean of independent numbers in [0, 1] by betting, and is exact at any
number of runs: if the claim is true, the chance that it is exceeded is at most 1 − confidence.

*From the score to epsilon.* ``epsilon_of_score`` scales every shift that the ledger charged until the claim would just
allow the score, and returns the epsilon of that. For a Gaussian claim (μ-GDP) this is the μ of the score turned into ε
at δ: a lower bound for every mechanism whose trade-off curve is Gaussian. For sampled batches it is the ε of the same
plan with less noise, so it takes the plan's kind of sampling as given. ``epsilon_without_assumptions`` takes nothing as
given, and is therefore much smaller: from scores alone nobody can tell how bad the rarest outcomes are.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from ringfence.accounting import accountant
from ringfence.accounting.events import BinomialRelease, Event, Release, SectionRelease
from ringfence.protocol import FloatArray

STAKES = np.geomspace(0.03, 0.97, 8)
"""Shares of the capital that are bet each time, side by side: small ones suit noisy scores, large ones steady ones."""

_LARGEST_FACTOR = 1e3
"""By how much at most the charged shifts are scaled, up or down, in search of a score."""


@dataclass(frozen=True)
class Claim:
    """What a ledger charged for one run, and the delta at which its epsilon is stated."""

    events: tuple[tuple[Event, int], ...]
    delta: float

    @cached_property
    def epsilon(self) -> float:
        """The audited claim: the epsilon that the accountant proves for the run."""
        return accountant.epsilon(self.events, self.delta)

    @cached_property
    def score(self) -> float:
        """The largest expected score of an attack that the claim allows."""
        return (1 + min(1.0, accountant.delta(self.events, 0.0))) / 2

    def scaled(self, factor: float) -> "Claim":
        """Return the audited claim of the same releases with 1/factor of the noise."""
        return Claim(tuple((_scaled_event(event, factor), count) for event, count in self.events), self.delta)


def _scaled_event(event: Event, factor: float) -> Event:
    """Return a claimed event with 1/factor of the noise, in its section if it has one."""
    if isinstance(event, SectionRelease):
        return replace(event, release=_scaled_release(event.release, factor))
    return _scaled_release(event, factor)


def _scaled_release(event: Release, factor: float) -> Release:
    """Return a claimed release with 1/factor of the noise."""
    if isinstance(event, BinomialRelease):
        return replace(event, reach=event.reach * factor)
    return replace(event, shift=event.shift * factor)


def lower_bound_of_mean(scores: FloatArray, confidence: float) -> float:
    """Return p such that, with the given confidence, the mean of independent numbers in [0, 1] is at least p.

    *Proof.* Suppose every score has mean at most p. A bettor who stakes the share c of a capital of 1 on each score
    ends with Π(1 − c + c·score/p), whose mean is at most 1; so has the average over ``STAKES``. By Markov's
    inequality it reaches 1/(1 − confidence) with probability at most 1 − confidence. What is returned is the largest p
    at which it does; the capital falls in p, so every smaller p is ruled out as well.

    Edge cases: no scores, or none above 0, give 0.0.
    """
    if len(scores) == 0 or float(np.max(scores)) <= 0:
        return 0.0
    target = -math.log1p(-confidence)

    def short(p: float) -> float:
        """Return how far the log wealth of bets against mean `p` is from its target, for the lower bound."""
        gains = np.log1p(STAKES[:, None] * (scores[None, :] / p - 1)).sum(axis=1)
        return target - float(logsumexp(gains) - math.log(len(STAKES)))

    highest = float(np.mean(scores))  # at the mean no bettor gains: ln(1 + x) ≤ x
    lowest = highest
    while short(lowest) > 0:
        lowest /= 2
        if lowest < 1e-9:
            return 0.0
    return float(brentq(short, lowest, highest, xtol=1e-9)) - 1e-9


def epsilon_of_score(claim: Claim, score: float) -> float:
    """Return the epsilon of the claimed releases with so little noise that they would just allow the score.

    It exceeds the claim's epsilon exactly if the score exceeds the claim's. A score of ½ or less gives 0.0, one that
    no noise explains infinity.
    """
    if score <= 0.5:
        return 0.0

    def excess(log_factor: float) -> float:
        """Return by how much the claim with scaled noise allows more than the attack's score."""
        return claim.scaled(math.exp(log_factor)).score - score

    step = math.log(2) if excess(0.0) < 0 else -math.log(2)
    end = step
    while (excess(end) < 0) == (step > 0):
        if abs(end) > math.log(_LARGEST_FACTOR):
            return math.inf if step > 0 else 0.0
        end += step
    # Rounded down by more than the root's error: a lower bound must not gain by it.
    factor = math.exp(float(brentq(excess, end - step, end, xtol=1e-5)) - 1e-5)
    return claim.scaled(factor).epsilon


def epsilon_without_assumptions(score: float, delta: float) -> float:
    """Return the least epsilon that allows the score, whatever the mechanism is.

    Under (ε, δ)-DP a fair coin is guessed with probability (e^ε + δ)/(1 + e^ε) at most.
    """
    if score <= 0.5:
        return 0.0
    return math.inf if score >= 1 else max(0.0, math.log((score - delta) / (1 - score)))
