"""Excess risks of every method on the synthetic problems, and the check that no bound is violated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringfence.errors import RingfenceError
from ringfence.research.experiments import methods, synthetic
from ringfence.research.experiments.methods import METHODS
from ringfence.research.experiments.sweeps import by_point, mean_and_error
from ringfence.research.experiments.synthetic import PROBLEMS, Size
from ringfence.simulation.cells import Cell, CellGrid, Row, cells

EPSILONS, QUICK_EPSILONS = (0.5, 2.0, 8.0), (8.0,)
SEEDS, QUICK_SEEDS = 10, 2
DATASETS, QUICK_DATASETS = 3, 2
STANDARD_ERRORS = 3.0
"""A bound counts as violated if the measured mean is above it by more than so many standard errors."""


class BoundViolatedError(RingfenceError):
    """A measured risk is above its bound, so one of the two is wrong: find out which before using either."""


@dataclass(frozen=True)
class Measured:
    """A mean, its standard error, and the bound for it (NaN if there is none)."""

    mean: float
    error: float
    bound: float

    @property
    def is_violated(self) -> bool:
        """Whether the mean is above the bound beyond what luck explains."""
        return self.mean - STANDARD_ERRORS * self.error > self.bound


@dataclass(frozen=True)
class Excess:
    """A method's excess risks on a problem at an ε, over all data sets and seeds."""

    problem: str
    method: str
    epsilon: float
    rounds: int
    remark: str
    empirical: Measured
    population: Measured

    def of(self, risk: str) -> Measured:
        """Return the empirical or the population risk."""
        return self.population if risk == "population" else self.empirical


def wanted(quick: bool) -> CellGrid:
    """Return the cells; a trial is a data set."""
    grid = {
        "problem": PROBLEMS,
        "method": tuple(METHODS),
        "epsilon": QUICK_EPSILONS if quick else EPSILONS,
        "seed": tuple(range(QUICK_SEEDS if quick else SEEDS)),
    }
    return cells(grid, QUICK_DATASETS if quick else DATASETS)


def task(size: Size, block: list[Cell]) -> list[Row]:
    """Run all seeds of one method on one data set side by side, in single precision, and measure them in double."""
    problem, method, epsilon = str(block[0]["problem"]), str(block[0]["method"]), float(block[0]["epsilon"])
    planned = methods.planned(method, size, epsilon)
    data = synthetic.dataset(problem, size, block[0].trial)
    weights = methods.run(planned, data, [1000 * cell.trial + int(cell["seed"]) for cell in block])
    fresh = synthetic.population(problem, size).excess(weights)
    return [
        {
            "population": population,
            "empirical": empirical,
            "rounds": planned.plan.steps,
            "population_bound": planned.population,
            "empirical_bound": planned.empirical,
            "remark": planned.remark,
        }
        for population, empirical in zip(fresh, data.sample.excess(weights), strict=True)
    ]


def summary(rows: Sequence[Row]) -> list[Excess]:
    """Return means and standard errors, sorted as the grid is."""
    return [_excess(group) for group in by_point(rows, PROBLEMS, list(METHODS))]


def require_means_bounded(rows: Sequence[Row]) -> None:
    """Raise BoundViolatedError for a violated bound.

    Population bounds are about the average over data sets; empirical ones hold for each data set.
    """
    trials = sorted({int(row["trial"]) for row in rows})
    for point in summary(rows):
        _require(point, point.population, "population risk")
    for trial in trials:
        for point in summary([row for row in rows if row["trial"] == trial]):
            _require(point, point.empirical, f"empirical risk of data set {trial}")


def require_bounded(rows: Iterable[Row]) -> None:
    """Raise BoundViolatedError if an exactly computed excess is above its bound."""
    for row in rows:
        if float(row["excess"]) > float(row["bound"]) * (1 + 1e-9):
            raise BoundViolatedError(
                f"The expected excess {float(row['excess']):.4g} of {row['algorithm']} in {row['rounds']} rounds on "
                f"the {row['family']} problem of ratio {float(row['ratio']):g} is above its bound "
                f"{float(row['bound']):.4g}: one of the two is wrong."
            )


def _require(point: Excess, measured: Measured, what: str) -> None:
    if measured.is_violated:
        raise BoundViolatedError(
            f"The {what} of '{point.method}' on {point.problem} at epsilon {point.epsilon:g} is {measured.mean:.4g} ± "
            f"{measured.error:.2g}, above its bound {measured.bound:.4g}: one of the two is wrong."
        )


def _excess(rows: Sequence[Row]) -> Excess:
    first = rows[0]
    return Excess(
        problem=str(first["problem"]),
        method=str(first["method"]),
        epsilon=float(first["epsilon"]),
        rounds=int(first["rounds"]),
        remark=str(first["remark"]),
        empirical=_measured(rows, "empirical"),
        population=_measured(rows, "population"),
    )


def _measured(rows: Sequence[Row], risk: str) -> Measured:
    mean, error = mean_and_error([float(row[risk]) for row in rows])
    return Measured(mean, error, float(rows[0][f"{risk}_bound"]))
