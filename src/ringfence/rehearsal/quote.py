"""The quote: how precise a plan's results will be, and whether they are worth their privacy budget.

    quote = rehearse(plan)
    print(*quote.lines(), sep="\\n")
    quote.require_worth()

A plan is rehearsed a few times, each time on another simulated population, with the plan's own noise. All rounds run,
and the results are read as the server reads them, so a plan that could not finish fails here, before it is charged.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from ringfence.errors import PlanError, RingfenceError, TrainingError, visible
from ringfence.estimates.metrics import REACH
from ringfence.estimates.statistics import CategoryShares, StatisticsTables
from ringfence.model.summary import coefficients_in_table_units, coefficients_of_run
from ringfence.planning.noise_warnings import widest_column
from ringfence.protocol import Plan, unpack
from ringfence.rehearsal.population import Population, score_spread
from ringfence.rehearsal.rounds import simulated_state
from ringfence.server.queries.evaluation import evaluation_of_run
from ringfence.server.queries.statistics import statistics_of_run, survival_curve_of_run
from ringfence.server.state import Findings, ServerState
from ringfence.silo.records.records import Records

REHEARSALS, READ = 16, 3
"""How often a plan is rehearsed, and in how many of these its results are read: half-widths vary little between
populations, a model's gain much."""

ROWS = 4000
"""About the most simulated records of all silos together: more silos than `ROWS / LEAST_ROWS` share some."""

LEAST_ROWS = 50
"""The fewest simulated records of a silo that has as many."""

_WORK = 4e8
"""Fewer records, and fewer rehearsals, if second moments of all features would take more products than that."""

_ROUNDS = 1600
"""Fewer rehearsals, if all of them would have more rounds than that."""

TEST_ROWS = 2000
"""Simulated records that a rehearsed model is measured on."""

_NOT_YET = "Nothing has been charged yet."

LISTED = 6
"""How many figures a quote names."""


@dataclass(frozen=True)
class Quote:
    """What a plan is expected to yield for its budget, from rehearsals on simulated records.

    `half_widths` are the medians over the rehearsals; None marks figures that would be too noisy to report. `gains` are
    the shares of guessing's error that models removed, by rehearsal; empty if nothing is trained.
    """

    plan: Plan
    half_widths: Mapping[str, float | None]
    gains: Sequence[float]
    rehearsals: int

    @property
    def gain(self) -> float | None:
        """Median share of guessing's error that the model removed."""
        return float(np.median(self.gains)) if self.gains else None

    @property
    def wins(self) -> int:
        """Number of rehearsals in which the model beat guessing."""
        return sum(gain > 0 for gain in self.gains)

    @property
    def is_worth_it(self) -> bool:
        """Whether the model is expected to beat guessing, or, where nothing is trained, any figure to be useful."""
        if self.gain is not None:
            return self.gain > 0
        return any(width is not None for width in self.half_widths.values())

    def lines(self) -> list[str]:
        """Return what to expect, in at most three lines."""
        epsilon = max(terms.guarantee.epsilon for terms in self.plan.silos)
        lines = []
        if self.half_widths:
            lines.append(f"For epsilon = {epsilon:.4g} expect {_listed(self.half_widths)}.")
        if self.gain is not None:
            wins = f"It beat guessing in {self.wins} of {self.rehearsals} rehearsals."
            lines.append(f"{_gain_words(self.plan, self.gain)} {wins}")
        lines.append(
            f"Rehearsed on simulated {self.plan.unit}s that fit the schema, with this plan's noise; yours may show "
            f"more or less. {_NOT_YET}"
        )
        return lines

    def as_data(self) -> dict[str, Any]:
        """Return the quote as plain data."""
        return {
            "expected": {
                "half_widths": dict(self.half_widths),
                "gain_over_guessing": self.gain,
                "beat_guessing": self.wins if self.gains else None,
                "rehearsals": self.rehearsals,
                "worth_it": self.is_worth_it,
            }
        }

    def __str__(self) -> str:
        """Return what to expect, in words that stay true when the budget is spent."""
        return "\n".join(self.lines()).removesuffix(f" {_NOT_YET}")

    def require_worth(self, *, word: str = "--anyway") -> None:
        """Raise PlanError, with remedies, if nothing useful is expected; `word` would spend the budget all the same."""
        if self.is_worth_it:
            return
        what = (
            "no figure would be precise enough to report"
            if self.gain is None
            else "the model is not expected to beat guessing"
        )
        raise PlanError(
            f"Refused, and nothing was charged: {what}. {_remedies(self.plan, word)} To spend the budget all the "
            f"same, add {word}."
        )


def rehearse(plan: Plan, *candidates: Plan, level: float = 0.95, by_silo: bool = False) -> Quote:
    """Rehearse a plan on simulated records, and return what to expect of it.

    `candidates` are plans whose models the plan compares. `level` and `by_silo` are those of a summary's intervals.
    PlanError if the plan could not finish.
    """
    trained = candidates or ((plan,) if plan.training_numbers else ())
    by_width = max(2, round(_WORK / (ROWS * plan.data.width**2)))
    by_rounds = max(1, _ROUNDS // sum(own.rounds for own in trained or [plan]))
    count = min(by_width, by_rounds, REHEARSALS if trained else READ)
    start = next((unpack(model) for stage in plan.stages if (model := stage.query.explains()) is not None), None)
    half_widths: dict[str, list[float | None]] = {}
    gains: list[float] = []
    try:
        for seed in range(count):
            population = Population(trained[0] if trained else plan, np.random.default_rng(seed), start)
            silos = simulated_silos(plan, population)
            state = _run(plan, candidates, silos, seed, whole=seed < READ)
            if trained:
                test = population.records(TEST_ROWS)
                placed = test.encoded(state.plan.data.placed(state.knots))
                gains.append(population.gain(state.model(), placed))
            for name, width in _half_widths(plan, state.findings, level, by_silo) if seed < READ else ():
                half_widths.setdefault(name, []).append(width)
    except RingfenceError:
        raise
    except Exception as problem:
        raise PlanError(
            f"This plan's rounds or results cannot be computed ({type(problem).__name__} in a rehearsal), so nothing "
            "was charged. Please report this, with the schema and the command."
        ) from problem
    widths = {name: _median(own) for name, own in half_widths.items()}
    return Quote(plan, widths, gains, count)


def _run(plan: Plan, candidates: Sequence[Plan], silos: Sequence[Records], seed: int, *, whole: bool) -> ServerState:
    """Run a plan on simulated records, its candidates first; unless the `whole` plan is wanted, only what trains."""
    models = [simulated_state(own, silos, seed, 1 + own.training_numbers[-1]).model() for own in candidates]
    stages = None if whole or candidates else 1 + plan.training_numbers[-1]
    return simulated_state(plan, silos, seed, stages, candidates=models)


def _median(widths: Sequence[float | None]) -> float | None:
    """Return the median of half-widths, where an unknown one is infinite; None if that is infinite."""
    middle = float(np.median([math.inf if width is None else width for width in widths]))
    return middle if math.isfinite(middle) else None


def simulated_silos(plan: Plan, population: Population) -> list[Records]:
    """Draw simulated records for every silo: as many as it has, up to a limit.

    Where silos are many, those of one size take turns with the same records: all are drawn from one population.
    """
    share = min(1.0, _WORK / (ROWS * plan.data.width**2) / 2)
    most = max(LEAST_ROWS, int(ROWS * share) // len(plan.silos))
    sizes = [min(terms.records, most) for terms in plan.silos]
    different = min(1.0, ROWS / LEAST_ROWS / len(sizes))
    turns = {size: _turns(population, size, math.ceil(different * of)) for size, of in Counter(sizes).items()}
    return [next(turns[size]) for size in sizes]


def _turns(population: Population, size: int, different: int) -> Iterator[Records]:
    """Yield simulated records of so many different silos, and then the same again and again."""
    drawn = []
    for _ in range(different):
        drawn.append(population.records(size))
        yield drawn[-1]
    yield from cycle(drawn)


def _half_widths(
    plan: Plan, findings: Mapping[str, Findings], level: float, by_silo: bool
) -> Iterator[tuple[str, float | None]]:
    """Yield half the width of the interval of every figure that a rehearsal found."""
    evaluation = evaluation_of_run(plan, findings, by_silo=False)
    for metric in () if evaluation is None else evaluation.together.metrics:
        if "guessing" not in metric.name:
            yield metric.name, metric.half_width if metric.usable else None
    if points := survival_curve_of_run(plan, findings):
        yield "the survival curve", _useful(max(point.high - point.low for point in points) / 2, 1.0)
    with suppress(TrainingError):  # a plan that asks for no statistics
        yield from _of_statistics(statistics_of_run(plan, findings, by_silo=False))
    with suppress(TrainingError):  # or for no summary
        found, curves = coefficients_of_run(plan, findings, level=level, by_silo=by_silo)
        names, functions, _ = coefficients_in_table_units(plan)
        units = dict(zip(names, np.linalg.norm(functions, axis=1), strict=True))
        for name, one in found.items():
            width = (one.high - one.low) / 2 if one.is_known else math.inf
            yield f"the coefficient of {name}", width if width <= score_spread(plan) * units[name] else None
        most = score_spread(plan) * plan.loss.score_units(*plan.data.target_scaling)[0]
        for curve in curves:
            width = float(np.median([(one.high - one.low) / 2 if one.is_known else math.inf for one in curve.band]))
            yield f"the curve of {curve.points.column}", width if width <= most else None


def _of_statistics(tables: StatisticsTables) -> Iterator[tuple[str, float | None]]:
    """Yield the half-widths of every numeric column's median, and of its categories' shares otherwise."""
    for name, column in tables.together.columns.items():
        if isinstance(column, CategoryShares):
            widths = [(one.population.high - one.population.low) / 2 for one in column.cells.values()]
            yield f"shares of {name}", _useful(max(widths), 1.0)
        else:
            low, high = column.quantiles[0.5].population
            size = float(column.edges[-1] - column.edges[0])
            yield f"the median of {name}", _useful((high - low) / 2, size)


def _useful(width: float, size: float) -> float | None:
    """Return a half-width if it is a small enough part of the range to be useful."""
    return width if width <= REACH * size else None


def _listed(widths: Mapping[str, float | None]) -> str:
    """Write figures with their half-widths, and name those that are too noisy."""
    known = [f"{visible(name)} to about ±{width:.2g}" for name, width in widths.items() if width is not None]
    unknown = [visible(name) for name, width in widths.items() if width is None]
    parts = [_first(known), f"{_first(unknown)} not at all" if unknown else ""]
    return "; ".join(part for part in parts if part)


def _first(items: Sequence[str]) -> str:
    """List the first few items, and say how many more there are."""
    return ", ".join(items[:LISTED]) + (f" and {len(items) - LISTED} more" if len(items) > LISTED else "")


def _gain_words(plan: Plan, gain: float) -> str:
    """Say how the model's error is expected to compare with guessing's."""
    if gain <= 0:
        return "The model is not expected to beat guessing: noise would outweigh what it learns."
    if plan.loss.target_kind in ("label", "class"):
        return f"The model is expected to make about {gain:.0%} fewer errors than guessing."
    if plan.loss.is_squared_error:
        return f"The model's RMSE is expected to be about {gain:.0%} below that of guessing the mean."
    return "The model is expected to beat the best constant."


def _remedies(plan: Plan, word: str) -> str:
    """Say what would make a plan's results useful; only the command line, whose words are options, has a shuffler."""
    offered = word.startswith("--") and plan.trust == "nobody" and plan.training_numbers
    shuffler = ", or trust a shuffler (--trust shuffler)" if offered else ""
    return (
        f"Use more {plan.unit}s or silos, a larger epsilon, or fewer columns (there are {plan.data.width} "
        f"features{widest_column(plan)}){shuffler}."
    )
