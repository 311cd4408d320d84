"""The figures of the page on algorithms."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ringfence.experiments import communication, conditioning
from ringfence.experiments.conditioning import Floor
from ringfence.experiments.excess import Excess
from ringfence.experiments.methods import METHODS, Bound

# Okabe and Ito's colours, which colour-blind readers tell apart; markers serve grey prints.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F", "#8B4513", "#6A3D9A")
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "*")


@contextmanager
def style() -> Iterator[None]:
    """Draw the same files whatever the reader's own settings are, and change none of them."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 10, "legend.fontsize": 9, "svg.hashsalt": "ringfence"})
        yield


def save(figure: Figure, stem: Path) -> None:
    """Write PNG and SVG, without the date and the version that matplotlib would write into them."""
    figure.savefig(stem.with_suffix(".png"), dpi=150, metadata={"Software": None})
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None, "Creator": None})


def excess_risk(points: Sequence[Excess], bounds: Mapping[float, Bound], stem: Path) -> None:
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
        title="Solid: mean of all runs, with standard errors. Dotted, in the same colour: its certificate, if any.",
        title_fontsize=9,
    )
    save(figure, stem)


def _draw_risk(axes: Axes, points: Sequence[Excess], bounds: Mapping[float, Bound], risk: str) -> None:
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
        if not math.isnan(measured[0].certificate):
            axes.plot(epsilons, [value.certificate for value in measured], ":", color=colour, linewidth=1.0)
    levels = sorted(bounds)
    axes.plot(
        levels,
        [getattr(bounds[epsilon], risk) for epsilon in levels],
        "--",
        color="0.4",
        linewidth=1.5,
        label="lower bound (order of magnitude, worst problem)",
    )
    _logarithmic(axes, levels)


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
        _logarithmic(axes, sorted({floor.ratio for floor in floors}))
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
    _plain(axes)
    axes.legend(frameon=False)
    save(figure, stem)


def _logarithmic(axes: Axes, ticks: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
