"""The page on algorithms: tables, how each was made, and whether its goal was met."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringfence.research.experiments import communication, conditioning, methods, synthetic
from ringfence.research.experiments.conditioning import (
    ACCELERATED,
    CONVEX,
    MINIBATCH,
    PRECONDITIONED,
    STAGES,
    STRONG,
    Floor,
)
from ringfence.research.experiments.excess import Excess
from ringfence.research.experiments.methods import LowerBound
from ringfence.research.markdown import bullets, made_by, table

FIGURES = ("excess-risk", "conditioning", "mnist-rounds")
TUNED = {"mnist": "M = 25", "insurance": "N = M = 5"}
"""Experiments, and their panels, on which the planner is compared with tuning."""
MOST_POINTS, MOST_RELATIVE = 2.0, 0.10
"""What tuning may gain over the planner: points of test error on MNIST, relative error on insurance."""
CLOSE = 0.003
"""MNIST counts as learned in so many rounds if the test error is within this of the least."""


@dataclass(frozen=True)
class Tuning:
    """Mean test errors of the planner and of a tuned run at an ε."""

    epsilon: float
    untuned: float
    tuned: float


@dataclass(frozen=True)
class AlgorithmResults:
    """All that the page shows."""

    size: synthetic.Size
    points: Sequence[Excess]
    bounds: Mapping[float, LowerBound]
    floors: Sequence[Floor]
    mnist: Mapping[tuple[str, int], tuple[float, float]]
    tuning: Mapping[str, Sequence[Tuning]]
    datasets: int
    seeds: int
    trials: int


def parts_of(results: AlgorithmResults, command: str) -> list[str]:
    """Return the page's parts."""
    return [
        "# Algorithms with the parameters of theory",
        "How the algorithms perform when nothing is tuned: excess risks next to their upper and lower bounds, rounds "
        "on ill-conditioned problems, rounds on MNIST, and what tuning would gain over the planner. Every ε is for "
        "each record, over the one run shown, against anyone who sees what its silo sends.",
        made_by(command),
        "Every cell is in [cells.csv](cells.csv).",
        *_excess_section(results),
        *_conditioning_section(results.floors),
        *_mnist_section(results),
        *_tuning_section(results.tuning),
    ]


def _excess_section(results: AlgorithmResults) -> list[str]:
    size, runs = results.size, results.datasets * results.seeds
    parts = [
        "## Excess risk on synthetic problems",
        f"Logistic regression, N = {size.silos} silos of n = {size.records} records, d = {size.dimension}, δ = 1/n². "
        f"Features are Gaussian with covariance eigenvalues ∝ 1/j and trace {synthetic.SPREAD}, scaled down to norm 1 "
        f"where they are longer; ‖w\\*‖ = {synthetic.TRUE_NORM:g}, weights are kept in the ball of radius D₀ "
        f"= {synthetic.DISTANCE:g}, and a label is +1 with probability sigmoid(⟨x, w\\*⟩). Different silos have their "
        f"own feature mean of norm {synthetic.MEAN_NORM} and their own shift of w\\* of "
        f"norm {synthetic.SHIFT_NORM:g}. The planner is given D₀ and the clipping norm L = {methods.CLIP:g}, which "
        f"clips nothing; it may take {size.rounds} rounds (minibatch SGD takes them all) and sees no record. Numbers "
        f"are means ± standard errors over {runs} runs: {results.seeds} draws of the noise on each "
        f"of {results.datasets} data sets. Population risk is measured on {size.fresh:,} fresh feature vectors with "
        "the exact probabilities of their labels, empirical risk on the training records, each minus the minimum on "
        "the same records (Newton's method).",
        f"![Excess risk against ε]({FIGURES[0]}.svg)",
    ]
    for risk in ("population", "empirical"):
        for problem in synthetic.PROBLEMS:
            own = [point for point in results.points if point.problem == problem]
            parts += [f"### Excess {risk} risk, {problem}", _risk_table(own, risk)]
    parts += ["### Rounds, loss bounds, lower bounds", _bound_table(results), *_bound_notes(results)]
    return parts


def _risk_table(points: Sequence[Excess], risk: str) -> str:
    epsilons = sorted({point.epsilon for point in points})
    by = {(point.method, point.epsilon): point.of(risk) for point in points}
    lines = [
        [method, *(f"{by[method, e].mean:.4f} ± {by[method, e].error:.4f}" for e in epsilons)]
        for method in dict.fromkeys(point.method for point in points)
    ]
    return table(["method", *(f"ε = {epsilon:g}" for epsilon in epsilons)], lines)


def _bound_table(results: AlgorithmResults) -> str:
    """Plans and bounds look at no record, so both problems share them."""
    epsilons = sorted(results.bounds)
    by = {(point.method, point.epsilon): point for point in results.points}
    lines = []
    for method in dict.fromkeys(point.method for point in results.points):
        own = [by[method, epsilon] for epsilon in epsilons]
        proved = [risk for risk in ("population", "empirical") if not math.isnan(own[0].of(risk).bound)]
        lines += [[method, risk, *(_plan(point, f"{point.of(risk).bound:.4f}") for point in own)] for risk in proved]
        if not proved:
            lines.append([method, "none proved", *(_plan(point, "–") for point in own)])
    for risk in ("population", "empirical"):
        name = f"lower bound, {results.bounds[epsilons[0]].name}"
        lines.append([name, risk, *(f"{getattr(results.bounds[epsilon], risk):.4f}" for epsilon in epsilons)])
    return table(["method", "bounded risk", *(f"ε = {epsilon:g}" for epsilon in epsilons)], lines)


def _plan(point: Excess, bound: str) -> str:
    remark = f", {point.remark}" if point.remark else ""
    return f"{bound} (R = {point.rounds}{remark})"


def _bound_notes(results: AlgorithmResults) -> list[str]:
    by = {(point.problem, point.method, point.epsilon): point for point in results.points}
    tight = min(
        (measured.bound / measured.mean, point, risk)
        for point in results.points
        for risk in ("population", "empirical")
        if not math.isnan((measured := point.of(risk)).bound)
    )
    ours, formula = "localized, bound's λ", "localized, formula's λ"
    plain, correlated = "one-pass minibatch", "one-pass minibatch, correlated noise"
    notes = [
        f"No bound was violated. The tightest is that of the {tight[2]} risk of {tight[1].method} "
        f"on {tight[1].problem} at ε = {tight[1].epsilon:g}, {tight[0]:.1f} times the measured risk.",
        "The paper's lower bound for untrusted servers is proved for 54 silos or more; with fewer, the page shows the "
        "one for a trusted server, which holds here too. It sets constants and logarithms to 1 and concerns the worst "
        "problem with these constants; these problems are not the worst, so runs may lie below it.",
        "Multi-stage runs minimise the loss plus (ridge/2)·‖w‖²; risks are those of the loss without it, and the "
        "bound includes (ridge/2)·D₀². From a grid of ridges, the one with the smallest bound is taken.",
        "A survey's result is not known beforehand, and noise that is correlated across rounds is outside the proof: "
        "those two rows have no bound.",
        "Localization's bound is far from its actual risk, so the λ with the smallest bound is a poor choice: its "
        f"population risk is {_ratios(by, ours, formula)} times that with λ = (L/D₀)·√(1/(Nn) + 4z²d/(n²M)).",
        f"The limit of {results.size.rounds} rounds restricts localization most: with the formula's λ it would take "
        f"{', '.join(f'{methods.localized_rounds(results.size, epsilon):,}' for epsilon in sorted(results.bounds))}.",
        f"Correlated noise (θ = {methods.CORRELATION}) multiplies the population risk of one-pass minibatch SGD by "
        f"{_ratios(by, correlated, plain)}.",
    ]
    return [bullets(notes)]


def _ratios(by: Mapping[tuple[str, str, float], Excess], first: str, second: str) -> str:
    """Return how the population risks of two methods compare, problem by problem."""
    found = []
    for problem in synthetic.PROBLEMS:
        epsilons = sorted({epsilon for own, _, epsilon in by if own == problem})
        values = [by[problem, first, e].population.mean / by[problem, second, e].population.mean for e in epsilons]
        at = ", ".join(f"{epsilon:g}" for epsilon in epsilons)
        found.append(f"{', '.join(f'{value:.2f}' for value in values)} ({problem}, ε = {at})")
    return " and ".join(found)


def _conditioning_section(floors: Sequence[Floor]) -> list[str]:
    slopes = conditioning.slopes(floors)
    parts = [
        "## Rounds on ill-conditioned problems",
        f"Quadratics in {conditioning.DIMENSION} dimensions with β = D₀ = 1 and eigenvalues evenly spaced in "
        "logarithms; w₀ − w\\* has equal coordinates. All rounds share one budget, so a run planned for R rounds has "
        "noise of variance cR in each. Expectations over the noise are computed exactly from the server's own steps; "
        "nothing is sampled. The floor is an algorithm's smallest expected excess over all R, and rounds are the "
        f"smallest R within 10 % of it (numbers of rounds tried are {100 * (conditioning.FINENESS - 1):.0f} % apart). "
        "Since floors differ, the last columns give the rounds to within 10 % of the highest floor of that problem, "
        "which all algorithms reach.",
        f"![Rounds to the noise floor]({FIGURES[1]}.svg)",
    ]
    for family, what in ((STRONG, "κ"), (CONVEX, "βD₀²/(D₀√c)")):
        parts += [f"### {family.capitalize()}", _floor_text(family), _floor_table(floors, slopes, family, what)]
    return [*parts, _conditioning_notes(floors, slopes)]


def _floor_text(family: str) -> str:
    if family == STRONG:
        return (
            f"Eigenvalues from μ = 1/κ to 1; c = {conditioning.NOISE:g}·μ²D₀², so that noise moves the solution by "
            "the same share of D₀ whatever κ is. Minibatch SGD has the step and weights of P8 (Stich), acceleration "
            "is the single run with pace β, which needs to know neither noise nor gap, and stages are the paper's, "
            "corrected. Preconditioned descent is given the eigenvectors, and the eigenvalues up to a factor "
            f"of {conditioning.MISJUDGED:g} (some too large, some too small), and pays for neither; it clips and adds "
            "noise along axes that these numbers whiten, and takes the step with the smallest expected excess among "
            "those that a survey compares."
        )
    return (
        f"Eigenvalues from {conditioning.FLATTEST:g} to 1, μ = 0 in the schedules; D₀√c is the order of the error "
        "that noise causes. The planner's step for minibatch SGD includes the gradients' own norm, L = βD₀, in their "
        "second moment; the step of the smooth case, at most 1/(2β), includes only their variance."
    )


def _floor_table(floors: Sequence[Floor], slopes: Mapping[tuple[str, str], float], family: str, what: str) -> str:
    ratios = sorted({floor.ratio for floor in floors})
    by = {(floor.family, floor.algorithm, floor.ratio): floor for floor in floors}
    head = [
        "algorithm",
        *(f"rounds, {what} = {ratio:g}" for ratio in ratios),
        "slope",
        *(f"floor, {ratio:g}" for ratio in ratios),
        *(f"rounds to highest floor, {ratio:g}" for ratio in ratios),
    ]
    lines = []
    for algorithm in conditioning.ALGORITHMS[family]:
        own = [by[family, algorithm, ratio] for ratio in ratios]
        lines.append(
            [
                algorithm,
                *(f"{floor.rounds:,}" for floor in own),
                f"{slopes[family, algorithm]:.2f}",
                *(f"{floor.excess:.2e}" for floor in own),
                *(f"{floor.rounds_to_highest:,}" for floor in own),
            ]
        )
    return table(head, lines)


def _conditioning_notes(floors: Sequence[Floor], slopes: Mapping[tuple[str, str], float]) -> str:
    ratio = max(floor.ratio for floor in floors)
    by = {(floor.family, floor.algorithm): floor for floor in floors if floor.ratio == ratio}
    sgd, single, stages = (by[STRONG, name] for name in (MINIBATCH, ACCELERATED, STAGES))
    whitened = by[STRONG, PRECONDITIONED]
    convex_sgd, convex = by[CONVEX, MINIBATCH], by[CONVEX, ACCELERATED]
    notes = [
        f"Rounds grow as κ^{slopes[STRONG, MINIBATCH]:.2f} for minibatch SGD (theory: 1, up to a logarithm) and as "
        f"κ^{slopes[STRONG, ACCELERATED]:.2f} for acceleration (theory: 1/2). At κ = {ratio:g} acceleration takes "
        f"{sgd.rounds / single.rounds:.1f} times fewer rounds.",
        f"That has a price: at κ = {ratio:g} the floor of acceleration is {single.excess / sgd.excess:.2f} times that "
        f"of minibatch SGD, and that of stages {stages.excess / sgd.excess:.2f} times. To reach the highest of these "
        f"floors, minibatch SGD takes {sgd.rounds_to_highest / single.rounds_to_highest:.1f} times the rounds of "
        "acceleration.",
        f"The number of stages is an integer, which makes their rounds jump (slope {slopes[STRONG, STAGES]:.2f}).",
        f"Preconditioned descent takes {whitened.rounds:,} rounds at κ = {ratio:g}. They grow as "
        f"κ^{slopes[STRONG, PRECONDITIONED]:.2f}, that is, logarithmically: every round removes the same share of "
        f"what is left, and the floor falls with κ. That floor is {whitened.excess / sgd.excess:.2g} times that of "
        "minibatch SGD: noise no longer drowns directions that vary little.",
        f"Without strong convexity the rounds grow with slope {slopes[CONVEX, MINIBATCH]:.2f} for the planner's "
        f"minibatch SGD, {slopes[CONVEX, conditioning.MINIBATCH_BY_VARIANCE]:.2f} if its step includes only the "
        f"variance, and {slopes[CONVEX, ACCELERATED]:.2f} for acceleration: {convex_sgd.rounds:,} "
        f"against {convex.rounds:,} rounds at {ratio:g}.",
        "The bounds of acceleration and stages were checked at every number of rounds: none was violated.",
    ]
    return bullets(notes)


def _mnist_section(results: AlgorithmResults) -> list[str]:
    rounds = sorted({number for _, number in results.mnist})
    lines = [
        [f"{number}", *(_with_error(results.mnist[name, number]) for name in communication.ALGORITHMS)]
        for number in rounds
    ]
    needed = {}
    for name in communication.ALGORITHMS:
        least = min(results.mnist[name, number][0] for number in rounds)
        needed[name] = next(number for number in rounds if results.mnist[name, number][0] <= least + CLOSE)
    return [
        "## Rounds on MNIST",
        f"Odd versus even digits, {communication.PANEL}, ε = {communication.EPSILON:g}: the MNIST page's problem. "
        "For each number of rounds the noise is recalibrated; step (or pace), clipping norm and, for minibatch SGD, "
        f"momentum are chosen by training loss over {communication.REPEATS} repetitions, and the choice is run again "
        "with fresh noise. As on that page, ε does not count the choice. Mean test error ± standard error "
        f"over {results.trials} trials.",
        f"![Test error against rounds]({FIGURES[2]}.svg)",
        table(["rounds", *communication.ALGORITHMS], lines),
        f"Minibatch SGD comes within {100 * CLOSE:.1f} points of its best error from {needed[MINIBATCH]} rounds on, "
        f"acceleration from {needed[ACCELERATED]}: principal components, scaled as they are here, make a "
        "well-conditioned problem, on which acceleration has little to gain.",
    ]


def _tuning_section(tuning: Mapping[str, Sequence[Tuning]]) -> list[str]:
    parts = [
        "## The planner against tuning",
        "From the cells.csv of the experiments' own pages: mean test error of the planner's defaults, for which "
        "nothing was tuned, minus that of minibatch SGD tuned by training loss (ε does not count tuning). The "
        "planner's constants were chosen once, with these data sets in view.",
    ]
    for name, panel in TUNED.items():
        own = tuning[name]
        if not own:
            parts += [f"### {name}, {panel}", "The experiment has not been run into the folder beside this one."]
            continue
        points = name == "mnist"
        gaps = [100 * (t.untuned - t.tuned) if points else (t.untuned - t.tuned) / t.tuned for t in own]
        shown = [f"{gap:+.2f} points" if points else f"{100 * gap:+.1f} %" for gap in gaps]
        lines = [
            [f"{t.epsilon:g}", f"{t.untuned:.4f}", f"{t.tuned:.4f}", gap] for t, gap in zip(own, shown, strict=True)
        ]
        goal = MOST_POINTS if points else MOST_RELATIVE
        missed = [f"{t.epsilon:g}" for t, gap in zip(own, gaps, strict=True) if gap > goal]
        wanted = f"at most {MOST_POINTS:g} points" if points else f"at most {100 * MOST_RELATIVE:g} %"
        verdict = f"missed at ε = {', '.join(missed)}" if missed else "met at every ε"
        parts += [
            f"### {name}, {panel}",
            table(["ε", "planner, untuned", "tuned", "untuned − tuned"], lines),
            f"Goal, {wanted}: {verdict}.",
        ]
    return parts


def _with_error(value: tuple[float, float]) -> str:
    return f"{value[0]:.4f} ± {value[1]:.4f}"
