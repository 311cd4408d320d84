"""From the league's cells to errors, regrets and their standard errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Self

from scipy.stats import ttest_ind_from_stats

from ringfence.research.experiments.sweeps import mean_and_error
from ringfence.simulation.cells import Row


@dataclass(frozen=True)
class Reference:
    """What is known of a table without any privacy: its size, and the errors of guessing and of the best model."""

    table: str
    target: str
    records: int
    silos: int
    weights: int
    guessing: float
    not_private: float

    @property
    def unit(self) -> float:
        """The difference of errors that is a regret of 1."""
        return self.guessing - self.not_private

    def regret(self, error: float) -> float:
        """Return where an error lies between that without privacy, 0, and that of guessing, 1."""
        return (error - self.not_private) / self.unit


@dataclass(frozen=True)
class LeaguePoint:
    """A method on a table at an ε: mean error and regret with their standard errors, rounds, and how many runs."""

    error: float
    spread: float
    regret: float
    regret_spread: float
    rounds: int
    runs: int


@dataclass(frozen=True)
class Agreement:
    """The same plan simulated and through real gates: mean errors, and how often chance alone parts them so far."""

    table: str
    trust: str
    epsilon: float
    simulated: float
    gates: float
    runs: int
    chance: float


@dataclass(frozen=True)
class LeagueResults:
    """All that the page shows; points by method, table and ε, also where bounds are too wide.

    Errors of other models without privacy are by model and table, and the days on which cells ran by their method.
    """

    references: Sequence[Reference]
    points: Mapping[tuple[str, str, float], LeaguePoint]
    agreements: Sequence[Agreement] = ()
    left_out: "Sequence[LeftOut]" = ()
    floors: Mapping[tuple[str, str], float] = field(default_factory=dict)
    wide: Mapping[tuple[str, str, float], LeaguePoint] = field(default_factory=dict)
    days: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def epsilons(self) -> list[float]:
        """In rising order."""
        return sorted({epsilon for _, _, epsilon in self.points})

    @property
    def methods(self) -> list[str]:
        """As they first appear."""
        return list(dict.fromkeys(method for method, _, _ in self.points))

    @property
    def trials(self) -> int:
        """How many runs a point has."""
        return max(point.runs for point in self.points.values())

    @property
    def against_best(self) -> Self:
        """The same points, with regrets against the best model without privacy of each table."""
        best = {
            own.table: replace(
                own,
                not_private=min(
                    own.not_private, *(error for (_, table), error in self.floors.items() if table == own.table)
                ),
            )
            for own in self.references
        }
        points = {
            key: replace(point, regret=best[key[1]].regret(point.error), regret_spread=point.spread / best[key[1]].unit)
            for key, point in self.points.items()
        }
        return replace(self, references=list(best.values()), points=points)

    def at(self, method: str, table: str, epsilon: float) -> LeaguePoint | None:
        """Return one point; None where a method cannot be run."""
        return self.points.get((method, table, epsilon))

    def mean_regret(self, method: str, epsilon: float) -> tuple[float, float]:
        """Return the mean over the method's tables, and its standard error: what noise does, for these tables."""
        own = [point for (name, _, at), point in self.points.items() if (name, at) == (method, epsilon)]
        spread = math.sqrt(sum(point.regret_spread**2 for point in own)) / len(own)
        return sum(point.regret for point in own) / len(own), spread

    def median_rounds(self, method: str) -> float:
        """Return the median over tables and epsilons."""
        return median(point.rounds for (own, _, _), point in self.points.items() if own == method)


def points_of(
    rows: Sequence[Row], method: str, references: Sequence[Reference]
) -> dict[tuple[str, str, float], LeaguePoint]:
    """Return a method's points; rows of trials have table, epsilon, error and rounds."""
    known = {reference.table: reference for reference in references}
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["trial"])):
        groups.setdefault((str(row["table"]), float(row["epsilon"])), []).append(row)
    found = {}
    for (table, epsilon), own in sorted(groups.items()):
        error, spread = mean_and_error([float(row["error"]) for row in own])
        reference = known[table]
        rounds = int(median(int(row["rounds"]) for row in own))
        found[method, table, epsilon] = LeaguePoint(
            error, spread, reference.regret(error), spread / reference.unit, rounds, len(own)
        )
    return found


def chance_of_equal_means(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of Welch's test; two samples without any spread are alike, or they are not."""
    (mean, spread), (other_mean, other_spread) = ((fmean(own), stdev(own)) for own in (first, second))
    if spread == other_spread == 0:
        return float(mean == other_mean)
    test = ttest_ind_from_stats(mean, spread, len(first), other_mean, other_spread, len(second), equal_var=False)
    return float(test.pvalue)


def agreements(gates: Sequence[Row], simulated: Sequence[Row], trust: str) -> list[Agreement]:
    """Compare errors through real gates with the simulator's, table by table, by Welch's test."""

    def errors(rows: Sequence[Row], table: str, epsilon: float) -> list[float]:
        return [float(row["error"]) for row in rows if (row["table"], row["epsilon"]) == (table, epsilon)]

    found = []
    for table, epsilon in sorted({(str(row["table"]), float(row["epsilon"])) for row in gates}):
        real, drawn = errors(gates, table, epsilon), errors(simulated, table, epsilon)
        chance = chance_of_equal_means(real, drawn)
        found.append(
            Agreement(table, trust, epsilon, sum(drawn) / len(drawn), sum(real) / len(real), len(real), chance)
        )
    return found


@dataclass(frozen=True)
class LeftOut:
    """A table, the rule that is best on average on all others, its regret on this one, and the least of any rule."""

    table: str
    rule: str
    regrets: Mapping[float, float]
    least: Mapping[float, float]


def leave_one_table_out(rules: Mapping[str, Sequence[Row]], references: Sequence[Reference]) -> list[LeftOut]:
    """For every table, choose the rule with the least mean regret on all other tables and epsilons, and report it here.

    A constant that was fitted to tables is honest only on tables it was not fitted to. Every rule needs the cells of
    all tables and epsilons: rows with table, epsilon, trial, error and rounds.
    """
    regrets = {
        rule: {
            (table, epsilon): point.regret for (_, table, epsilon), point in points_of(rows, rule, references).items()
        }
        for rule, rows in rules.items()
    }
    found = []
    for table in (reference.table for reference in references):

        def elsewhere(rule: str, here: str = table) -> float:
            others = [regret for (name, _), regret in regrets[rule].items() if name != here]
            return sum(others) / max(1, len(others))

        best = min(regrets, key=elsewhere)
        own = {epsilon: regret for (name, epsilon), regret in regrets[best].items() if name == table}
        least = {epsilon: min(each[table, epsilon] for each in regrets.values()) for epsilon in own}
        found.append(LeftOut(table, best, own, least))
    return found
