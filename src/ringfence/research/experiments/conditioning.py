"""Rounds that an ill-conditioned problem takes, exactly: on quadratics the expectation over the noise is a recursion.

F(w) = ½ Σ_j h_j (w_j − w*_j)², with β = 1 and D₀ = ‖w₀ − w*‖ = 1. All rounds share one privacy budget, so the
variance of a round's noise is V² = cR for a run that is planned for R rounds. The server's own `query` and `step` are
linear in the state and the gradient; applied to unit vectors they give the matrices of the recursion, and with them
bias and variance of the output. Nothing is sampled.

Strongly convex: h is evenly spaced in logarithms from 1/κ to 1, the schedules know μ = 1/κ, and c = s·μ²D₀²: noise
moves the solution by the same share of D₀ whatever κ is. Convex: h reaches down to 10⁻⁴, the schedules assume μ = 0,
and βD₀² is `ratio` times D₀√c, the order of the error that noise causes.

Preconditioned descent knows H's eigenvectors, and its eigenvalues to a factor of 2: h_j/ĥ_j = 2^sin(j). It asks
along A = Ĥ^−½. A clip in proportion to gradients' typical length, and with it the noise's variance, is
tr(AHAᵀ)/tr(H) times that along the columns (docs/algorithms.md, "Why these axes").
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.protocol import FloatArray, MatrixAxes, Preconditioned, Squared
from ringfence.server.algorithms import accelerated, minibatch, preconditioned
from ringfence.server.algorithms.survey import STEPS, averaged_iterates, descent_errors
from ringfence.simulation.cells import Cell, Row, Value, cells

STRONG, CONVEX = "strongly convex", "convex"
FAMILIES = (STRONG, CONVEX)
MINIBATCH, MINIBATCH_BY_VARIANCE = "minibatch SGD", "minibatch SGD, step by variance only"
ACCELERATED, STAGES, PRECONDITIONED = "accelerated", "multi-stage", "preconditioned"
ALGORITHMS = {
    STRONG: (MINIBATCH, ACCELERATED, STAGES, PRECONDITIONED),
    CONVEX: (MINIBATCH, MINIBATCH_BY_VARIANCE, ACCELERATED),
}

RATIOS, QUICK_RATIOS = (10.0, 100.0, 1000.0), (10.0, 40.0)
DIMENSION = 50
NOISE = 1e-3
"""s: c in units of μ²D₀², strongly convex."""
FLATTEST = 1e-4
MISJUDGED = 2.0
"""The largest factor by which eigenvalues are taken too large or too small where they are known."""
REACHED = 1.1
"""A run has reached its floor when its excess is at most this many times the least over all numbers of rounds."""
FINENESS = 1.05
"""Ratio of neighbouring numbers of rounds that are tried."""


@dataclass(frozen=True)
class Quadratic:
    """A problem of the module's text: eigenvalues h, c, and the strong convexity that the schedules assume."""

    eigenvalues: FloatArray
    noise: float
    convexity: float

    def variance(self, rounds: int) -> float:
        """V² of one of so many rounds."""
        return self.noise * rounds

    def whitened(self) -> FloatArray:
        """Return the curvatures along the approximately whitened axes."""
        return np.asarray(MISJUDGED ** np.sin(np.arange(len(self.eigenvalues))))

    def whitened_variance(self, rounds: int) -> float:
        """V² along them: what it is along the columns, times the square of how much longer gradients are."""
        return self.variance(rounds) * float(np.sum(self.whitened()) / np.sum(self.eigenvalues))


def problem(family: str, ratio: float) -> Quadratic:
    """Return the problem with that κ, or that βD₀² in units of its noise."""
    if family == STRONG:
        return Quadratic(np.geomspace(1 / ratio, 1.0, DIMENSION), NOISE / ratio**2, 1 / ratio)
    return Quadratic(np.geomspace(FLATTEST, 1.0, DIMENSION), 1 / ratio**2, 0.0)


def wanted(quick: bool) -> Iterator[Cell]:
    """Return the cells: for every problem and algorithm, numbers of rounds up to well beyond its floor."""
    grids = []
    for family in FAMILIES:
        for ratio in QUICK_RATIOS if quick else RATIOS:
            for algorithm in ALGORITHMS[family]:
                grid: dict[str, Sequence[Value]] = {
                    "family": (family,),
                    "ratio": (ratio,),
                    "algorithm": (algorithm,),
                    "rounds": _ladder(_most(family, algorithm, ratio), 1.3 if quick else FINENESS),
                }
                grids.append(cells(grid, 1))
    return chain.from_iterable(grids)


def task(block: list[Cell]) -> list[Row]:
    """Compute the expected excess of every cell: NaN where the schedule needs more rounds than there are."""
    rows: list[Row] = []
    for cell in block:
        quadratic = problem(str(cell["family"]), float(cell["ratio"]))
        algorithm, rounds = str(cell["algorithm"]), int(cell["rounds"])
        try:
            bias, variance = excess(quadratic, algorithm, rounds)
            bound = loss_bound(quadratic, algorithm, rounds)
        except PlanError:
            bias = variance = bound = math.nan
        rows.append({"excess": bias + variance, "bias": bias, "variance": variance, "bound": bound})
    return rows


def loss_bound(quadratic: Quadratic, algorithm: str, rounds: int) -> float:
    """Return the bound on the excess; NaN for minibatch SGD, whose needs gradients that are bounded everywhere."""
    shape = {"distance": 1.0, "rounds": rounds, "variance": quadratic.variance(rounds)}
    if algorithm == STAGES:
        return _stages(quadratic, rounds).bound
    if algorithm != ACCELERATED:
        return math.nan
    if quadratic.convexity:
        mu = quadratic.convexity
        return loss_bounds.accelerated_strong(smoothness=1.0, strong_convexity=mu, **shape)  # type: ignore[arg-type]
    return loss_bounds.accelerated_best(smoothness=1.0, **shape)  # type: ignore[arg-type]


def excess(quadratic: Quadratic, algorithm: str, rounds: int) -> tuple[float, float]:
    """Return what the start and what the noise contribute to the expected excess after so many rounds."""
    if algorithm == PRECONDITIONED:
        return _preconditioned(quadratic, rounds)[1:]
    own = settings(quadratic, algorithm, rounds)
    if isinstance(own, minibatch.Settings):
        mean, spread = _minibatch(quadratic, own, rounds)
    else:
        mean, spread = _accelerated(quadratic, own)
    h = quadratic.eigenvalues
    start = 1 / len(h)  # the square of every coordinate of w₀ − w*, which has norm 1
    noise = quadratic.variance(rounds) / len(h)
    return float(np.sum(h * mean**2) * start / 2), float(np.sum(h * spread) * noise / 2)


def settings(quadratic: Quadratic, algorithm: str, rounds: int) -> minibatch.Settings | accelerated.Settings:
    """Return the schedule that theory has for so many rounds.

    Minibatch SGD: P8 with a strong convexity, P6' without; L = βD₀ unless only the variance is counted. Accelerated:
    υ = β with a strong convexity, else the υ with the least bound.
    """
    mu, variance = quadratic.convexity, quadratic.variance(rounds)
    if algorithm in (MINIBATCH, MINIBATCH_BY_VARIANCE):
        counts_gradient = algorithm == MINIBATCH
        moment = variance + (1.0 if counts_gradient else 0.0)
        if mu:
            step = loss_bounds.minibatch_strong_step(
                distance=1.0, smoothness=1.0, strong_convexity=mu, rounds=rounds, second_moment=moment
            )
        else:
            step = min(1.0 if counts_gradient else 0.5, 1 / math.sqrt(rounds * moment))
        return minibatch.Settings(step, 0.0, 0.0, 1 / (1 - mu * step), mu)
    if algorithm == STAGES:
        stages = [(stage.rounds, stage.upsilon) for stage in _stages(quadratic, rounds).stages]
    elif mu:
        stages = [(rounds, 1.0)]
    else:
        upsilon = loss_bounds.accelerated_upsilon(smoothness=1.0, distance=1.0, rounds=rounds, variance=variance)
        stages = [(rounds, upsilon)]
    zeros = np.zeros(len(stages))
    return accelerated.Settings(
        stage=np.repeat(np.arange(len(stages)), [length for length, _ in stages]),
        upsilon=np.array([upsilon for _, upsilon in stages]),
        penalty=zeros,
        recentre=zeros,
        ridge=mu,
        average=0.0,
        tail=math.inf,
    )


def preconditioned_settings(quadratic: Quadratic, rounds: int) -> preconditioned.Settings:
    """Return the axes, and the step with the least expected excess among those that a survey compares."""
    axes = MatrixAxes(np.diag((quadratic.whitened() / quadratic.eigenvalues) ** 0.5))
    step, _, _ = _preconditioned(quadratic, rounds)
    skip = rounds - averaged_iterates(Squared(), rounds)
    return preconditioned.Settings(axes, step, Preconditioned().momentum, 0.0, skip)


def _preconditioned(quadratic: Quadratic, rounds: int) -> tuple[float, float, float]:
    """Return the best step, and what start and noise contribute to the excess with it."""
    h, q = quadratic.eigenvalues, quadratic.whitened()
    noise = quadratic.whitened_variance(rounds) / len(h)
    found = []
    for step in STEPS:
        left, gathered = descent_errors(
            q, step, Preconditioned().momentum, rounds, averaged_iterates(Squared(), rounds)
        )
        found.append((step, float(np.mean(h * left**2)) / 2, float(np.sum(q * gathered**2)) * noise / 2))
    return min(found, key=lambda own: own[1] + own[2])


def _minibatch(quadratic: Quadratic, settings: minibatch.Settings, R: int) -> tuple[FloatArray, FloatArray]:
    """Return the output's mean for a start of 1, and its variance for noise of variance 1, in every coordinate.

    After the first round every round has the same matrix, so R of them take log R products.
    """
    h, mu = quadratic.eigenvalues, quadratic.convexity
    one, none = np.ones_like(h), np.zeros_like(h)
    # Rows: a state with weights 1, one with total 1, and one that is 0 and hears noise of 1.
    state = minibatch.State(np.stack([one, none, none]), np.zeros((3, len(h))), np.stack([none, one, none]), 0.0, 0.0)
    gradient = (h - mu) * minibatch.query_weights(settings, state, 1) + np.stack([none, none, one])
    after = minibatch.step(settings, lambda point, _: point, state, gradient, 1)
    matrix, noise = _unstacked(after.weights, after.total)
    power, spread = _compose(matrix, noise[:, None] * noise[None], R)
    rate = math.log(settings.growth)
    mass = math.expm1(-R * rate) / math.expm1(-rate) if rate else float(R)
    return power[1, 0] / mass, spread[1, 1] / mass**2


def _compose(matrix: FloatArray, spread: FloatArray, rounds: int) -> tuple[FloatArray, FloatArray]:
    """Return A^R and Σ_{r<R} A^r S (A^r)ᵀ, by doubling."""
    power: FloatArray = np.broadcast_to(np.eye(2)[:, :, None], matrix.shape)
    total = np.zeros_like(spread)
    for bit in f"{rounds:b}":
        total = total + _conjugated(power, total)
        power = _product(power, power)
        if bit == "1":
            total = _conjugated(matrix, total) + spread
            power = _product(matrix, power)
    return power, total


def _stages(quadratic: Quadratic, R: int) -> loss_bounds.MultiStageBound:
    return loss_bounds.multistage_plan(
        smoothness=1.0,
        strong_convexity=quadratic.convexity,
        gap=0.5,  # βD₀²/2
        rounds=R,
        variance=quadratic.variance(R),
    )


def _accelerated(quadratic: Quadratic, settings: accelerated.Settings) -> tuple[FloatArray, FloatArray]:
    """Return the output's mean for a start of 1, and its variance for noise of variance 1, in every coordinate."""
    h, mu = quadratic.eigenvalues, quadratic.convexity
    one, none = np.ones_like(h), np.zeros_like(h)
    # Rows: a state with iterate 1, one with model 1, and one that is 0 and gets noise of 1.
    state = accelerated.init(np.zeros((3, len(h))))
    points, models, unit_noise = (np.stack(rows) for rows in ([one, none, none], [none, one, none], [none, none, one]))
    mean, spread = np.ones((2, len(h))), np.zeros((2, 2, len(h)))
    for round in range(len(settings.stage)):
        state = state._replace(iterate=points, model=models)
        gradient = (h - mu) * accelerated.query_weights(settings, state, round) + unit_noise
        state = accelerated.step(settings, lambda point, _: point, state, gradient, round)
        matrix, noise = _unstacked(state.iterate, state.model)
        mean = matrix[:, 0] * mean[0] + matrix[:, 1] * mean[1]
        spread = _conjugated(matrix, spread) + noise[:, None] * noise[None]
    return mean[1], spread[1, 1]


def _unstacked(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a round's 2×2 matrices, and its response to noise, from what the three rows have become."""
    together = np.stack([first, second])
    return together[:, :2], together[:, 2]


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    result: FloatArray = left[:, 0, None] * right[None, 0] + left[:, 1, None] * right[None, 1]
    return result


def _conjugated(matrix: FloatArray, spread: FloatArray) -> FloatArray:
    """Return A S Aᵀ in every coordinate."""
    return _product(_product(matrix, spread), matrix.transpose(1, 0, 2))


def _most(family: str, algorithm: str, ratio: float) -> int:
    """Return a number of rounds well beyond the floor."""
    if algorithm == PRECONDITIONED:
        return 200
    if algorithm == MINIBATCH:
        return int(200 * ratio) if family == STRONG else int(100 * ratio**2)
    return int(1000 * ratio) if algorithm == MINIBATCH_BY_VARIANCE else max(1000, int(100 * math.sqrt(ratio)))


def _ladder(most: int, fineness: float) -> tuple[int, ...]:
    steps = {most}
    rounds = 1.0
    while rounds < most:
        steps.add(round(rounds))
        rounds *= fineness
    return tuple(sorted(steps))


@dataclass(frozen=True)
class Floor:
    """The least excess of an algorithm over all numbers of rounds, and the least rounds that come close to it.

    `rounds_to_highest` is the same for the highest floor of the problem's algorithms: a goal that all of them reach.
    """

    family: str
    algorithm: str
    ratio: float
    excess: float
    rounds: int
    rounds_to_highest: int


def floors(rows: Sequence[Row]) -> list[Floor]:
    """Return every problem's and algorithm's floor."""
    groups: dict[tuple[str, str, float], list[tuple[int, float]]] = {}
    for row in rows:
        if not math.isnan(value := float(row["excess"])):
            key = (str(row["family"]), str(row["algorithm"]), float(row["ratio"]))
            groups.setdefault(key, []).append((int(row["rounds"]), value))
    lowest = {key: min(value for _, value in points) for key, points in groups.items()}
    found = []
    for (family, algorithm, ratio), points in groups.items():
        best = lowest[family, algorithm, ratio]
        highest = max(value for key, value in lowest.items() if (key[0], key[2]) == (family, ratio))
        least, common = (min(rounds for rounds, value in points if value <= REACHED * goal) for goal in (best, highest))
        found.append(Floor(family, algorithm, ratio, best, least, common))
    return sorted(found, key=lambda f: (FAMILIES.index(f.family), ALGORITHMS[f.family].index(f.algorithm), f.ratio))


def slopes(found: Sequence[Floor]) -> dict[tuple[str, str], float]:
    """Return, per family and algorithm, the slope of log rounds against log ratio: least squares over all ratios."""
    groups: dict[tuple[str, str], list[Floor]] = {}
    for floor in found:
        groups.setdefault((floor.family, floor.algorithm), []).append(floor)
    return {
        key: float(np.polyfit(np.log([f.ratio for f in own]), np.log([f.rounds for f in own]), 1)[0])
        for key, own in groups.items()
        if len(own) > 1
    }
