"""Figures, tables and cells of an experiment, from the rows of its sweep.

Private curves stand at the epsilon they truly cost, not at the one they were asked for: a recipe that adds too
little noise is drawn further right. All output depends on the set of rows only, not on the order in which a sweep
finished them, and is the same byte for byte each time, so a changed file means a changed result.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ringfence.errors import RingfenceError
from ringfence.research.drawing import bare, plain_ticks, save, style
from ringfence.research.experiments import sweeps
from ringfence.research.markdown import bullets, made_by, table, write_parts
from ringfence.simulation.cells import Value

Rows: TypeAlias = Sequence[Mapping[str, Value]]
"""A list, not an iterator: several functions here read the same rows."""
Targets: TypeAlias = Mapping[str, Mapping[float, float]]
"""Panel → epsilon → the test error to be reached."""
Measure: TypeAlias = Literal["error", "training_loss"]

MEASURES: tuple[Measure, ...] = ("error", "training_loss")
KEY = ("panel", "curve", "epsilon")
COLUMNS = (*KEY, "trial", "true_epsilon", *MEASURES, "chosen")
FILES: Mapping[Measure, str] = {"error": "error", "training_loss": "training-loss"}
LOG_FROM_RATIO = 10.0
"""From this ratio of the largest mean to the smallest, the y axis is logarithmic: else the good ones are one line."""


class FigureError(RingfenceError):
    """The rows cannot be drawn as they are: correct the experiment that made them."""


class Summary(TypedDict):
    """One point of a curve: means over its trials, and from where to where 90% of the trials lie."""

    panel: str
    curve: str
    epsilon: float
    true_epsilon: float
    error: float
    error_low: float
    error_high: float
    training_loss: float
    training_loss_low: float
    training_loss_high: float
    trials: int


@dataclass(frozen=True)
class Curve:
    """How a curve is named and drawn: with markers if private, else as a level."""

    name: str
    label: str
    colour: str
    style: Any
    marker: str = ""

    @property
    def private(self) -> bool:
        """Whether the curve has an epsilon at all."""
        return bool(self.marker)


# The colours are Okabe and Ito's, which colour-blind readers tell apart; shapes and dashes serve grey prints.
CURVES = (
    Curve("ringfence", "Ringfence, tuned on training loss (tuning not counted)", "#0072B2", "-", "o"),
    Curve("untuned", "Ringfence, planner's defaults (nothing tuned)", "#56B4E9", "-", "s"),
    Curve("paper", "the paper's recipe, at its true ε", "#D55E00", "-", "^"),
    Curve("local", "Local SGD, noise for all its steps", "#009E73", "-", "v"),
    Curve("local non-private", "Local SGD, not private", "#009E73", (0, (6, 2))),
    Curve("minibatch non-private", "minibatch SGD, not private", "#CC79A7", (0, (3, 2))),
    Curve("optimum", "optimum, not private", "#000000", (0, (1, 2))),
)
_ORDER = {curve.name: position for position, curve in enumerate(CURVES)}
_BY_NAME = {curve.name: curve for curve in CURVES}


def summary(rows: Rows) -> list[Summary]:
    """Return means and 5% to 95% percentiles over the trials of each panel, curve and epsilon.

    Sorted by panel ("M = 9" before "M = 25"), then as in CURVES, then by epsilon. Raises FigureError if there
    are no rows, a column is missing, or a curve is unknown.
    """
    ordered = _ordered(rows)  # a sum's last digit depends on the order
    error, loss, truth = (sweeps.summarise(ordered, by=KEY, value=value) for value in (*MEASURES, "true_epsilon"))
    points = [
        Summary(
            panel=str(at_error["panel"]),
            curve=str(at_error["curve"]),
            epsilon=float(at_error["epsilon"]),
            true_epsilon=float(at_truth["mean"]),
            error=float(at_error["mean"]),
            error_low=float(at_error["percentile_5"]),
            error_high=float(at_error["percentile_95"]),
            training_loss=float(at_loss["mean"]),
            training_loss_low=float(at_loss["percentile_5"]),
            training_loss_high=float(at_loss["percentile_95"]),
            trials=int(at_error["count"]),
        )
        for at_error, at_loss, at_truth in zip(error, loss, truth, strict=True)
    ]
    return sorted(points, key=lambda point: _position(point["panel"], point["curve"], point["epsilon"]))


def draw(
    rows: Rows, out: Path, *, title: str, error_label: str, targets: Targets | None
) -> tuple[Path, Path, Path, Path]:
    """Write error.png, error.svg, training-loss.png and training-loss.svg into the folder `out`; return them.

    Curves without rows are left out, and so is a point whose mean is not finite.
    """
    points = summary(rows)
    out.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with style():
        for measure, label in zip(MEASURES, (error_label, "training loss"), strict=True):
            marks = targets if measure == "error" else None
            paths += save(_figure(points, measure, title, label, marks or {}), out / FILES[measure])
    error_png, error_svg, loss_png, loss_svg = paths
    return error_png, error_svg, loss_png, loss_svg


def write_page(
    rows: Rows,
    out: Path,
    *,
    title: str,
    command: str,
    setting: str,
    targets: Targets | None,
    notes: Sequence[str],
) -> Path:
    """Write index.md into the folder `out`: setting, command, figures, tables, notes; return its path.

    It refers to the files that `draw` and `write_cells` put into the same folder.
    """
    points = summary(rows)
    parts = [
        f"# {title}",
        setting.strip(),
        made_by(command.strip()),
        f"![Test error against ε]({FILES['error']}.svg)",
        f"![Training loss against ε]({FILES['training_loss']}.svg)",
        _reading_aid(points),
    ]
    for panel in _panels(points):
        parts += _panel_section([p for p in points if p["panel"] == panel], panel, (targets or {}).get(panel, {}))
    if notes:
        parts += ["## Notes", bullets(notes)]
    out.mkdir(parents=True, exist_ok=True)
    return write_parts(out / "index.md", parts)


def write_cells(rows: Rows, out: Path) -> Path:
    """Write every row, at full precision, into cells.csv in the folder `out`; return its path."""
    ordered = _ordered(rows)
    names = [*COLUMNS, *sorted({name for row in ordered for name in row} - set(COLUMNS))]
    out.mkdir(parents=True, exist_ok=True)
    return sweeps.write_cells(ordered, out / "cells.csv", names)


def _ordered(rows: Rows) -> list[Mapping[str, Value]]:
    """Check the rows and sort them: a sweep's rows stand in the order in which its workers finished."""
    if not rows:
        raise FigureError("There are no rows to report. Run the experiment first.")
    for row in rows:
        if missing := set(COLUMNS) - row.keys():
            raise FigureError(f"A row has no {', '.join(sorted(missing))}. Read the rows of one of the experiments.")
        if row["curve"] not in _ORDER:
            raise FigureError(f"There is no curve '{row['curve']}'. Use one of {', '.join(_ORDER)}.")
    return sorted(
        rows,
        key=lambda row: (*_position(str(row["panel"]), str(row["curve"]), float(row["epsilon"])), int(row["trial"])),
    )


def _position(panel: str, curve: str, epsilon: float) -> tuple[Any, ...]:
    return _natural(panel), _ORDER[curve], epsilon


def _natural(text: str) -> list[tuple[bool, float, str]]:
    """A key that sorts numbers within text by their value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(True, float(part), "") if index % 2 else (False, 0.0, part) for index, part in enumerate(parts)]


def _panels(points: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(point["panel"] for point in points))


def _figure(points: Sequence[Summary], measure: Measure, title: str, label: str, targets: Targets) -> Figure:
    """One axes per panel side by side, with one legend below them all."""
    panels = _panels(points)
    figure = Figure(figsize=(max(7.2, 3.4 * len(panels)), 5.2), layout="constrained")
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    handles: dict[str, Artist] = {}
    for axes, panel in zip(row, panels, strict=True):
        handles |= _draw_panel(axes, [point for point in points if point["panel"] == panel], measure)
        handles |= _draw_targets(axes, targets.get(panel, {}))
        axes.set_title(panel, fontsize=10)
    _shape_axes(row[0], points, measure)
    for axes in row:
        bare(axes)
        axes.set_xlabel("true ε")
    row[0].set_ylabel(label)
    figure.suptitle(title, fontsize=11)
    names = [name for name in (*(curve.label for curve in CURVES), "target") if name in handles]
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=2,
        frameon=False,
        title="Points are means over the trials; bars span the 5th to the 95th percentile.",
        title_fontsize=9,
    )
    return figure


def _draw_panel(axes: Axes, points: Sequence[Summary], measure: Measure) -> dict[str, Artist]:
    """Draw a panel's curves, and return them by their label."""
    handles: dict[str, Artist] = {}
    for curve in CURVES:
        series = [point for point in points if point["curve"] == curve.name and math.isfinite(point[measure])]
        if curve.private:
            series = [point for point in series if math.isfinite(point["true_epsilon"])]
        if series:
            handles[curve.label] = _draw_curve(axes, curve, series, measure)
    return handles


def _draw_curve(axes: Axes, curve: Curve, series: Sequence[Summary], measure: Measure) -> Artist:
    if not curve.private:
        return axes.axhline(series[0][measure], color=curve.colour, linestyle=curve.style, linewidth=1.3, zorder=2)
    epsilons = [point["true_epsilon"] for point in series]
    # Not errorbar(): the mean of a few trials may lie outside their percentiles, which it refuses.
    low, high = zip(*(_interval(point, measure) for point in series), strict=True)
    axes.vlines(epsilons, low, high, color=curve.colour, linewidth=1.3, zorder=3)
    (line,) = axes.plot(
        epsilons,
        [point[measure] for point in series],
        color=curve.colour,
        linestyle=curve.style,
        marker=curve.marker,
        markersize=4,
        linewidth=1.3,
        zorder=4 - 0.1 * _ORDER[curve.name],
    )
    return line


def _draw_targets(axes: Axes, targets: Mapping[float, float]) -> dict[str, Artist]:
    if not targets:
        return {}
    epsilons = sorted(targets)
    (line,) = axes.plot(
        epsilons,
        [targets[epsilon] for epsilon in epsilons],
        linestyle="none",
        marker="D",
        markersize=6,
        markerfacecolor="none",
        markeredgecolor="black",
        markeredgewidth=1.0,
        zorder=5,
    )
    return {"target": line}


def _shape_axes(axes: Axes, points: Sequence[Summary], measure: Measure) -> None:
    """Set the scales, which all panels share, with plain numbers as ticks."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    plain_ticks(axes.xaxis)
    means = [point[measure] for point in points if math.isfinite(point[measure])]
    if means and min(means) > 0 and max(means) > LOG_FROM_RATIO * min(means):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        plain_ticks(axes.yaxis)


def _interval(point: Summary, measure: Measure) -> tuple[float, float]:
    if measure == "error":
        return point["error_low"], point["error_high"]
    return point["training_loss_low"], point["training_loss_high"]


def _reading_aid(points: Sequence[Summary]) -> str:
    trials = sorted({point["trials"] for point in points})
    count = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    return (
        f"Numbers are mean test errors over {count} trials; brackets show the 5th and 95th percentiles of the trials. "
        "Deviation is Ringfence (tuned) minus target: below 0 is better than the target. Figures show each curve at "
        "its true ε, tables by the requested ε. Epsilon is that of one training run, for each record, against anyone "
        "who sees everything that its silo sends in it; exactly composed under replacing one record, and true for "
        "every private curve. Every trial is in [cells.csv](cells.csv)."
    )


def _panel_section(points: Sequence[Summary], panel: str, targets: Mapping[float, float]) -> list[str]:
    """A panel's heading, its table, and below it the numbers that have no epsilon."""
    private: dict[float, dict[str, Summary]] = {epsilon: {} for epsilon in targets}
    for point in points:
        if _BY_NAME[point["curve"]].private:
            private.setdefault(point["epsilon"], {})[point["curve"]] = point
    parts = [f"## {panel}"]
    if private:
        parts.append(_table([_cells(epsilon, private[epsilon], targets.get(epsilon)) for epsilon in sorted(private)]))
    levels = [point for point in points if not _BY_NAME[point["curve"]].private]
    if levels:
        parts.append(bullets(f"{_BY_NAME[p['curve']].label}: {_with_interval(p)}" for p in levels))
    return parts


def _cells(epsilon: float, at: Mapping[str, Summary], target: float | None) -> dict[str, str]:
    """One line of a panel's table; what was not run is empty."""
    tuned, untuned, paper, local = (at.get(name) for name in ("ringfence", "untuned", "paper", "local"))
    return {
        "ε": f"{epsilon:g}",
        "Ringfence, tuned: mean [5 %, 95 %]": _with_interval(tuned) if tuned else "",
        "target": "" if target is None else _number(target),
        "deviation": "" if target is None or not tuned else _deviation(tuned["error"], target),
        "Ringfence, untuned": _number(untuned["error"]) if untuned else "",
        "paper's recipe (true ε)": f"{_number(paper['error'])} ({paper['true_epsilon']:.3g})" if paper else "",
        "Local SGD": _number(local["error"]) if local else "",
    }


def _table(lines: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table without the columns that are empty throughout."""
    names = [name for name in lines[0] if any(line[name] for line in lines)]
    return table(names, [[line[name] or "–" for name in names] for line in lines], texts=0)


def _with_interval(point: Summary) -> str:
    return f"{_number(point['error'])} [{_number(point['error_low'])}, {_number(point['error_high'])}]"


def _deviation(error: float, target: float) -> str:
    relative = f" ({100 * (error - target) / target:+.1f} %)" if target else ""
    return f"{error - target:+.4f}{relative}"


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"
