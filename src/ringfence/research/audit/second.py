"""A second accountant: the epsilon of a plan, from the plan's own numbers, by somebody else's composition.

Nothing of `accounting` is used. Sensitivities are written out again here, from the plan; distributions are composed by
dp-accounting's PLD code. It has no tight account of batches of a fixed size, so for those its discretisation gets the
exact profile of Balle, Barthe & Gaboardi (2018), made symmetric as replace-one adjacency requires. dp-accounting is a
dependency of the tests only.

*Counts from a shuffler.* Our accountant proves a bound for all neighbours at once (`accounting.shuffled_sums`). Here
the exact distributions of two pairs of neighbours are composed: one whose difference lies in a single coordinate, and
one whose difference is spread evenly over all. So the direction is known: what is found here may not exceed the claim,
and falls short of it by what the proof gives away.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import binom, log_ndtr
from scipy.stats import binom as binomial

from ringfence.errors import PlanError
from ringfence.protocol import FloatArray, Observer, Plan, ShufflerChannel, Stage
from ringfence.protocol.plan import sections

INTERVAL = 1e-3
"""Width of the grid of losses, in epsilon."""


_NEGLIGIBLE = 1e-25
"""Counts less likely than this are counted as telling everything: together they add less than 1e-20 to delta."""


@dataclass(frozen=True)
class Release:
    """A Gaussian release: its sensitivity in standard deviations of the noise, and the sampling rate."""

    shift: float
    count: int = 1
    rate: float = 1.0
    fixed_size: bool = False


_TERMS: dict[str | None, Callable[[int, Any], float]] = {
    None: lambda rows, most: 1.0,
    "mean": lambda rows, most: math.fsum([1 / rows] * rows),
    "rows": lambda rows, most: math.fsum([1 / most] * min(rows, most)),
    "sum": lambda rows, most: min(1.0, rows),
}
"""The longest that so many rows of a person come to by each rule, in clips: all of them pull in one direction."""

_SENSITIVITIES: dict[str, Callable[[Any, Plan, int], float]] = {
    "gradient": lambda query, plan, batch: 2 * query.clip * _longest_term(plan) / batch,
    "column-distributions": lambda query, plan, batch: math.sqrt(2.0 * len(plan.data.open_curves)) / batch,
    "comparison": lambda query, plan, batch: 1.0 / batch,
    "curvature": lambda query, plan, batch: plan.data.feature_norm**2 / batch,
    "evaluation": lambda query, plan, batch: 1.0 / batch,
    "feature-means": lambda query, plan, batch: math.sqrt(4.0 + 0.5) / batch,
    "feature-moments": lambda query, plan, batch: math.sqrt(2.0 + 0.5) / batch,
    "preconditioned-gradient": lambda query, plan, batch: 2 * _longest_term(plan) / batch,
    "second-moments": lambda query, plan, batch: math.sqrt(4.5) / batch,
    "statistics": lambda query, plan, batch: _cells_moved(query, plan) / batch,
    "survival-curve": lambda query, plan, batch: math.sqrt(2.0) / batch,  # a record is 1 in one cell, 0 elsewhere
}
"""Sensitivity of each query for a number of records, derived a second time.

In surveys a person is a mean over rows, whatever the rule.
"""


def _longest_term(plan: Plan) -> float:
    """Return how long anybody's term may be, in clips, with a few rows or with many."""
    return max(_TERMS[plan.person_rule](rows, plan.rows_per_person) for rows in (1, 2, 3, 10, 100, 10**4))


_SPREADS: dict[str, Callable[[Any, int], float]] = {
    "own-noise": lambda channel, rounds: float(np.linalg.norm(_column(channel.correlation, rounds)))
}
"""Factor on the sensitivity where noise is correlated across rounds."""


def _column(correlation: float, rounds: int) -> FloatArray:
    rows = np.arange(rounds)
    return np.asarray(binom(correlation + rows - 1, rows), dtype=np.float64) if correlation else np.ones(1)


def _cells_moved(query: Any, plan: Plan) -> float:
    """Return the sensitivity of counts of cells, in units of the largest number that a record adds to."""
    moved, largest, cells = 0.0, 0.0, {}
    for name in query.columns:
        column = plan.data.used[name]
        empty = column.may_be_empty
        if column.classes:
            cells[name] = len(column.classes) + empty
            weight = highest = 1 - 1 / cells[name]
            moved += 2 * weight
        else:
            levels = 8 if column.is_unbounded else round(math.log2(query.bins))
            fine = 0.0 if column.is_unbounded else math.sqrt(0.8 * (levels + 1)) / query.bins
            cells[name], weight = 4 + empty, levels / 12 + (1 - 4.0**-levels) / 18
            highest = weight * (levels + 2) if empty else weight
            moved += weight * (2 * levels + 2 + 5 * fine)
        largest = max(largest, highest)
    for a, b in query.cross:
        weight = (1 - 1 / cells[a]) * (1 - 1 / cells[b])
        moved, largest = moved + 2 * weight * (1 - 1 / max(cells[a], cells[b])), max(largest, weight**3)
    return math.sqrt(moved / largest)


def releases(plan: Plan) -> list[Release]:
    """Read from the plan what its first silo releases, with its own noise, of one record in the worst place."""
    terms = plan.silos[0]
    found: list[Release] = []
    times: list[NDArray[np.int64]] = []
    for stage, own in zip(plan.stages, terms.stages, strict=True):
        rule, query, channel = stage.sampling, stage.query, stage.channel
        if channel.is_collected:
            continue
        moved = _SENSITIVITIES[query.name](query, plan, own.batch) * _SPREADS[channel.name](
            channel, _most_answers(stage)
        )
        asked = _held_out(terms.records, plan.held_out)  # the held-out ones come last here
        asked = {None: terms.records, "held-out": asked, "training": terms.records - asked}[stage.section]
        rate = own.batch / asked if rule.is_secret else 1.0
        is_fixed = rule.most(records=asked, batch=own.batch) == own.batch
        found.append(Release(moved / own.sigma, 1, rate, is_fixed))
        taken = np.zeros(terms.records, dtype=np.int64)
        first = terms.records - asked if stage.section == "held-out" else 0
        taken[first : first + asked] = _times(stage, own.batch, asked)
        times.append(taken)
    shown = sum(release.shift**2 * taken for release, taken in zip(found, times, strict=True))
    worst = int(np.argmax(shown))  # which matters where parts of the records take turns
    return [replace(one, count=int(taken[worst])) for one, taken in zip(found, times, strict=True) if taken[worst]]


def _held_out(records: int, share: float | None) -> int:
    """Count the records that the division's public rule holds out."""
    return len(sections.members("held-out", records, share)) if share else 0


def _most_answers(stage: Stage) -> int:
    """Return how many rounds a silo may be made to answer: whichever it is asked, its gate stops counting there."""
    most = stage.participation.answers
    return stage.rounds if most is None or most > stage.rounds else most


def _times(stage: Stage, batch: int, records: int) -> NDArray[np.int64]:
    """Return in how many rounds the record at each place of the silo's partition may take part."""
    taken = np.zeros(records, dtype=np.int64)
    for round in range(_most_answers(stage)):
        part = stage.sampling.part(records=records, batch=batch, answered=round)
        taken[slice(None) if part is None else slice(part.first, part.first + batch)] += 1
    return taken


@dataclass(frozen=True)
class Counts:
    """Sums of vectors in so many `levels`, with fair coins in each of `dimension` coordinates, `count` times."""

    levels: int
    coins: int
    dimension: int
    count: int


def counts(plan: Plan, against: Observer) -> Counts:
    """Read from a plan with one shuffled stage what hides a record of its first silo: honest silos' coins, or its."""
    [(number, stage, channel)] = (
        (number, stage, stage.channel)
        for number, stage in enumerate(plan.stages)
        if isinstance(stage.channel, ShufflerChannel)
    )
    first, *others = (terms.stages[number].batch for terms in plan.silos)
    batch = first if against == "anyone" else first + sum(sorted(others)[: channel.quorum - channel.colluders - 1])
    times = int(_times(stage, first, plan.silos[0].records).max())
    return Counts(round(channel.levels * _longest_term(plan)), batch * channel.coins, plan.dimension, times)


def second_epsilon_of_counts(found: Counts, delta: float, beside: Sequence[Release] = ()) -> float:
    """Return dp-accounting's epsilon of the worse of two pairs: the difference in one coordinate, or in all alike.

    `beside` are releases with the silo's own noise. Losses are rounded up, by at most `INTERVAL` in all for counts.
    """
    library, epsilons = _library(), []
    for coordinates in {1, found.dimension}:
        times = coordinates * found.count
        single = library.from_two_probability_mass_functions(
            _log_masses(found.coins, found.levels / math.sqrt(coordinates)),
            _log_masses(found.coins, 0.0),
            value_discretization_interval=INTERVAL / times,
        )
        composed = single.self_compose(times)
        for release in beside:
            composed = composed.compose(_loss_distribution(release, INTERVAL / times).self_compose(release.count))
        epsilons.append(float(composed.get_epsilon_for_delta(delta)))
    return max(epsilons)


def _log_masses(coins: int, height: float) -> dict[int, float]:
    """Return the logarithms of the probabilities of ⌊height + u⌋ + heads, u uniform on [0, 1), where that matters."""
    whole = math.floor(height)
    up = height - whole
    heads = np.arange(coins + 2)
    masses = (1 - up) * binomial.pmf(heads, coins, 0.5) + up * binomial.pmf(heads - 1, coins, 0.5)
    kept = np.flatnonzero(masses > _NEGLIGIBLE)
    return dict(zip((kept + whole).tolist(), np.log(masses[kept]).tolist(), strict=True))


def second_epsilon(found: Sequence[Release], delta: float) -> float:
    """Return dp-accounting's epsilon of all releases together."""
    composed: Any = _library().identity(INTERVAL)
    for release in found:
        single = _loss_distribution(release)
        composed = composed.compose(single.self_compose(release.count))
    return float(composed.get_epsilon_for_delta(delta))


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise PlanError(
            "The second accountant is dp-accounting, which is not installed: pip install dp-accounting==0.6.0."
        ) from None
    return privacy_loss_distribution


def _loss_distribution(release: Release, interval: float = INTERVAL) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if release.rate == 1:
        return privacy_loss_distribution.from_gaussian_mechanism(
            1 / release.shift, value_discretization_interval=interval
        )
    if not release.fixed_size:
        return privacy_loss_distribution.from_gaussian_mechanism(
            2 / release.shift,  # its sensitivity is that of taking part; it doubles by itself
            value_discretization_interval=interval,
            sampling_prob=release.rate,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
    top = math.ceil((release.shift**2 / 2 + 12 * release.shift) / interval)
    losses: FloatArray = interval * np.arange(top + 1, dtype=np.float64)
    above = _fixed_size_profile(release.rate, release.shift, losses)
    below = -np.expm1(-losses) + np.exp(-losses) * above  # δ(−ε) = 1 − e^(−ε)(1 − δ(ε)) for a symmetric profile
    deltas = np.concatenate([below[:0:-1], above])
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -top, top, deltas)
    )


def _fixed_size_profile(rate: float, shift: float, losses: FloatArray) -> FloatArray:
    """Return δ(ε') = q·δ_Gauss(ε), e^ε = 1 + (e^ε' − 1)/q."""
    epsilon = np.log1p(np.expm1(losses) / rate)
    above = np.exp(log_ndtr(shift / 2 - epsilon / shift)) - np.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift))
    result: FloatArray = rate * np.maximum(above, 0.0)
    return result
