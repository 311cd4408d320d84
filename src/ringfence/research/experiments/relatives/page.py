"""The relatives' page and figure."""

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ringfence.research.drawing import COLOURS, MARKERS, save
from ringfence.research.experiments.league.methods import CURATOR, NOBODY, OURS, OURS_POOLED
from ringfence.research.experiments.league.results import LeaguePoint, LeagueResults
from ringfence.research.experiments.league.shown import CHOSEN, FIGURE, cell, draw_means, mean_regrets, regret_in_words
from ringfence.research.experiments.relatives.methods import PUBLISHED, RACED, RELATIVES
from ringfence.research.experiments.relatives.notes import DESCRIPTIONS, SETTINGS
from ringfence.research.markdown import bullets, made_by, table

HIGHEST, LOWEST = 3.0, 0.01
"""The range of regrets that the figure shows."""
OWN = {NOBODY: OURS, CURATOR: OURS_POOLED}
"""What the relatives are raced against, by whom they trust."""


def parts_of(results: LeagueResults, command: str) -> list[str]:
    """Return the page's parts."""
    return [
        "# Published relatives of preconditioned descent",
        f"Private second-order methods on the {len(results.references)} tables of [the league](../league/index.md), "
        "each implemented from its description, next to what `ringfence train` plans given only an epsilon. Every "
        "epsilon is for *replacing one record*, over one run, by one accountant for all: exact Gaussian composition "
        "against anyone who sees what a silo sends, or, where a curator is trusted, who sees what the curator "
        "releases. δ is the planner's default, 1/n² and at most 10⁻⁵ for a silo of n records, and for a curator the "
        "largest of these.",
        "Methods that were published for a curator run twice: with a curator who has all records, and with every silo "
        "adding its own noise. Everything is simulated, including Ringfence.",
        made_by(command),
        "Every cell is in [cells.csv](cells.csv), with its settings.",
        "## Mean regret",
        regret_in_words(results),
        mean_regrets(results, RELATIVES, settings_of),
        f"![Mean regret against ε, by who is trusted]({FIGURE}.svg)",
        f"Dashed: settings chosen on the test set; dotted: published ones. Regrets above {HIGHEST:g} are cut off.",
        *_won(results),
        *_tables(results),
        "## What was taken, what was supplied, and what each proves",
        "Implemented from papers' abstracts, and from code and settings that their authors published, without copying "
        "that code.",
        bullets(DESCRIPTIONS),
        "## Settings",
        bullets(SETTINGS),
    ]


def settings_of(name: str) -> str:
    """Say where settings come from that were not chosen on the test set."""
    return "published" if name.endswith(PUBLISHED) else "none"


def _won(results: LeagueResults) -> list[str]:
    """List the cells in which a relative errs less than Ringfence does, of those that trust the same."""
    lines, cells = [], 0
    for trusted, own in OWN.items():
        for reference in results.references:
            for epsilon in results.epsilons:
                ours = results.points[own, reference.table, epsilon]
                cells += 1
                rivals = [
                    (name, results.points[name, reference.table, epsilon])
                    for name, method in RELATIVES.items()
                    if method.trusted == trusted and name != own
                ]
                name, best = min(rivals, key=lambda rival: rival[1].error)
                if _clearly_less(best, ours):
                    settings = CHOSEN if RELATIVES[name].tuned else settings_of(name)
                    shown = [f"{own_cell.error:.3f} ± {own_cell.spread:.3f}" for own_cell in (best, ours)]
                    lines.append([reference.table, trusted, f"{epsilon:g}", RELATIVES[name].name, settings, *shown])
    said = (
        f"In {len(lines)} of {cells} cells (a table, an ε, and who is trusted) the best relative errs less than "
        "Ringfence by more than two standard errors of the difference."
    )
    head = ["table", "trusts", "ε", "best relative", "settings", "its error", "Ringfence, untuned"]
    return ["## Where a relative wins", said, *([table(head, lines, texts=5)] if lines else [])]


def _clearly_less(one: LeaguePoint, other: LeaguePoint) -> bool:
    """Return whether an error is smaller by more than two standard errors of the difference."""
    return other.error - one.error > 2 * math.hypot(one.spread, other.spread)


def _tables(results: LeagueResults) -> list[str]:
    names = [reference.table for reference in results.references]
    parts = ["## Table by table", "Errors ± standard errors; regrets in parentheses."]
    for epsilon in results.epsilons:
        lines = [
            [
                RELATIVES[method].name,
                RELATIVES[method].trusted,
                CHOSEN if RELATIVES[method].tuned else settings_of(method),
                *(cell(results.at(method, name, epsilon)) for name in names),
            ]
            for method in results.methods
        ]
        parts += [f"### ε = {epsilon:g}", table(["method", "trusts", "settings", *names], lines, texts=3)]
    return parts


def draw(results: LeagueResults, stem: Path) -> None:
    """Draw mean regrets against ε, for methods that trust nobody and for a curator's."""
    figure = Figure(figsize=(11.5, 8.6), layout="constrained")
    for axes, (trusted, own) in zip(figure.subplots(1, 2, sharey=True), OWN.items(), strict=True):
        names = [name for name in results.methods if RELATIVES[name].trusted == trusted]
        draw_means(axes, results, names, _label, _look)
        axes.set_ylim(LOWEST, HIGHEST)
        axes.set_title("nobody is trusted" if own == OURS else "a curator is trusted", fontsize=10)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=8)
    save(figure, stem)


def _label(name: str) -> str:
    return RELATIVES[name].name + (", published settings" if name.endswith(PUBLISHED) else "")


def _look(name: str) -> dict[str, Any]:
    """Return one colour for each relative, whatever its settings and whom it trusts."""
    relatives = list(dict.fromkeys(relative.weights for relative, _ in RACED.values()))
    if name in OWN.values():
        return {"color": COLOURS[0], "marker": MARKERS[0], "linewidth": 2.4}
    number = 1 + relatives.index(RACED[name.removesuffix(PUBLISHED)][0].weights)
    line = ":" if name.endswith(PUBLISHED) else "--"
    return {"color": COLOURS[number], "marker": MARKERS[number], "linewidth": 1.2, "linestyle": line}
