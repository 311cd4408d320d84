"""What pages about methods on the league's tables share: how regrets and errors are written and drawn."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ringfence.research.drawing import logarithmic, plain_ticks, style
from ringfence.research.experiments.league.methods import NOBODY, Method
from ringfence.research.experiments.league.results import LeaguePoint, LeagueResults
from ringfence.research.markdown import table, write_parts

CHOSEN = "chosen on the test set"
FIGURE = "regret"


def write(parts: Sequence[str], draw: Callable[[Path], None], out: Path) -> Path:
    """Draw the figure and write the page into the folder `out`; return the page."""
    with style():
        draw(out / FIGURE)
    return write_parts(out / "index.md", parts)


def mean_regrets(results: LeagueResults, methods: Mapping[str, Method], untuned: Callable[[str], str]) -> str:
    """Return the table of mean regrets; `untuned` says where settings come from if not chosen on the test set."""
    head = ["method", "trusts", "settings", *(f"ε = {epsilon:g}" for epsilon in results.epsilons), "median rounds"]
    lines = []
    for name in results.methods:
        method = methods[name]
        own = [results.mean_regret(name, epsilon) for epsilon in results.epsilons]
        settings = CHOSEN if method.tuned else untuned(name)
        rounds = f"{results.median_rounds(name):g}"
        lines.append([method.name + _fewer(results, name), method.trusted, settings, *map(with_error, own), rounds])
    return table(head, lines, texts=3)


def _fewer(results: LeagueResults, name: str) -> str:
    """Say on how many tables a method runs, if not on all: its mean is not that of the others."""
    own, every = len({table for method, table, _ in results.points if method == name}), len(results.references)
    return "" if own == every else f" ({own} of {every} tables)"


def regret_in_words(results: LeagueResults) -> str:
    """Say what regret is, and what its means are over."""
    return (
        "*Regret* is (error − error without privacy) / (error of guessing − error without privacy): 0 is as good as "
        f"without privacy, 1 as bad as guessing. Means over all tables, each over {results.trials} runs with their "
        "own noise, ± the standard error due to noise. Settings chosen on the test set flatter a method: in practice "
        "nobody can choose that way."
    )


def heading(method: Method) -> str:
    """Name a method, and whom it trusts."""
    return method.name if method.trusted == NOBODY else f"{method.name}, trusting {method.trusted}"


def cell(point: LeaguePoint | None) -> str:
    """Write an error, its standard error and its regret."""
    return "–" if point is None else f"{with_error((point.error, point.spread))} ({point.regret:.2f})"


def with_error(value: tuple[float, float]) -> str:
    """Write a mean ± its standard error."""
    mean, spread = value
    return f"{mean:.3f} ± {spread:.3f}"


def draw_means(
    axes: Axes, results: LeagueResults, names: Sequence[str], label: Callable[[str], str], look: Callable[[str], Any]
) -> None:
    """Draw mean regrets against ε."""
    for name in names:
        own = [results.mean_regret(name, epsilon) for epsilon in results.epsilons]
        axes.errorbar(
            results.epsilons,
            [mean for mean, _ in own],
            yerr=[spread for _, spread in own],
            label=label(name),
            **look(name),
        )
    logarithmic(axes, results.epsilons)
    axes.set_yticks([0.01, 0.03, 0.1, 0.3, 1, 3, 10])
    plain_ticks(axes.yaxis)
    axes.set_xlabel("ε")
    axes.set_ylabel("mean regret")
