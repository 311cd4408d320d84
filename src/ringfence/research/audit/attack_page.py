"""The attacks as a figure and a page that a privacy officer can read."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ringfence.protocol import FloatArray
from ringfence.research.audit.attacks import CANDIDATES, DELTA, RECORDS, ROUNDS, TRIALS, Gallery, Tally, attack_all
from ringfence.research.drawing import COLOURS, style
from ringfence.research.markdown import command

QUICK_TRIALS = 5
TITLES = {
    "membership": "Which of two pictures was in the training data?",
    "reconstruction": f"Which of {CANDIDATES} pictures was it?",
}


def reproduce_attacks(
    out: Path, *, quick: bool = False, watch: Callable[[int, int], None] = lambda done, total: None
) -> Path:
    """Attack, and write attacks.csv, attacks.png and index.md into the folder `out`; return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    tallies, gallery = attack_all(trials=QUICK_TRIALS if quick else TRIALS, watch=watch)
    with (out / "attacks.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["attack", "epsilon", "successes", "trials", "low", "high", "limit"])
        for tally in tallies:
            epsilon = "" if tally.epsilon is None else tally.epsilon
            rows.writerow([tally.attack, epsilon, tally.successes, tally.trials, *tally.interval(), tally.limit])
    with style():
        draw(tallies, gallery, out / "attacks.png")
    page = out / "index.md"
    page.write_text(_page(tallies, command("attacks", out, quick)))
    return page


def draw(tallies: list[Tally], gallery: Gallery, path: Path) -> None:
    """Draw how often the attacks succeed, what the guarantee allows, and what a reconstruction looks like."""
    figure = Figure(figsize=(10.0, 6.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3, 2))
    bars, strip = parts
    for axes, attack in zip(bars.subplots(1, 2), TITLES, strict=True):
        _bars(axes, [tally for tally in tallies if tally.attack == attack])
    bars.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    strip.suptitle("What a server can see of one picture, knowing all the others", fontsize=11)
    pictures: list[tuple[str, FloatArray]] = [("the picture", gallery.original)]
    pictures += [(_name(epsilon), seen) for epsilon, seen in gallery.seen.items()]
    for axes, (name, seen) in zip(strip.subplots(1, len(pictures)), pictures, strict=True):
        axes.imshow(seen, cmap="gray")
        axes.set_title(name, fontsize=10)
        axes.set_axis_off()
    figure.savefig(path, dpi=150, metadata={"Software": None})


def _bars(axes: Axes, tallies: list[Tally]) -> None:
    places = np.arange(len(tallies))
    rates = np.array([tally.rate for tally in tallies])
    spans = np.array([tally.interval() for tally in tallies])
    error: Any = np.abs(spans.T - rates)
    axes.bar(places, rates, yerr=error, width=0.6, color=COLOURS[0], capsize=4, label="attack succeeds (95 % interval)")
    for place, tally in zip(places, tallies, strict=True):
        if tally.epsilon is not None:
            label = "most that the guarantee allows" if place == 1 else None
            axes.plot([place - 0.4, place + 0.4], [tally.limit] * 2, color=COLOURS[1], linewidth=2.5, label=label)
    chance = 1 / tallies[0].candidates
    axes.axhline(chance, color="#666666", linestyle=":", label="blind guess")
    axes.set_xticks(places, [_name(tally.epsilon) for tally in tallies])
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("success")
    axes.set_title(TITLES[tallies[0].attack], fontsize=11)


def _name(epsilon: float | None) -> str:
    return "no privacy" if epsilon is None else f"ε = {epsilon:g}"


def _page(tallies: list[Tally], made_by: str) -> str:
    lines = [
        "# Well-known attacks",
        "",
        f"    {made_by}",
        "",
        f"One silo of {RECORDS} real digits, {ROUNDS} rounds, delta {DELTA:g}; epsilon is for each record, over all "
        "rounds of a run, against the server and anyone who sees what it sees. The attacker is the server, and knows "
        "all of the silo's records but one. *Membership*: given two pictures, it says which of them is the missing "
        f"record. *Reconstruction*: it computes the missing picture, and says which of {CANDIDATES} it is. Without "
        "privacy (exact average gradients, as in ordinary federated learning) both are simple arithmetic. With "
        "Ringfence everything passes through the real gate, and the attack is the best possible one for Gaussian "
        "noise.",
        "",
        "![Success of the attacks, and what a reconstruction looks like](attacks.png)",
        "",
        "The orange line is proved: no attack, known or not yet invented, succeeds more often on average. With m "
        "equally likely candidates it is (e^ε + (m − 1)δ)/(e^ε + m − 1). Bars stay below it for two reasons: an "
        "epsilon and a delta allow for worse mechanisms than Gaussian noise, and these pictures are not the worst "
        "case, which [the audit](../../audit.md) constructs.",
        "",
        "| attack | silo | success | 95 % interval | limit by the guarantee | blind guess |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for tally in tallies:
        low, high = tally.interval()
        lines.append(
            f"| {tally.attack} | {_name(tally.epsilon)} | {tally.successes}/{tally.trials} = {tally.rate:.1%} "
            f"| {low:.1%} to {high:.1%} | {'none' if tally.epsilon is None else f'{tally.limit:.1%}'} "
            f"| {1 / tally.candidates:.0%} |"
        )
    return "\n".join([*lines, "", "Records, coins and noise are fresh in every trial: [attacks.csv](attacks.csv)", ""])
