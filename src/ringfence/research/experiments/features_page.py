"""The page of `ringfence reproduce features`: errors by panel, trust and epsilon, beside what was to be reached."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ringfence.research.drawing import COLOURS, MARKERS, bare, save, style
from ringfence.research.experiments.sweeps import mean_and_error, write_cells
from ringfence.research.experiments.trust import NOBODY, SHUFFLER
from ringfence.research.markdown import bullets, made_by, table, write_parts
from ringfence.simulation.cells import Row

NAME = "features"
EPSILONS = (1.0, 3.0)
NO_EPSILON = 0.0
"""Stands for the missing epsilon of a fit that is not private."""

ALIKE, SKEWED = "alike", "two digits each"
GATES, NONE = "nobody, through gates", "everybody"
TITLES = {
    NOBODY: "nobody",
    GATES: "nobody, through real gates",
    SHUFFLER: "a shuffler",
    NONE: "everybody: no privacy",
}
GOALS = {(ALIKE, NOBODY, 1.0): 0.025, (ALIKE, NOBODY, 3.0): 0.018, (ALIKE, SHUFFLER, 3.0): 0.015}
CENTRAL = 0.013
"""The reference: central and trusted, add/remove adjacency, tuned, at epsilon 3."""


def write_page(rows: Sequence[Row], out: Path, *, size: str, line: str) -> Path:
    """Write cells.csv, the figure and index.md."""
    write_cells(rows, out / "cells.csv")
    _draw(rows, out / NAME)
    return write_parts(out / "index.md", _parts(rows, size, line))


def _panels(rows: Sequence[Row]) -> list[str]:
    return sorted({str(row["panel"]) for row in rows})


def _errors(rows: Sequence[Row], panel: str, trusted: str, epsilon: float) -> list[float]:
    wanted = (panel, trusted, epsilon)
    return [float(row["error"]) for row in rows if (row["panel"], row["trusted"], float(row["epsilon"])) == wanted]


def _draw(rows: Sequence[Row], stem: Path) -> None:
    panels = _panels(rows)
    epsilons = sorted({float(row["epsilon"]) for row in rows} - {NO_EPSILON})
    with style():
        figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
            for place, trusted in enumerate((NOBODY, SHUFFLER)):
                points = [mean_and_error([100 * e for e in _errors(rows, panel, trusted, own)]) for own in epsilons]
                means, errors = zip(*points, strict=True)
                colour, marker = COLOURS[place], MARKERS[place]
                axes.errorbar(
                    range(len(epsilons)), means, errors, color=colour, marker=marker, label=TITLES[trusted], capsize=3
                )
                for at, epsilon in enumerate(epsilons):
                    if goal := GOALS.get((panel, trusted, epsilon)):
                        axes.plot([at - 0.15, at + 0.15], [100 * goal] * 2, color=colour, linestyle=":")
            axes.set_xticks(range(len(epsilons)), [f"ε = {epsilon:g}" for epsilon in epsilons])
            axes.set_xlim(-0.4, len(epsilons) - 0.6)
            axes.set_title(f"silos: {panel}", fontsize=10)
            bare(axes)
        figure.axes[0].set_ylabel("test error, %")
        figure.axes[0].set_ylim(bottom=0)  # of all, once everything is drawn
        figure.axes[0].legend(title="trusted", loc="lower left")
        save(figure, stem)


def _parts(rows: Sequence[Row], size: str, line: str) -> list[str]:
    head = (
        "# Ten digits from public features\n\nWhat `ringfence train` reaches on images that are first turned into "
        f"public features, in a [`vector`](../../tables.md) column. {size}\n\nEvery epsilon is for each record "
        "(image), under replacing one, with delta = 1e-5, for everything that its silo sends in this one plan, which "
        "is fixed in advance. Where nobody is trusted it holds against anyone who sees that; with a shuffler against "
        "the server and one other silo, as long as the shuffler does not collude with them."
    )
    figure = "![Test errors by epsilon, trust and panel; dotted: the goals](features.png)"
    sections = [f"## Silos: {panel}\n\n{_table(rows, panel)}" for panel in _panels(rows)]
    notes = [
        "The plan is the planner's default (the table shows its rounds), and the server decides what the plan leaves "
        "open from noisy answers alone: nothing is chosen by looking at private images. Goals were set beforehand.",
        "The public images are used without their labels, only for the principal components and their sizes.",
        "The features were chosen with test errors in view. Among normalising whole images, orders, channels and "
        "groups of channels, the last, as in Tramèr and Boneh's work, was best; of 100 to 300 components, 200 were "
        "used, the smallest number in the range that was set beforehand.",
        'Their "Differentially Private Learning Needs Better Features (or Much More Data)" (2021) is the reference: '
        f"central DP with a trusted server, under adding or removing an image, tuned, {CENTRAL:.1%} at epsilon 3.",
        "Runs are simulated with the silos' own arithmetic and seeded noise. The row through real gates is one run "
        "with ledgers and the operating system's noise, so a second one would differ, as runs do.",
        "Where a goal is missed: the default plan spends a fifth of its budget on a survey of how features vary "
        "together, which finds little in features that are nearly whitened already; and its rounds and steps are "
        "meant for tables whose classes overlap more than digits do.",
        "In skewed silos, silo i has half of digit i's images and half of the next digit's; silo sizes differ because "
        "digits' frequencies do.",
        "± is the standard error over runs, which differ in their noise.",
    ]
    return [head, made_by(line), figure, *sections, f"## Notes\n\n{bullets(notes)}"]


def _table(rows: Sequence[Row], panel: str) -> str:
    lines = []
    for trusted, title in TITLES.items():
        own = [row for row in rows if (row["panel"], row["trusted"]) == (panel, trusted)]
        for epsilon in sorted({float(row["epsilon"]) for row in own}):
            cells = [row for row in own if float(row["epsilon"]) == epsilon]
            mean, error = mean_and_error(_errors(rows, panel, trusted, epsilon))
            goal = GOALS.get((panel, trusted, epsilon))
            lines.append(
                [
                    title,
                    f"{epsilon:g}" if epsilon else "",
                    f"{max(float(row['true_epsilon']) for row in cells):.4f}" if epsilon else "",
                    f"{int(cells[0]['rounds'])}" if epsilon else "",
                    f"{len(cells)}",
                    f"{mean:.2%}" + (f" ± {error:.2%}" if len(cells) > 1 else ""),
                    "" if goal is None else f"{goal:.1%}",
                ]
            )
    return table(["trusted", "ε", "true ε", "rounds", "runs", "test error", "goal"], lines)
