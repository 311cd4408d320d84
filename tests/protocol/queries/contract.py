"""What a query promises, in whole numbers and fractions: how its contract is checked, with hostile rows and arguments.

A query's answer is a linear function of a total, in whole numbers, to which each record contributes by itself. So an
answer's sensitivity is a distance between two contributions, and both are computed here without any rounding.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from ringfence.protocol import Curvature, FloatArray, Plan
from ringfence.silo.queries import COMPUTATIONS, compute
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records
from tests.protocol.queries.neighbours import Record, corners, draw_record, extreme_targets, targets_fit
from tests.support import rebuilt

Member = list[Any]
"""The rows of a person; of a record, one."""

MEMBERS = 10
"""How many members a contract is checked with at a time."""


class Case(NamedTuple):
    """A query, its plan, how a hostile server may draw an argument, and rows to draw from, made to records by `build`.

    `handmade` are arguments that a draw would miss.
    """

    query: Any
    plan: Plan
    argument: Callable[[Plan, np.random.Generator], FloatArray]
    rows: Callable[[Plan, np.random.Generator], list[Any]]
    build: Callable[[Plan, Sequence[Any], NDArray[np.int64] | None], Records]
    handmade: Callable[[Plan], list[FloatArray]] = lambda plan: []

    def of_persons(self, rule: str) -> "Case":
        """Return the same case of persons, by a rule for their rows."""
        facts: dict[str, Any] = {"unit": "person", "person_rule": rule}
        facts |= {"data": self.plan.data.model_copy(update={"person": "who"})}
        return self._replace(plan=rebuilt(self.plan, rows_per_person=2 if rule == "rows" else None, **facts))

    def records(self, members: Sequence[Member]) -> Records:
        """Encode the members as one data set."""
        whose = np.repeat(np.arange(len(members)), [len(member) for member in members])
        rows = [row for member in members for row in member]
        return self.build(self.plan, rows, whose if self.plan.unit == "person" else None)

    def total(self, argument: FloatArray, members: Sequence[Member], chosen: FloatArray | None = None) -> Counts:
        """Return the query's total over a data set of these members."""
        records = self.records(members)
        taking_part = np.ones(len(members)) if chosen is None else chosen
        found: Counts = COMPUTATIONS[type(self.query)].total(self.query, self.plan, argument, records, taking_part)
        return found

    def answer(self, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
        return COMPUTATIONS[type(self.query)].answer(self.query, self.plan, argument, total, batch)

    def computed(self, argument: FloatArray, members: Sequence[Member], chosen: FloatArray, batch: int) -> FloatArray:
        """Return the answer that the gate computes."""
        return compute(self.query, self.plan, argument, self.records(members), chosen, batch)


def draw_members(case: Case, random: np.random.Generator) -> list[Member]:
    """Draw records, or persons with one to three rows, some of them with all rows alike; the first rows are alone."""
    pool = case.rows(case.plan, random)
    pool = pool[:4] + [pool[place] for place in 4 + random.permutation(len(pool) - 4)]
    alone = [[row] for row in pool[: MEMBERS if case.plan.unit == "record" else MEMBERS // 3]]
    for number in range(len(alone), MEMBERS):
        rows = [pool[place] for place in random.integers(len(pool), size=1 + number % 3)]
        alone.append([rows[0]] * len(rows) if random.random() < 0.3 else rows)
    return alone


SPECIAL = [0.0, 5e-324, 1e-300, 2.0**-100, 1e-9, 1.0, 3.0, 2.0**31, 2.0**99, 2.0**100, 1e50, 1e99, 1e100]


def draw_arguments(case: Case, random: np.random.Generator, count: int = 2) -> list[FloatArray]:
    """Draw arguments that the gate accepts: the case's own, and those with numbers as large or small as may be."""
    drawn = case.argument(case.plan, random)
    candidates: list[Any] = [np.zeros_like(drawn), drawn, *case.handmade(case.plan)]
    for share in random.choice([0.02, 0.5, 1.0], size=4 * count):
        one = random.choice(SPECIAL) * random.choice([-1.0, 1.0], size=len(drawn))
        each = random.choice(SPECIAL, size=len(drawn)) * random.choice([-1.0, 1.0], size=len(drawn))
        candidates.append(np.where(random.random(len(drawn)) < share, one if random.random() < 0.5 else each, drawn))
    assert all(len(argument) == case.query.argument_length(case.plan) for argument in candidates)
    with np.errstate(all="ignore"):
        different = {argument.tobytes(): argument for argument in candidates}.values()
        accepted = [argument for argument in different if case.query.accepts(case.plan, argument)]
    assert any(np.array_equal(argument, drawn) for argument in accepted)
    return accepted[: count + len(case.handmade(case.plan))]


# -- rows --


def just_above(square: int, width: int) -> NDArray[np.int64]:
    """Return whole numbers whose squares add up to the least sum that is found greedily above a number."""
    places = []
    for _ in range(min(width, 4) - 1):
        places.append(math.isqrt(square))
        square -= places[-1] ** 2
    return np.array([*places, math.isqrt(square) + 1, *[0] * max(0, width - 4)])


def rows_on_the_margin(width: int) -> list[FloatArray]:
    """Return features that a clip too large by 2⁻⁴⁸ would let out too long, where truncation usually hides that.

    Sums count multiples of 2⁻³¹. The first ones, clipped to norm 1, are whole numbers of them whose norm is above 1 by
    less than 2⁻⁴⁸. The others, at most 1 long, have such a product with the next multiple above their inverse norm.
    """
    unit = np.zeros(width)
    unit[:2] = 1.0, 2.0**-30
    found: list[Any] = [2.0**7 * unit, unit]
    for multiple in (3 << 30, (3 << 30) + 12345, (5 << 29) + 77):
        square = (1 << 124) + (1 << 76)  # a norm of 1 + 2⁻⁴⁹, in units of 2⁻⁶²
        found.append(just_above(square // multiple**2, width) * 2.0**-31)
    return found


def feature_rows(plan: Plan, random: np.random.Generator) -> list[Record]:
    """Return records at the ends of what the schema allows, far beyond, on the margin, tiny, and in between, shuffled.

    Those on the margin come first.
    """
    width = plan.data.width
    targets = [target for target in extreme_targets(plan) if targets_fit(plan, target)]
    margin = [Record(features, target) for features in rows_on_the_margin(width) for target in targets]
    odd = [np.full(width, size) for size in (5e-324, -1e-300, 2.0**-100, 1e300, -1.7e308, math.inf)]
    odd += [np.where(np.arange(width) % 2 == 0, 1e300, 1e-300), np.ones(width) * plan.data.feature_norm]
    some = [draw_record(plan, random, stretch=random.choice([0.0, 1.0, 5.0])) for _ in range(6)]
    ends = [corners(plan)[place] for place in random.integers(len(corners(plan)), size=5)]
    ends += [Record(features, targets[random.integers(len(targets))]) for features in odd]
    rows = [margin[place] for place in random.permutation(len(margin))[:6]] + some + ends
    return rows


def build_of_features(plan: Plan, rows: Sequence[Record], of_row: NDArray[np.int64] | None) -> Records:
    targets = np.array([row.target for row in rows], dtype=np.float64)
    return Records(plan.data, np.array([row.features for row in rows]), targets, of_row=of_row)


# -- what is promised --


def require_additive(case: Case, argument: FloatArray, members: list[Member], random: np.random.Generator) -> Counts:
    """Check that a total is the sum of its members' own, bit for bit, whoever stands beside them; return these.

    The others are in any order, doubled, and hostile; some take no part.
    """
    alone = np.array([case.total(argument, [member]) for member in members], dtype=object)
    twice = np.arange(2 * len(members)) % len(members)
    for places in (np.arange(len(members)), random.permutation(twice)):
        chosen: FloatArray = np.where(random.random(len(places)) < 0.7, 1.0, 0.0)
        crowd = [members[place] for place in places]
        expected = (alone[places] * chosen.astype(int).reshape(-1, *[1] * (alone.ndim - 1))).sum(axis=0)
        assert np.array_equal(case.total(argument, crowd, chosen), expected)
        computed = case.computed(argument, crowd, chosen, len(crowd))
        assert np.all(np.isfinite(computed))
        assert computed.tobytes() == case.answer(argument, expected, len(crowd)).tobytes()
        assert np.max(np.abs(computed)) <= case.query.largest(case.plan) * (1 + 2.0**-52)
        assert len(computed) == case.query.length(case.plan)
    return alone


class Coefficients(NamedTuple):
    """How an answer with a batch of 1 follows from a total: whole multiples of 2^exponent."""

    matrix: Counts
    exponent: int

    @classmethod
    def of(cls, case: Case, argument: FloatArray, total: Counts) -> "Coefficients":
        """Find the coefficients one by one; such a total has that shape."""
        one, columns = np.zeros(total.size, dtype=object), []
        for place in range(total.size):
            one[place] = 1 << exact_sums.UNIT
            columns.append(case.answer(argument, one.reshape(total.shape), 1))
            one[place] = 0
        found = np.array(columns)
        least = int(np.min(np.frexp(found[found != 0.0])[1])) - 53
        matrix = np.array([[int(Fraction(number) / Fraction(2) ** least) for number in row] for row in found], object)
        return cls(matrix, least - exact_sums.UNIT)

    def contributions(self, totals: Counts) -> Counts:
        """Return what members with these totals contribute to the answer, a row each, in units of 2^exponent."""
        flat, (count, length) = totals.reshape(len(totals), -1), self.matrix.shape
        if count == length and not np.any(self.matrix * (1 - np.eye(count, dtype=int))):
            return np.asarray(flat * np.diag(self.matrix))
        return np.asarray(flat.dot(self.matrix))


def require_bounded(case: Case, argument: FloatArray, alone: Counts, found: Coefficients) -> None:
    """Check the exact squared diameter of the members' contributions against the sensitivity that is charged."""
    vectors, unit = found.contributions(alone), Fraction(2) ** found.exponent
    rounded = np.array([[float(number * unit) for number in vector] for vector in vectors])
    summed = np.array([float(number * unit) for number in vectors.sum(axis=0)])
    np.testing.assert_allclose(case.answer(argument, alone.sum(axis=0), 1), summed, rtol=2.0**-51)
    limit, apart = int((Fraction(case.query.sensitivity(case.plan, 1)) / unit) ** 2), squareform(pdist(rounded))
    for one, other in np.argwhere(np.triu(apart >= apart.max() * (1 - 1e-12), 1))[:20]:
        assert int(((vectors[one] - vectors[other]) ** 2).sum()) <= limit, (one, other)
    if (norm := case.query.record_norm(case.plan)) is not None:
        longest = int((Fraction(norm) / unit) ** 2)
        assert all(int((vector**2).sum()) <= longest for vector in vectors)


def require_bounded_moments(case: Case, alone: Counts) -> None:
    """Check that a curvature's contributions are 0 ≼ M ≼ X², exactly: then no eigenvalue moves by more than X².

    A contribution is symmetric, of no negative eigenvalue but for the rounding of this check, and its trace at most X².
    """
    for moments in alone:
        assert np.array_equal(moments, moments.T)
        assert 0 <= int(np.trace(moments)) <= 1 << (exact_sums.UNIT + 16)
        assert np.linalg.eigvalsh(np.array(moments / (1 << exact_sums.UNIT + 16), dtype=np.float64)).min() >= -1e-12
    assert case.query.sensitivity(case.plan, 1) == case.plan.data.feature_norm**2


def require_contract(case: Case, random: np.random.Generator) -> None:
    """Check all that a query promises, of drawn members and several arguments."""
    members, found = draw_members(case, random), None
    for argument in draw_arguments(case, random):
        alone = require_additive(case, argument, members, random)
        if isinstance(case.query, Curvature):
            require_bounded_moments(case, alone)
            continue
        found = found or Coefficients.of(case, argument, alone[0])
        require_bounded(case, argument, alone, found)
