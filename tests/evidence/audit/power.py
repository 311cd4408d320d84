"""How often the audit misses a broken silo: upper bounds on that probability, from exact distributions.

An audit refutes a silo if one of two sums of squares is improbable under the plan (`noise_tests`), or if more coins are
guessed than the claim allows (`lower_bound`). A silo broken in a known way gives numbers of a known law (`broken`), and
Chernoff's bound on that law says how likely it is that a sum of squares stays where the audit accepts it, or that the
guesses stay below what refutes a claim. Each is a bound on the miss rate, so the least of them is one.

*Sums of squares.* What is accepted is an interval, whose ends `accepted` finds. With less noise the sums come to lie
below it; without clipping, with records drawn twice and with noise that is reused, above. Numbers of different canaries
are independent, or negatively associated by how records are drawn, and then the product of their moments is a bound on
the moment of their sum (`noise_tests`).

*Guesses.* The capital falls short of what refutes (`lower_bound.lower_bound_of_mean`) only if every bettor's share of
it does. One bettor's is a product over runs, and a run's score is the mean of k guesses, each right with probability p:
independent, or negatively associated, which makes no moment of (1 − c + c·score/p₀)^(−t), a mixture of falling
exponentials, larger.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import binom, norm

from ringfence.evidence.audit.adversary import Observation
from ringfence.evidence.audit.game import FALSE_ALARM, AuditReport, GameRun, audit, play
from ringfence.evidence.audit.lower_bound import STAKES
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.noise_tests import SumOfSquares
from ringfence.evidence.audit.plans import AuditQuery
from ringfence.evidence.audit.sabotage import NONE
from tests.evidence.audit.broken import Lattice, Laws, broken

MOST = 1e-6
"""How often a test may fail by chance, be it by a false alarm or by a miss."""

SMALL = AuditQuery(10.0, 1e-5, 32, 2)
NOISY = replace(SMALL, epsilon=1.0)
"""So much noise that little else is in the squares."""


def found_out(name: str, query: AuditQuery, sabotage: str, runs: int) -> AuditReport:
    """Audit a broken silo, with runs enough that it is missed with probability 1e-6 at most."""
    assert miss_rate(name, query, sabotage, runs) <= MOST
    return audit(name, query, runs=runs, sabotage=sabotage)


def miss_rate(name: str, query: AuditQuery, sabotage: str, runs: int, false_alarm: float = FALSE_ALARM) -> float:
    """Return a bound on the probability that so many runs do not refute a silo that is broken in the named way."""
    honest, bounds = one_run(name, query), [1.0]
    found = broken(name, query, sabotage, honest)
    for planned, laws in zip(honest.squares(), (found.size, found.sums), strict=True):
        if laws:
            low, high = accepted(planned, runs, false_alarm)
            many = [(law, runs * count) for law, count in laws]
            bounds.append(tail(many, low, above=True) if found.is_quieter else tail(many, high, above=False))
    if found.guessed is not None:
        bounds.append(guesses_missed(found.guessed, exposed(honest), honest.claim.score, runs, false_alarm))
    elif not (found.size or found.sums):  # the plan itself is wrong, so that its guesses and its claim are
        fooled = one_run(name, query, sabotage)
        bounds.append(guesses_missed(guessed(fooled), exposed(fooled), fooled.claim.score, runs, false_alarm))
    return min(bounds)


def one_run(name: str, query: AuditQuery, sabotage: str = NONE) -> GameRun:
    """Play a run: strengths and claim are the same in all of them."""
    [run] = play(MECHANISMS[name], query, 1, sabotage)
    return run


def tail(laws: Laws, total: float, *, above: bool) -> float:
    """Return a bound on the probability that the sum of squares is at least, or at most, the given total."""
    largest = max(law.variance for law, _ in laws)
    ends = (0.0, 0.4999 / largest) if above else (-50 / largest, 0.0)
    return _least(lambda t: math.fsum(count * law.log_moment(t) for law, count in laws) - t * total, *ends)


def accepted(planned: SumOfSquares, runs: int, false_alarm: float) -> tuple[float, float]:
    """Return the least and the largest sum over so many runs that refute nothing: of two sums, with two sides each."""
    mean = runs * planned.total / planned.ratio()
    expected = tuple((number, runs * count) for number, count in planned.expected)

    def excess(share: float) -> float:
        return math.log(max(SumOfSquares(share * mean, expected).p_value(), 1e-300) / (false_alarm / 4))

    low = float(brentq(excess, 1e-9, 1.0, xtol=1e-9)) if excess(1e-9) < 0 else 0.0
    far = 2.0
    while excess(far) > 0:
        far *= 2
    high = float(brentq(excess, 1.0, far, xtol=1e-9))
    return low * mean * (1 - 1e-6), high * mean * (1 + 1e-6)  # further out than any error of the search


def guesses_missed(p: float, canaries: int, allowed: float, runs: int, false_alarm: float) -> float:
    """Return a bound on the probability that guesses, right with probability p, do not refute a claim that allows less.

    ∏(1 − c + c·score/p₀)/len(STAKES) < 1/false_alarm has probability at most E exp(t(ln(len(STAKES)/false_alarm) − Σ
    ln(…))) for every t > 0 and every stake c.
    """
    right = np.arange(canaries + 1)
    log_mass, target = binom.logpmf(right, canaries, p), math.log(len(STAKES) / false_alarm)

    def missed(stake: float) -> float:
        gain = np.log1p(
            stake * (right / canaries / (allowed + 1e-8) - 1)
        )  # 1e-8: more than `lower_bound_of_mean` rounds down
        return _least(lambda t: t * target + runs * float(logsumexp(log_mass - t * gain)), 0.0, 200.0)

    return min(missed(float(stake)) for stake in STAKES)


def _least(log_bound: Callable[[float], float], low: float, high: float) -> float:
    """Return the least bound that a search comes upon; each is one."""
    found = minimize_scalar(log_bound, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return math.exp(min(0.0, float(found.fun)))


def exposed(run: GameRun) -> int:
    """Return how many canaries are guessed: those that show most."""
    power = np.sum([seen.power() for seen in run.observations], axis=0)
    return int(np.count_nonzero(power >= power.max() * (1 - 1e-3)))


def guessed(run: GameRun) -> float:
    """Return the probability that the coin of a canary that shows most is guessed right.

    Releases that a canary is surely in: their evidence is Gaussian, of mean 2·power and variance 4·power. Two releases,
    at most, of sampled records: their evidence grows with the number seen and changes its sign with it, so that of two
    it is positive if their sum is. Where both kinds come together, the sampled ones' evidence is summed over a grid.
    """
    place = int(np.argmax(np.sum([seen.power() for seen in run.observations], axis=0)))
    certain = [seen for seen in run.observations if seen.rate >= 1]
    sampled = [seen for seen in run.observations if seen.rate < 1]
    if certain and certain[0].coins is not None:
        return _of_coins(*certain)
    power = math.fsum(float(seen.power()[place]) for seen in certain)
    if not sampled:
        return float(norm.cdf(math.sqrt(power)))
    [seen] = sampled
    strength, rounds = float(seen.strength[0, place]), len(seen.strength)
    if rounds > 2:
        raise NotImplementedError("guesses from more than two releases of sampled records")
    if not certain:
        times = np.arange(rounds + 1)
        return float(binom.pmf(times, rounds, seen.rate) @ norm.cdf(strength * times / math.sqrt(rounds)))
    x = np.linspace(-9.0, 9.0 + strength, 800)
    mass = (x[1] - x[0]) * ((1 - seen.rate) * norm.pdf(x) + seen.rate * norm.pdf(x - strength))
    evidence = Observation(x[None, :], np.full((1, len(x)), strength), rate=seen.rate).evidence()
    others, weights = (evidence, mass) if rounds == 1 else (np.add.outer(evidence, evidence), np.outer(mass, mass))
    return float(np.sum(weights * norm.cdf((2 * power + others) / (2 * math.sqrt(power))))) - 1e-6


def _of_coins(seen: Observation) -> float:
    """Return how often the sum over rounds is on the coin's side: heads among all coins, exactly."""
    assert seen.coins is not None
    coins = len(seen.strength) * seen.coins
    heads = np.arange(coins + 1.0)
    mean = float(seen.strength[:, 0].sum()) * math.sqrt(seen.coins) / 2
    return Lattice(binom.logpmf(heads, coins, 0.5), mean + heads - coins / 2, coins / 4).guessed()
