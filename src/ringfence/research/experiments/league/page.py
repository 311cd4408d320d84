"""The league's page and figure."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ringfence.research.drawing import COLOURS, MARKERS, save
from ringfence.research.experiments.league import descent, dp_ebm, floors, flower, opacus
from ringfence.research.experiments.league.central import RIDGE
from ringfence.research.experiments.league.methods import (
    CENTRAL,
    FLOORS,
    METHODS,
    OURS,
    OURS_POOLED,
    OURS_SHUFFLED,
    STRESSED,
    WIDE,
)
from ringfence.research.experiments.league.results import LeagueResults
from ringfence.research.experiments.league.shown import (
    FIGURE,
    cell,
    draw_means,
    heading,
    mean_regrets,
    regret_in_words,
    with_error,
)
from ringfence.research.experiments.league.tables import WIDER
from ringfence.research.markdown import bullets, table

SHOWN_TABLES = (OURS, OURS_SHUFFLED, "descent", CENTRAL)
"""Methods that the figure shows table by table."""


def parts_of(results: LeagueResults, command: str) -> list[str]:
    """Return the page's parts."""
    return [
        "# The league: untuned on public tables",
        f"{len(results.references)} public tables, divided into silos, with schemas from code books and physical "
        "limits. `ringfence train` given only an epsilon, next to other methods on the same records. Every epsilon is "
        "for *replacing one record*, over one run: without trust against anyone who sees what its silo sends, with a "
        "shuffler against the server and one other silo together, with a curator against anyone who gets the model. δ "
        "is the planner's default, 1/n² and at most 10⁻⁵ for a silo of n records, and for a curator the largest of "
        "these.",
        "This command runs the cells that its folder does not hold yet, and makes this page of all "
        f"([when each ran](#when-each-cell-ran)):\n\n```sh\n{command}\n```",
        "Every cell is in [cells.csv](cells.csv).",
        *_compact(results),
        *_floors(results),
        *_mean_regrets(results),
        *_wide(results),
        *_tables(results),
        *_methods(results),
        *_agreements(results),
        *_left_out(results),
        *_days(results),
    ]


def _compact(results: LeagueResults) -> list[str]:
    """Say what privacy costs without any trusted party, in the fewest words."""
    epsilon = 1.0 if 1.0 in results.epsilons else results.epsilons[0]
    head = ["table", "records", "silos", "guessing", "**Ringfence, nobody trusted**", "Ringfence, shuffler"]
    head += ["pooled central DP", "Ringfence, pooled", "no privacy"]
    lines = []
    for own in results.references:
        points = [results.at(name, own.table, epsilon) for name in (OURS, OURS_SHUFFLED, CENTRAL, OURS_POOLED)]
        shown = ["–" if point is None else f"{point.error:.3f}" for point in points]
        shown[0] = f"**{shown[0]}**"
        lines.append(
            [own.table, f"{own.records:,}", str(own.silos), f"{own.guessing:.3f}", *shown, f"{own.not_private:.3f}"]
        )
    return [
        f"## Errors at ε = {epsilon:g}",
        "Share of wrong labels; for a number, the RMSE in units of guessing the training mean. Targets are clamped to "
        "the schema's bounds. *Pooled central DP* is AdaSSP for numbers and objective perturbation for labels, by a "
        "curator who has all records in one place; *Ringfence, pooled* is Ringfence's own method for one silo with "
        "all records.",
        table(head, lines),
    ]


def _floors(results: LeagueResults) -> list[str]:
    """Show what other models than linear ones reach without privacy."""
    lines = [
        [
            own.table,
            f"{own.guessing:.3f}",
            *(f"{error:.3f}" for error in (own.not_private, *_others(results, own.table))),
        ]
        for own in results.references
    ]
    return [
        "## Errors without privacy",
        "All records in one place, with the features that all methods get.",
        table(["table", "guessing", "linear", *(method.name for method in FLOORS.values())], lines),
    ]


def _others(results: LeagueResults, table: str) -> list[float]:
    return [results.floors[name, table] for name in FLOORS]


def _mean_regrets(results: LeagueResults) -> list[str]:
    missing = [
        f'{method.name} is missing: install {method.needs} (`pip install "ringfence[{method.extra}]"`).'
        for name, method in METHODS.items()
        if name not in results.methods
    ]
    return [
        "## Mean regret",
        regret_in_words(results),
        "Here, *without privacy* is the linear model. A method that is not linear may have a regret below 0.",
        mean_regrets(results, METHODS, lambda name: "none"),
        *([bullets(missing)] if missing else []),
        "### Against the best model without privacy",
        "The same errors; *without privacy* is now the best of the table's three models above. What remains of regret "
        "as ε grows is what curves of single columns cannot learn.",
        mean_regrets(results.against_best, METHODS, lambda name: "none"),
        f"![Regret against ε, and by table]({FIGURE}.svg)",
    ]


def _wide(results: LeagueResults) -> list[str]:
    """Compare errors with those where bounds are too wide."""
    names = [name for name in STRESSED if any(method == name for method, _, _ in results.wide)]
    if not names:
        return []
    (epsilon,) = {epsilon for _, _, epsilon in results.wide}
    lines = []
    for own in results.references:
        points = [
            (results.at(name, own.table, epsilon), results.wide.get((name, own.table, epsilon))) for name in names
        ]
        errors = [with_error((point.error, point.spread)) if point else "–" for pair in points for point in pair]
        lines.append([own.table, *errors])
    wide = replace(results, points=results.wide)
    means = [with_error(each.mean_regret(name, epsilon)) for name in names for each in (results, wide)]
    lines.append(["mean regret", *means])
    runs = max(point.runs for point in results.wide.values())
    return [
        f"## Bounds {WIDER} times too wide",
        f"Errors at ε = {epsilon:g} with the schema's bounds, and where the interval of every numeric feature is "
        f"{WIDER} times as wide: a bound of 0 stays, other intervals grow around their middle. The target's bounds "
        "stay, since errors are measured within them. The models without privacy are the same. Means over "
        f"{runs} runs.",
        table(["table", *(f"{_heading(name)}: {bounds}" for name in names for bounds in ("given", "wide"))], lines),
    ]


def _tables(results: LeagueResults) -> list[str]:
    parts = ["## Table by table", "Errors ± standard errors; regrets in parentheses."]
    for epsilon in results.epsilons:
        head = ["table", "target", "weights", *(_heading(name) for name in results.methods)]
        lines = []
        for own in results.references:
            points = [results.at(name, own.table, epsilon) for name in results.methods]
            lines.append([own.table, own.target, str(own.weights), *map(cell, points)])
        parts += [f"### ε = {epsilon:g}", table(head, lines, texts=2)]
    rounds = []
    for own in results.references:
        each = [
            [results.at(name, own.table, epsilon) for epsilon in results.epsilons] for name in (OURS, OURS_SHUFFLED)
        ]
        shown = [", ".join(str(point.rounds) for point in points if point is not None) for points in each]
        rounds.append([own.table, *shown])
    parts += [
        "### Rounds",
        "At each ε, including the survey's.",
        table(["table", _heading(OURS), _heading(OURS_SHUFFLED)], rounds),
    ]
    return parts


def _methods(results: LeagueResults) -> list[str]:
    tried = len(descent.ROUNDS) * len(descent.STEPS) * len(descent.CLIPS) * len(descent.MOMENTA)
    notes = [
        f"**Not private**: least squares on all records; logistic and softmax regression with a ridge of {RIDGE:g}/n, "
        "without which separable classes have no best model. **Guessing**: the most frequent class, or the mean, of "
        "all training records.",
        f"**Additive splines**: the same model on cubic splines of every feature that has more than two values; one "
        f"number of knots for a table ({_listed(floors.KNOTS)}) and one ridge ({_listed(floors.RIDGES)}), by "
        f"{floors.FOLDS}-fold cross-validation on training records. **Boosted trees**: scikit-learn's "
        "HistGradientBoosting with its default settings. Neither was tuned on held-out records.",
        "**Ringfence** is what `ringfence train` plans given only an epsilon, simulated; see below. Constants of its "
        "rule were compared on tables of this league while it was developed.",
        "**Clipped descent**: full batches and exact noise, with or without momentum, the mean of the last quarter of "
        f"the rounds; {tried} combinations of rounds, step and clipping norm, the best by mean test error over "
        f"{len(descent.TUNING_SEEDS)} runs, then run with fresh noise.",
        f"**Opacus**: {opacus.ROUNDS} rounds of {opacus.EPOCHS * opacus.BATCHES} steps of DP-SGD in every silo, on "
        f"Poisson batches of 1/{opacus.BATCHES} of its records, averaged by records after each round; the best of "
        f"{len(opacus.RATES) * len(opacus.CLIPS)} settings. Opacus accounts for adding or removing a record, and that "
        "epsilon is smaller for the same noise: here Ringfence's accountant sets the noise, for a replaced record "
        "over all steps.",
        "**Noisy sufficient statistics**: every silo sends Σxxᵀ and Σxy once, with Gaussian noise; least squares "
        "with the edge of the noise's spectrum as ridge, for labels too.",
        "**Private models, averaged**: every silo does by itself what the curator does below; weights are averaged by "
        "records.",
        f"**LocalDpMod**: {flower.ROUNDS} rounds. It clips a client's whole update, which a single record may move "
        "anywhere, so its noise is exact for twice the clipping norm in every round; the best of "
        f"{len(flower.CLIPS) * len(flower.LOCAL_STEPS)} settings.",
        "**AdaSSP** (Wang 2018), implemented from its description, which is for added or removed records: here with "
        "the sensitivities of a replaced one and exact Gaussian composition. **Objective perturbation** with Gaussian "
        "noise (Kifer, Smith and Thakurta 2012), implemented from its description, which is for a replaced record; "
        "several classes are one against the rest, with an equal part of ε and δ each. (diffprivlib 0.6.6, which has "
        "objective perturbation with δ = 0, cannot be imported together with scikit-learn 1.9.)",
        "**DP-EBM** (Nori, Caruana, Bu, Shen and Kulkarni 2021), InterpretML's implementation with its default "
        "settings and the schema's bounds; two classes at most. The package accounts for adding or removing a record. "
        "Replacing one moves bins' counts by √2 times as much, and sums of residuals by up to twice as much: the "
        "package is given the smaller epsilon whose noise is exact for that, about "
        f"{dp_ebm.package_epsilon(1.0, 1e-5):.2f} for 1.",
    ]
    return ["## What was compared", bullets(notes)]


def _listed(values: Sequence[float]) -> str:
    return f"{', '.join(f'{value:g}' for value in values[:-1])} or {values[-1]:g}"


def _agreements(results: LeagueResults) -> list[str]:
    if not results.agreements:
        return []
    lines = [
        [
            own.table,
            own.trust,
            f"{own.epsilon:g}",
            f"{own.simulated:.4f}",
            f"{own.gates:.4f}",
            str(own.runs),
            f"{own.chance:.2f}",
        ]
        for own in results.agreements
    ]
    least = min(own.chance for own in results.agreements)
    corrected = min(1.0, least * len(results.agreements))
    return [
        "## Simulated, and through real gates",
        "Ringfence's cells are simulated: the silos' own sums, the server's own conclusions, seeded noise. These were "
        "repeated as `ringfence train` runs them, through real gates with their own ledgers, and with a real "
        "shuffler. *Chance* is the probability, by Welch's test, that runs of one distribution differ this much.",
        table(["table", "trusts", "ε", "simulated", "through gates", "runs", "chance"], lines, texts=2),
        f"The smallest of {len(lines)}, times {len(lines)}: {corrected:.2g}.",
    ]


def _left_out(results: LeagueResults) -> list[str]:
    if not results.left_out:
        return []
    lines = []
    for own in results.left_out:
        shown = [f"{own.regrets[epsilon]:.3f} ({own.least[epsilon]:.3f})" for epsilon in results.epsilons]
        lines.append([own.table, own.rule, *shown])
    means = [sum(own.regrets[epsilon] for own in results.left_out) / len(lines) for epsilon in results.epsilons]
    lines.append(["**mean**", "", *(f"**{mean:.3f}**" for mean in means)])
    return [
        "## Leaving one table out",
        "Constants were compared on tables. For each table, the rule with the smallest mean regret on all *other* "
        "tables, and its regret on this one; in parentheses the smallest of any rule here.",
        table(["table", "rule", *(f"ε = {epsilon:g}" for epsilon in results.epsilons)], lines, texts=2),
    ]


def _days(results: LeagueResults) -> list[str]:
    """Say on which days cells ran, and how to run them again."""
    lines = []
    for name, days in results.days.items():
        shown = " to ".join(dict.fromkeys((*days[:1], *days[-1:]))) or "not noted"
        method = {**METHODS, **FLOORS}.get(name.removeprefix(WIDE))
        extras = ",".join(filter(None, ("research", method.extra if method else "")))
        lines.append([f"`{name}`", shown, f"`ringfence[{extras}]`"])
    return [
        "## When each cell ran",
        "By the column `method` of cells.csv. Cells of earlier versions noted no day: theirs is that of the commit. To "
        "run a set again, remove its rows from cells.csv, and repeat the command with a folder that has no other "
        "files of cells.",
        table(["cells", "day", "needs"], lines, texts=3),
    ]


def _heading(name: str) -> str:
    return heading(METHODS[name])


def draw(results: LeagueResults, stem: Path) -> None:
    """Draw mean regrets against ε, and regrets by table at the middle ε."""
    figure = Figure(figsize=(11.5, 7.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_means(left, results)
    _draw_tables(right, results, results.epsilons[len(results.epsilons) // 2])
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    save(figure, stem)


def _draw_means(axes: Axes, results: LeagueResults) -> None:
    def label(name: str) -> str:
        return _heading(name) + (", tuned on the test set" if METHODS[name].tuned else "")

    def look(name: str) -> dict[str, Any]:
        width, style = 2.4 if name in (OURS, OURS_SHUFFLED) else 1.2, "--" if METHODS[name].tuned else "-"
        return {"linewidth": width, "linestyle": style, **_look(name)}

    draw_means(axes, results, results.methods, label, look)
    axes.set_title("all tables", fontsize=10)


def _draw_tables(axes: Axes, results: LeagueResults, epsilon: float) -> None:
    names: Sequence[str] = [own.table for own in results.references]
    for method in (name for name in SHOWN_TABLES if name in results.methods):
        own = {place: results.at(method, name, epsilon) for place, name in enumerate(names)}
        known = {place: point for place, point in own.items() if point is not None}
        axes.errorbar(
            [point.regret for point in known.values()],
            list(known),
            xerr=[point.regret_spread for point in known.values()],
            linestyle="none",
            **_look(method),
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.axvline(1, color="0.6", linewidth=0.8, linestyle=":")
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("regret: 0 is no privacy, 1 is guessing")
    axes.set_title(f"ε = {epsilon:g}", fontsize=10)


def _look(name: str) -> dict[str, Any]:
    number = list(METHODS).index(name)
    return {"color": COLOURS[number], "marker": MARKERS[number]}
