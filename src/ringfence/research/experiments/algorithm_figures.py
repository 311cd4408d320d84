"""The figures of the page on algorithms."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ringfence.research.drawing import COLOURS, MARKERS, bare, logarithmic, plain_ticks, save
from ringfence.research.experiments import communication, conditioning
from ringfence.research.experiments.conditioning import Floor
from ringfence.research.experiments.excess import Excess
from ringfence.research.experiments.methods import METHODS, LowerBound


def excess_risk(points: Sequence[Excess], bounds: Mapping[float, LowerBound], stem: Path) -> None:
    """Draw excess risks against ε: a column per problem, population risk above empirical risk."""
    problems = list(dict.fromkeys(point.problem for point in points))
    figure = Figure(figsize=(10, 9.5), layout="constrained")
    grid = figure.subplots(2, len(problems), sharex=True, sharey="row", squeeze=False)
    for row, risk in zip(grid, ("population", "empirical"), strict=True):
        for axes, problem in zip(row, problems, strict=True):
            _draw_risk(axes, [point for point in points if point.problem == problem], bounds, risk)
            axes.set_title(f"{problem}, {risk} risk", fontsize=10)
        row[0].set_ylabel(f"excess {risk} risk")
    for axes in grid[-1]:
        axes.set_xlabel("ε")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        title="Solid: mean of all runs, with standard errors. Dotted, in the same colour: its bound, if any.",
        title_fontsize=9,
    )
    save(figure, stem)


def _draw_risk(axes: Axes, points: Sequence[Excess], bounds: Mapping[float, LowerBound], risk: str) -> None:
    for method, colour, marker in zip(METHODS, COLOURS, MARKERS, strict=True):
        own = sorted((point for point in points if point.method == method), key=lambda point: point.epsilon)
        epsilons = [point.epsilon for point in own]
        measured = [point.of(risk) for point in own]
        axes.errorbar(
            epsilons,
            [value.mean for value in measured],
            yerr=[value.error for value in measured],
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.2,
            label=method,
        )
        if not math.isnan(measured[0].bound):
            axes.plot(epsilons, [value.bound for value in measured], ":", color=colour, linewidth=1.0)
    levels = sorted(bounds)
    axes.plot(
        levels,
        [getattr(bounds[epsilon], risk) for epsilon in levels],
        "--",
        color="0.4",
        linewidth=1.5,
        label="lower bound (order of magnitude, worst problem)",
    )
    logarithmic(axes, levels)


def conditioning_rounds(floors: Sequence[Floor], stem: Path) -> None:
    """Draw rounds to the noise floor against κ, and against βD₀² in units of the noise."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    slopes = conditioning.slopes(floors)
    drawn = list(dict.fromkeys(name for names in conditioning.ALGORITHMS.values() for name in names))
    labels = ("condition number κ", "βD₀² in units of the noise's error D₀√c")
    for axes, family, label in zip(figure.subplots(1, 2), conditioning.FAMILIES, labels, strict=True):
        for algorithm in conditioning.ALGORITHMS[family]:
            number = drawn.index(algorithm)  # one colour in both panels
            own = [floor for floor in floors if (floor.family, floor.algorithm) == (family, algorithm)]
            axes.plot(
                [floor.ratio for floor in own],
                [floor.rounds for floor in own],
                color=COLOURS[number],
                marker=MARKERS[number],
                markersize=5,
                label=f"{algorithm}: slope {slopes[family, algorithm]:.2f}",
            )
        axes.set_title(family, fontsize=10)
        axes.set_xlabel(label)
        axes.set_ylabel("rounds to within 10 % of the floor")
        logarithmic(axes, sorted({floor.ratio for floor in floors}))
        axes.legend(frameon=False)
    save(figure, stem)


def mnist_rounds(errors: Mapping[tuple[str, int], tuple[float, float]], stem: Path) -> None:
    """Draw the test error, mean and standard error, by algorithm and rounds."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for number, algorithm in enumerate(communication.ALGORITHMS):
        own = {rounds: value for (name, rounds), value in sorted(errors.items()) if name == algorithm}
        axes.errorbar(
            list(own),
            [mean for mean, _ in own.values()],
            yerr=[error for _, error in own.values()],
            color=COLOURS[number],
            marker=MARKERS[number],
            markersize=5,
            label=algorithm,
        )
    axes.set_xlabel("rounds")
    axes.set_ylabel("test error")
    axes.set_xscale("log")
    axes.set_xticks(sorted({rounds for _, rounds in errors}))
    plain_ticks(axes.xaxis)
    bare(axes)
    axes.legend(frameon=False)
    save(figure, stem)
