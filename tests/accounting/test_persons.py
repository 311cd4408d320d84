"""A person's loss by brute force: every list of rows for every other, all draws, all answers of small silos.

Nothing of the accountant is used but what is tested: the delta that it reports of a plan's events. Exact answers are
the silo's own; who takes part, rounding and coins are enumerated, and noise is cut into cells by the normal law.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import seen_by
from ringfence.evidence.audit.sabotage import NONE, SABOTAGES
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import MinibatchSGD, Observer, Plan, PublicKeys, ShufflerChannel, parse_schema
from ringfence.protocol.plan.plan import task
from ringfence.silo.gate.sampling import participation
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

Floats = NDArray[np.float64]
Person = tuple[tuple[float, float], ...]
"""All rows of somebody: the feature and the target of each."""

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
SCHEMA = parse_schema({"columns": {"a": NUMBER, "y": NUMBER}, "intercept": 0.0, "person": "who"}, target="y")
KEYS = PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos=dict.fromkeys(("clinic", "other"), "a0" * 32))
PERSONS, CLIP, DELTA, THETA = 4, 0.25, 1e-3, 0.5
RULES: dict[str, dict[str, Any]] = {
    "mean": {"person_rule": "mean"},
    "rows": {"person_rule": "rows", "rows_per_person": 2},
    "sum": {"person_rule": "sum"},
}
WAYS: dict[str, dict[str, Any]] = {
    "full": {"sampling": "full"},
    "fixed": {"sampling": "fixed", "batch": 2},
    "poisson": {"sampling": "poisson", "batch": 2},
    "correlated": {"sampling": "one-pass", "correlation": THETA},
    "shuffled, against anyone": {"trust": "shuffler", "keys": KEYS, "colluders": 0, "rounds": 1},
    "shuffled, against the server": {"trust": "shuffler", "keys": KEYS, "colluders": 0, "rounds": 1},
}
UP, DOWN, SHORT, NONE_AT_ALL = (1.0, -1.0), (1.0, 1.0), (0.4, 0.2), (0.0, 0.0)
"""Rows whose gradients at weight 0 are longer than the clip in either direction, shorter than it, and 0."""

LISTS: list[Person] = [
    (NONE_AT_ALL,),
    *(rows for size in (1, 2, 3) for rows in itertools.product((UP, DOWN, SHORT), repeat=size)),
    *((row,) * size for row in (UP, DOWN, SHORT) for size in (9, 200)),
]
EDGES, EPSILONS = np.linspace(-7.0, 7.0, 101), (0.0, 0.5, 1.0)


@cache
def plan_of(rule: str, way: str) -> Plan:
    silos = ("clinic", "other") if "shuffled" in way else ("clinic",)
    asked = {"rounds": 2, "loss": "squared", "clip": CLIP, "algorithm": MinibatchSGD(step=1.0), **WAYS[way]}
    return make_plan(SCHEMA, [Member(silo, PERSONS, 1.0, DELTA) for silo in silos], PlanRequest(**asked, **RULES[rule]))


def exact(plan: Plan, people: Sequence[Person], chosen: Floats) -> float:
    """The silo's own answer at weight 0."""
    rows = np.array([row for person in people for row in person])
    of_row = np.repeat(np.arange(len(people)), [len(person) for person in people])
    records = Records(SCHEMA, rows[:, :1], rows[:, 1], of_row=of_row)
    query = plan.stages[0].query
    batch = plan.silos[0].stages[0].batch
    return float(compute(query, plan, np.zeros(1), records, chosen, batch)[0])


def draws(plan: Plan, round: int) -> Iterator[tuple[float, Floats]]:
    """Everybody who may take part in a round, with the probability of that."""
    terms, rule = plan.silos[0], plan.stages[0].sampling.name
    batch = terms.stages[0].batch
    if rule not in ("fixed", "poisson"):
        work = task(plan, terms, round, round)
        yield 1.0, participation(plan.stages[0].sampling, plan, terms, work, lambda count: np.zeros(count, np.uint64))
        return
    for chosen in itertools.product((0.0, 1.0), repeat=PERSONS):
        inside, rate = int(sum(chosen)), batch / PERSONS
        if rule == "poisson":
            yield rate**inside * (1 - rate) ** (PERSONS - inside), np.array(chosen)
        elif inside == batch:
            yield 1 / math.comb(PERSONS, batch), np.array(chosen)


def law(plan: Plan, people: Sequence[Person], observer: Observer) -> Floats:
    """The probabilities of all that the observer may see of all rounds, in cells."""
    channel, terms = plan.stages[0].channel, plan.silos[0].stages[0]
    means = [[(weight, exact(plan, people, chosen)) for weight, chosen in draws(plan, r)] for r in range(plan.rounds)]
    if isinstance(channel, ShufflerChannel):
        height = channel.levels * (PERSONS * means[0][0][1] / (2 * CLIP) + PERSONS / 2)
        whole, coins = math.floor(height), (2 if observer == "server" else 1) * PERSONS * channel.coins
        heads = np.arange(coins + PERSONS * channel.levels + 2) - whole
        up = height - whole
        return np.asarray((1 - up) * binom.pmf(heads, coins, 0.5) + up * binom.pmf(heads - 1, coins, 0.5))
    first, second = means
    if channel.correlation:  # beneath, the second row is its own mean and so much of the first one's
        [(_, earlier)] = first
        second = [(weight, mean + channel.correlation * earlier) for weight, mean in second]
    return np.outer(_cells(first, terms.sigma), _cells(second, terms.sigma)).ravel()


def _cells(means: Sequence[tuple[float, float]], sigma: float) -> Floats:
    below = np.sum([weight * ndtr(EDGES - mean / sigma) for weight, mean in means], axis=0)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def different(plan: Plan) -> list[Person]:
    """Lists of rows, one for each term that a person can come to: more of the same law show nothing new."""
    alone = np.zeros(PERSONS)
    alone[0] = 1.0
    nobody: list[Person] = [(NONE_AT_ALL,)] * (PERSONS - 1)
    found = {round(exact(plan, [person, *nobody], alone), 9): person for person in LISTS}
    return [found[term] for term in sorted(found)]


def largest_losses(plan: Plan, observer: Observer) -> Floats:
    """The exact delta at every epsilon, for the worst of all persons, places, replacements and others."""
    found = np.zeros(len(EPSILONS))
    people = different(plan)
    everybody_else: list[list[Person]] = [[person] * (PERSONS - 1) for person in ((NONE_AT_ALL,), (UP,), (DOWN, DOWN))]
    places = range(PERSONS) if plan.stages[0].sampling.name == "one-pass" else [0]
    for others, place in itertools.product(everybody_else, places):
        laws = [law(plan, [*others[:place], person, *others[place:]], observer) for person in people]
        for p, q in itertools.permutations(laws, 2):
            found = np.maximum(found, [np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for epsilon in EPSILONS])
    return found


def claimed(plan: Plan, observer: Observer) -> Floats:
    events = seen_by(observer, plan_events(plan, plan.silos[0]))
    return np.array([accountant.delta(events, epsilon) for epsilon in EPSILONS])


def both(rule: str, way: str, sabotage: str = NONE) -> tuple[Floats, Floats]:
    plan = plan_of(rule, way)
    observer: Observer = "server" if "server" in way else "anyone"
    with SABOTAGES[sabotage]():
        return largest_losses(plan, observer), claimed(plan, observer)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", RULES)
def test_nobody_loses_more_than_is_claimed_whatever_rows_replace_theirs(rule: str, way: str) -> None:
    """And somebody loses about as much: cells leave three percent, the bound on a few counts a quarter."""
    truth, bound = both(rule, way)
    assert np.all(truth <= bound)
    assert np.all(truth >= (0.75 if "shuffled" in way else 0.97) * bound)


@pytest.mark.parametrize("way", WAYS)
def test_a_silo_that_took_rows_for_records_would_lose_more(way: str) -> None:
    """Whatever the rule says, which it then ignores."""
    truth, bound = both("rows", way, "ignore-persons")
    assert np.all(truth > 4 * bound)
