"""A second accountant: the epsilon of a plan, from the plan's own numbers, by somebody else's composition.

Nothing of `planning` is used. Sensitivities are written out again here, from the plan; distributions are composed by
dp-accounting's PLD code. It has no tight account of batches of a fixed size, so for those its discretisation gets the
exact profile of Balle, Barthe & Gaboardi (2018), made symmetric as replace-one adjacency requires. dp-accounting is a
dependency of the tests only.

*Counts from a shuffler.* Our accountant proves a bound for all neighbours at once (`planning.shuffling`). Here the
exact distributions of two pairs of neighbours are composed: one whose difference lies in a single coordinate, and one
whose difference is spread evenly over all. So the direction is known: what is found here may not exceed the claim,
and falls short of it by what the proof gives away.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import binom, log_ndtr
from scipy.stats import binom as binomial

from ringfence.errors import PlanError
from ringfence.protocol.algorithms import Localized
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Categorical

INTERVAL = 1e-3
"""Width of the grid of losses, in epsilon."""


_NEGLIGIBLE = 1e-25
"""Counts less likely than this are counted as telling everything: together they add less than 1e-20 to delta."""


@dataclass(frozen=True)
class Release:
    """Gaussian noise on something that replacing a record moves by `shift` deviations, if it takes part: at `rate`."""

    shift: float
    count: int = 1
    rate: float = 1.0
    fixed_size: bool = False


def releases(plan: Plan) -> list[Release]:
    """Read from the plan what its first silo releases that shows one record, in the worst place."""
    terms, found = plan.silos[0], []
    if plan.survey is not None and terms.survey_sigma is not None:
        squared = 6.0 if isinstance(plan.data.target_column, Categorical) else 11.0
        moved = plan.data.feature_norm**2 if plan.survey.statistic == "curvature" else math.sqrt(squared)
        found.append(Release(moved / terms.records / terms.survey_sigma))
    if not plan.rounds:
        return found
    once = 2 * plan.clip / (terms.batch * terms.sigma)
    rate = terms.batch / terms.records
    if plan.sampling == "one-pass":
        rows = np.arange(plan.rounds if plan.correlation else 1)
        column = binom(plan.correlation + rows - 1, rows) if plan.correlation else np.ones(1)
        found.append(Release(once * float(np.linalg.norm(column))))
    elif isinstance(plan.algorithm, Localized):
        found.append(max((_phase(plan, plan.algorithm, number) for number in range(len(plan.algorithm.phases))),
                         key=lambda release: release.shift * math.sqrt(release.count)))  # fmt: skip
    elif plan.sampling == "full" or rate == 1:
        found.append(Release(once, plan.rounds))
    else:
        found.append(Release(once, plan.rounds, rate, plan.sampling == "fixed"))
    return found


@dataclass(frozen=True)
class Counts:
    """Sums of vectors in so many `levels`, with fair coins in each of `dimension` coordinates, `count` times."""

    levels: int
    coins: int
    dimension: int
    count: int


def counts(plan: Plan, *, alone: bool) -> Counts:
    """Read from a shuffled plan of full batches what hides a record of its first silo: all coins, or its own alone."""
    assert plan.shuffle is not None  # noqa: S101 (asked of shuffled plans only)
    first, *others = (terms.batch for terms in plan.silos)
    batch = first if alone else first + sum(sorted(others)[: plan.shuffle.quorum - 1])
    return Counts(plan.shuffle.levels, batch * plan.shuffle.coins, plan.dimension, plan.rounds)


def second_epsilon_of_counts(found: Counts, delta: float) -> float:
    """Return dp-accounting's epsilon of the worse of two pairs: the difference in one coordinate, or in all alike.

    Losses are rounded up, by at most `INTERVAL` in all.
    """
    library, epsilons = _library(), []
    for coordinates in {1, found.dimension}:
        times = coordinates * found.count
        single = library.from_two_probability_mass_functions(
            _log_masses(found.coins, found.levels / math.sqrt(coordinates)),
            _log_masses(found.coins, 0.0),
            value_discretization_interval=INTERVAL / times,
        )
        epsilons.append(float(single.self_compose(times).get_epsilon_for_delta(delta)))
    return max(epsilons)


def _log_masses(coins: int, height: float) -> dict[int, float]:
    """Return the logarithms of the probabilities of ⌊height + u⌋ + heads, u uniform on [0, 1), where that matters."""
    whole = math.floor(height)
    up = height - whole
    heads = np.arange(coins + 2)
    masses = (1 - up) * binomial.pmf(heads, coins, 0.5) + up * binomial.pmf(heads - 1, coins, 0.5)
    kept = np.flatnonzero(masses > _NEGLIGIBLE)
    return dict(zip((kept + whole).tolist(), np.log(masses[kept]).tolist(), strict=True))


def _phase(plan: Plan, spec: Localized, number: int) -> Release:
    """Return phase `number`: ⌊n/2^(number+1)⌋ records in all of its rounds."""
    terms = plan.silos[0]
    sigma = terms.sigma * spec.noise(terms.records, number)
    return Release(2 * plan.clip / (terms.records // 2 ** (number + 1) * sigma), spec.phases[number].rounds)


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


def _loss_distribution(release: Release) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if release.rate == 1:
        return privacy_loss_distribution.from_gaussian_mechanism(
            1 / release.shift, value_discretization_interval=INTERVAL
        )
    if not release.fixed_size:
        return privacy_loss_distribution.from_gaussian_mechanism(
            2 / release.shift,  # its sensitivity is that of taking part; it doubles by itself
            value_discretization_interval=INTERVAL,
            sampling_prob=release.rate,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
    top = math.ceil((release.shift**2 / 2 + 12 * release.shift) / INTERVAL)
    losses: FloatArray = INTERVAL * np.arange(top + 1, dtype=np.float64)
    above = _fixed_size_profile(release.rate, release.shift, losses)
    below = -np.expm1(-losses) + np.exp(-losses) * above  # δ(−ε) = 1 − e^(−ε)(1 − δ(ε)) for a symmetric profile
    deltas = np.concatenate([below[:0:-1], above])
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(INTERVAL, -top, top, deltas)
    )


def _fixed_size_profile(rate: float, shift: float, losses: FloatArray) -> FloatArray:
    """Return δ(ε') = q·δ_Gauss(ε), e^ε = 1 + (e^ε' − 1)/q."""
    epsilon = np.log1p(np.expm1(losses) / rate)
    above = np.exp(log_ndtr(shift / 2 - epsilon / shift)) - np.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift))
    result: FloatArray = rate * np.maximum(above, 0.0)
    return result
