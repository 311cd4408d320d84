"""The page on what a shuffler buys: excess risks by trust, noise, bits, time; and its figure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ringfence.research.drawing import COLOURS, MARKERS, logarithmic, save, style
from ringfence.research.experiments import mnist, trust
from ringfence.research.experiments.methods import CLIP, SMOOTHNESS, problem_of
from ringfence.research.experiments.sweeps import by_point, mean_and_error
from ringfence.research.experiments.synthetic import DISTANCE, PROBLEMS, Size
from ringfence.research.experiments.trust import (
    DIGITS,
    FULL_BATCH,
    MESSAGES,
    METHODS,
    MINIBATCH,
    NOBODY,
    ONE_PASS,
    SERVER,
    SHUFFLER,
    Method,
    NoiseComparison,
)
from ringfence.research.markdown import made_by, table, write_parts
from ringfence.research.theory import bounds
from ringfence.simulation.cells import Row

FIGURE = "excess-risk"
GOAL = 1.5
"""Shuffle-DP's excess risk in units of central DP's, at most, where a round has 1,000 records or more."""
NAMES = {NOBODY: "ISRL-DP", SHUFFLER: "shuffle-DP", SERVER: "central DP", MESSAGES: "shuffled messages (Theorem 5.1)"}
RATES = {
    NOBODY: ("Theorem 3.1, ISRL-DP", bounds.heterogeneous),
    SHUFFLER: ("Theorem 5.2, shuffle-DP", bounds.shuffled_heterogeneous),
    SERVER: ("optimal rate, central DP", bounds.central_rate),
}


@dataclass(frozen=True)
class ShufflePoint:
    """A method's risks on a problem at an ε: means and standard errors over all data sets and seeds, NaN if refused."""

    problem: str
    method: Method
    epsilon: float
    rounds: int
    risks: Mapping[str, tuple[float, float]]

    @property
    def excess(self) -> tuple[float, float]:
        """Excess population risk, or where the population is unknown the excess empirical risk."""
        return self.risks["empirical" if self.problem == DIGITS else "population"]


@dataclass(frozen=True)
class Cost:
    """Seconds per round through real gates, over so many rounds, and what a silo sends per round."""

    seconds_plain: float
    seconds_shuffled: float
    rounds: int
    shares: int
    messages: int
    envelope: int

    @classmethod
    def of(cls, row: Row) -> Self:
        """Read a cell."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class ShuffleResults:
    """All that the page shows."""

    size: Size
    points: Sequence[ShufflePoint]
    noises: Mapping[str, Sequence[NoiseComparison]]
    cost: Cost
    runs: int
    datasets: int

    @property
    def problems(self) -> list[str]:
        """In the grid's order."""
        return list(dict.fromkeys(point.problem for point in self.points))

    @property
    def epsilons(self) -> list[float]:
        """In rising order."""
        return sorted({point.epsilon for point in self.points})

    def at(self, problem: str, method: Method, epsilon: float) -> ShufflePoint:
        """Return one point."""
        return next(p for p in self.points if (p.problem, p.method, p.epsilon) == (problem, method, epsilon))


def summary(rows: Sequence[Row]) -> list[ShufflePoint]:
    """Return means and standard errors, sorted as the grid is."""
    return [_point(group) for group in by_point(rows, (*PROBLEMS, DIGITS), list(METHODS))]


def _point(rows: Sequence[Row]) -> ShufflePoint:
    first = rows[0]
    risks = {risk: mean_and_error([float(row[risk]) for row in rows]) for risk in ("population", "empirical", "error")}
    method = METHODS[str(first["method"])]
    return ShufflePoint(str(first["problem"]), method, float(first["epsilon"]), int(first["rounds"]), risks)


def rates(size: Size, epsilon: float) -> dict[str, float]:
    """Return the paper's rates for the synthetic problems, by whom is trusted; all constants are 1."""
    problem = problem_of(size, epsilon)
    return {whom: rate(problem) for whom, (_, rate) in RATES.items()}


def write(results: ShuffleResults, out: Path, command: str) -> Path:
    """Write the figure and the page; return the page."""
    with style():
        draw(results, out / FIGURE)
    return write_parts(out / "index.md", parts_of(results, command))


def parts_of(results: ShuffleResults, command: str) -> list[str]:
    """Return the page's parts."""
    return [
        "# What a shuffler buys",
        "The same algorithm at the same (ε, δ), trusting nobody (ISRL-DP), a shuffler (shuffle-DP, by shuffled vector "
        "sums), or the server (central DP). Each guarantee is for one record over one run: without trust against "
        "anyone who sees what its silo sends, with a shuffler against the server and one other silo together, as long "
        "as the shuffler does not collude with them, with a trusted server against anyone who gets the model. For how "
        "it works and who learns what, see [shuffle](../../shuffle.md).",
        made_by(command),
        "Every cell is in [cells.csv](cells.csv).",
        *_excess_section(results),
        *_noise_section(results),
        *_cost_section(results),
    ]


def _excess_section(results: ShuffleResults) -> list[str]:
    size = results.size
    parts = [
        "## Excess risk",
        "Synthetic problems of the [page on algorithms](../algorithms/index.md): logistic regression, N = "
        f"{size.silos} silos of n = {size.records} records, d = {size.dimension}, δ = 1/n², with identical silos and "
        "with different ones. MNIST, as on [its page](../mnist/index.md): odd versus even digits, 25 silos of "
        f"{mnist.RECORDS} images with one even and one odd digit each, d = {mnist.COMPONENTS + 1}, δ = 1/n².",
        "The planner chooses rounds and steps for each level of trust, by the same rule: the smallest loss bound, in "
        f"at most {size.rounds} rounds (MNIST: {mnist.ROUNDS}). It reads no record, and nothing is tuned. Central DP "
        "is a plan of one silo with all records and the Gaussian mechanism. Minibatch SGD "
        f"takes {trust.MINIBATCH_ROUNDS} rounds, or as many as are allowed.",
        f"Numbers are means ± standard errors over {results.runs} runs, each with its own noise, "
        f"on {_count(results.datasets, 'data set')}. For synthetic data they are excess *population* risks, for MNIST "
        "the excess *training* loss over the minimum, and the test error.",
        f"![Excess risk against ε]({FIGURE}.svg)",
        "Thin lines are the paper's rates with all constants set to 1: orders of magnitude, for the worst problem "
        f"with L = {CLIP:g}, β = {SMOOTHNESS:g}, D = {2 * DISTANCE:g}. These problems are not the worst. Theorem 5.2 "
        f"has ln(d/δ) = {math.log(size.dimension / size.delta):.1f} where Theorem 3.1 has √(N·ln(1/δ)) "
        f"= {math.sqrt(size.silos * math.log(1 / size.delta)):.1f}, so for few silos it promises no gain; the gain "
        "measured here comes from exact constants.",
    ]
    for name in results.problems:
        parts += [f"### {name[0].upper()}{name[1:]}", _risk_table(results, name)]
        if name == DIGITS:
            parts += ["Test error:", _error_table(results)]
    return [
        *parts,
        "### Shuffle-DP in units of central DP",
        _ratio_table(results),
        _verdict(results),
        "A ratio also reflects the planner's choice of rounds, which differs by level of trust (R in the tables). The "
        "noise by itself is compared below. On MNIST most of the excess is not due to noise, since it falls neither "
        "with ε nor with trust, so ratios close to 1 say little there.",
    ]


def _risk_table(results: ShuffleResults, problem: str) -> str:
    lines = []
    for method in METHODS.values():
        own = [results.at(problem, method, epsilon) for epsilon in results.epsilons]
        lines.append([method.algorithm, NAMES[method.trust], *(_shown(p.excess, f" (R = {p.rounds})") for p in own)])
    return table(["algorithm", "trust", *(f"ε = {epsilon:g}" for epsilon in results.epsilons)], lines)


def _error_table(results: ShuffleResults) -> str:
    lines = []
    for method in METHODS.values():
        own = [results.at(DIGITS, method, epsilon).risks["error"] for epsilon in results.epsilons]
        lines.append([method.algorithm, NAMES[method.trust], *(_shown(value) for value in own)])
    return table(["algorithm", "trust", *(f"ε = {epsilon:g}" for epsilon in results.epsilons)], lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _shown(value: tuple[float, float], remark: str = "") -> str:
    return "refused" if math.isnan(value[0]) else f"{value[0]:.5f} ± {value[1]:.5f}{remark}"


def ratios(results: ShuffleResults, trusted: str) -> dict[tuple[str, str, float], tuple[float, float]]:
    """Return excess risks in units of central DP's, with standard errors, by problem, algorithm and ε."""
    found = {}
    for name in results.problems:
        for algorithm in (FULL_BATCH, ONE_PASS):
            for epsilon in results.epsilons:
                (above, its), (below, other) = (
                    results.at(name, Method(algorithm, whom), epsilon).excess for whom in (trusted, SERVER)
                )
                ratio = above / below
                found[name, algorithm, epsilon] = ratio, abs(ratio) * math.hypot(its / above, other / below)
    return found


def _ratio_table(results: ShuffleResults) -> str:
    shuffled, apart = ratios(results, SHUFFLER), ratios(results, NOBODY)
    lines = []
    for name, algorithm in dict.fromkeys((name, algorithm) for name, algorithm, _ in shuffled):
        for found, whom in ((shuffled, SHUFFLER), (apart, NOBODY)):
            values = [found[name, algorithm, epsilon] for epsilon in results.epsilons]
            lines.append([name, algorithm, NAMES[whom], *(f"{ratio:.2f} ± {error:.2f}" for ratio, error in values)])
    return table(["problem", "algorithm", "trust", *(f"ε = {epsilon:g}" for epsilon in results.epsilons)], lines)


def _verdict(results: ShuffleResults) -> str:
    found = ratios(results, SHUFFLER)
    missed = [
        f"{algorithm} on {name} at ε = {epsilon:g} ({ratio:.2f} ± {error:.2f})"
        for (name, algorithm, epsilon), (ratio, error) in found.items()
        if ratio > GOAL
    ]
    least = min(noise.records for own in results.noises.values() for noise in own)
    verdict = f"missed by {'; '.join(missed)}" if missed else "met everywhere"
    return (
        f"The goal, at most {GOAL:g} where N·K, the number of records in a round, is 1,000 or more (here it "
        f"is {least:,} or more on the synthetic problems), is {verdict}."
    )


def _noise_section(results: ShuffleResults) -> list[str]:
    parts = [
        "## Noise and bits",
        "For the shuffled plans of the synthetic problems: the standard deviation of the noise in a round's mean "
        "gradient, in units of what central DP would need for the same rounds; and the number of bits that a record "
        "takes in the paper's protocol, d(g + b), with g levels and b coins. *ε alone* is what remains of a silo's "
        "guarantee if shuffler and server collude. “Messages” is the other way to use a shuffler, one Gaussian "
        "message per record (Shuffled Noisy MB-SGD), with amplification accounted for numerically.",
    ]
    for algorithm, noises in results.noises.items():
        lines = [
            [
                f"{noise.epsilon:g}",
                f"{noise.rounds}",
                f"{noise.records:,}",
                f"{noise.apart:.2f}",
                f"{noise.mixed:.3f}",
                "refused" if math.isnan(noise.messages) else f"{noise.messages:.1f}",
                f"{noise.levels}",
                f"{noise.coins}",
                f"{noise.bits:,}",
                f"{noise.alone:.3g}",
            ]
            for noise in noises
        ]
        head = ["ε", "rounds", "N·K", "ISRL-DP", "shuffle-DP", "messages", "g", "b", "bits per record", "ε alone"]
        parts += [f"### {algorithm.capitalize()}", table(head, lines)]
    return [
        *parts,
        f"With one message per silo, {results.size.silos} in total, nothing is amplified, and the accounting refuses:",
        f"> {trust.refusal(results.size, results.epsilons[0])}",
    ]


def _cost_section(results: ShuffleResults) -> list[str]:
    size, cost = results.size, results.cost
    head = ["", "without a shuffler", "with one"]
    lines = [
        ["seconds per round", f"{cost.seconds_plain:.2f}", f"{cost.seconds_shuffled:.2f}"],
        ["in units of the plain round", "1", f"{cost.seconds_shuffled / cost.seconds_plain:.1f}"],
        ["messages per silo and round", "1", f"{cost.messages}"],
        ["bytes per silo and round", f"{8 * size.dimension:,}", f"{cost.envelope:,}"],
        [
            "bytes per record and round",
            f"{8 * size.dimension / size.records:.2f}",
            f"{cost.envelope / size.records:.1f}",
        ],
    ]
    return [
        "## Time and bytes",
        f"The synthetic problem's {size.silos} silos, full batches, through real gates, ledgers, seals and a shuffler "
        f"in one process, one after the other; the mean over {_count(cost.rounds - 1, 'round')}. On separate machines "
        "the silos' part runs in parallel. Bytes with a shuffler are those of the sealed envelope: every silo's "
        f"counts, split into {cost.shares} shares, each sealed to the server, all sealed to the shuffler. Bytes "
        "without a shuffler are those of the numbers themselves.",
        table(head, lines),
    ]


def draw(results: ShuffleResults, stem: Path) -> None:
    """Draw excess risks against ε: a column per problem, a row per kind of batches."""
    problems = results.problems
    figure = Figure(figsize=(11.5, 7.6), layout="constrained")
    grid = figure.subplots(2, len(problems), sharex=True, squeeze=False)
    for row, algorithms in zip(grid, ((FULL_BATCH, MINIBATCH), (ONE_PASS,)), strict=True):
        for axes, problem in zip(row, problems, strict=True):
            _draw_panel(axes, results, problem, algorithms)
            risk = "training loss" if problem == DIGITS else "population risk"
            axes.set_title(f"{problem}: {algorithms[0]}", fontsize=10)
            axes.set_ylabel(f"excess {risk}")
    for axes in grid[-1]:
        axes.set_xlabel("ε")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    save(figure, stem)


def _draw_panel(axes: Axes, results: ShuffleResults, problem: str, algorithms: Sequence[str]) -> None:
    whom = (NOBODY, SHUFFLER, SERVER, MESSAGES)
    for method in METHODS.values():
        if method.algorithm not in algorithms:
            continue
        own = [results.at(problem, method, epsilon).excess for epsilon in results.epsilons]
        minibatch = method.algorithm == MINIBATCH
        number = whom.index(method.trust)
        axes.errorbar(
            results.epsilons,
            [mean for mean, _ in own],
            yerr=[error for _, error in own],
            color=COLOURS[number],
            marker=MARKERS[number],
            markersize=5,
            linestyle="--" if minibatch else "-",
            linewidth=1.2,
            label=f"{NAMES[method.trust]}{', minibatch SGD' if minibatch else ''}",
        )
    if problem != DIGITS:
        for number, (name, _) in enumerate(RATES.values()):
            values = [list(rates(results.size, epsilon).values())[number] for epsilon in results.epsilons]
            # Dashes, since two of the lines may lie on each other.
            line = (0, (6, 6)) if number == 1 else "-"
            axes.plot(
                results.epsilons, values, color=COLOURS[number], linestyle=line, linewidth=0.8, label=f"rate: {name}"
            )
    logarithmic(axes, results.epsilons)
