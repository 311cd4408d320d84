"""Parts that several reports share, made of public values only: what a run's rounds were and what they cost."""

from collections.abc import Mapping, Sequence

from ringfence.html.charts import Bar, Line, bar_chart, figure, line_chart
from ringfence.html.markup import Html, Value, bullets, section, table, tag, together
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Unit
from ringfence.tracking import FOLLOWED, Progress

MOST_BARS = 20

UNITS: dict[Unit, tuple[str, str]] = {
    "record": ("Record", "One row of one silo's table. The guarantee holds for each record."),
    "person": (
        "Person",
        "Anyone with rows in one silo's table. The guarantee covers all rows of a person together.",
    ),
}

WORDS = (
    ("Silo", "One organisation that keeps its own records: a hospital, a bank, a school."),
    (
        "Epsilon (ε)",
        "The privacy loss: how much a silo's messages can reveal about any one {unit}. At 0 they reveal nothing; at 1 "
        "they change the odds anyone would give on a {unit} by a factor of at most 2.72.",
    ),
    ("Delta (δ)", "The tiny probability that epsilon does not cover."),
    ("Ledger", "The silo's own log of every request and every answer. Tampering with a line is detected."),
)


def glossary(unit: Unit) -> Html:
    """Define the terms of a statement for somebody who has never met them."""
    words = (UNITS[unit], *WORDS)
    return bullets(together(tag("strong", f"{word}. "), meaning.format(unit=unit)) for word, meaning in words)


def budget_chart(
    bars: Mapping[str, Sequence[float]], limits: Mapping[str, float], *, names: Sequence[str], limit_name: str
) -> Html:
    """Draw every silo's epsilons beside its limit; with many silos, only those with the largest."""
    shown = sorted(bars.items(), key=lambda item: -max(item[1]))[:MOST_BARS] if len(bars) > MOST_BARS else bars.items()
    left_out = f" Showing the {MOST_BARS} largest of {len(bars)} silos." if len(bars) > MOST_BARS else ""
    return bar_chart(
        [Bar(name, values, limits.get(name)) for name, values in shown],
        names=names,
        title="Epsilon per silo",
        description=f"One group of bars per silo: {', '.join(names)}.{left_out}",
        x_label="epsilon",
        limit_name=limit_name,
    )


def epsilon_chart(rounds: Sequence[Progress]) -> Html | None:
    """Draw how much each silo has used after every round; None if nothing was recorded."""
    marked = [progress for progress in rounds if progress.epsilon]
    if not marked:
        return None
    silos = list(marked[-1].epsilon)
    lines = [Line(silo, [(p.round + 1, p.epsilon[silo]) for p in marked]) for silo in silos]
    return line_chart(
        lines,
        title="Epsilon over the rounds",
        description="How much of its guarantee each silo has used after each round, up to what the plan allows.",
        x_label="round",
        y_label="epsilon used",
    )


def update_chart(rounds: Sequence[Progress], plan: Plan) -> Html | None:
    """Draw the norm of the averaged noisy gradients beside that of their noise; None if there were none."""
    gradients = [p for p in rounds if plan.place(p.round).stage.question.trains and p.update_norm is not None]
    if not gradients:
        return None
    noise = [(p.round + 1.0, p.noise_norm) for p in gradients if p.noise_norm is not None]
    lines = [
        Line("averaged answer, with noise", [(p.round + 1.0, p.update_norm or 0.0) for p in gradients], level=True),
        Line("noise alone", noise, level=True),
    ]
    return line_chart(
        lines,
        title="Norm of the averaged noisy gradients",
        description="Where the first line no longer rises above the second, a round shows little but noise.",
        x_label="round",
        y_label="norm",
    )


def rounds_section(plan: Plan, epsilon: Html | None, updates: Html | None) -> Html:
    """Show how a run went, by what the server saw."""
    more = f" Showing the {FOLLOWED} silos with the largest epsilon." if len(plan.silos) > FOLLOWED else ""
    return section(
        "Round by round",
        figure(
            epsilon,
            "How much of its guarantee each silo has used after each round, composed exactly from the plan. This is "
            f"bookkeeping: the guarantee is the plan's, even if a run stops early.{more}",
        ),
        figure(
            updates,
            "What the server saw in each round: the norm of the averaged noisy answers, beside the norm of the noise "
            "alone. Both are public.",
        ),
    )


def plan_section(plan: Plan, silos: Sequence[str]) -> Html:
    """Show what was agreed before anything was sent."""
    asked, unit = plan.training_stages or plan.stages, plan.unit.capitalize()
    what: list[tuple[str, Value]] = [("Asked for", ", ".join(dict.fromkeys(stage.question.name for stage in asked)))]
    if plan.steps:
        what = [
            ("To predict", plan.data.target_words),
            ("From", plan.data.inputs),
            ("Loss", plan.loss.name),
            ("Algorithm", plan.algorithm.name),
        ]
    rows: list[tuple[str, Value]] = [
        *plan.responsible.items(),
        *what,
        ("Rounds", sum(stage.rounds for stage in asked)),
        *dict.fromkeys((f"{unit}s per round", stage.sampling.brief) for stage in asked),
        *dict.fromkeys(
            (f"Limit per {plan.unit}", limits) for stage in asked if (limits := stage.question.limits(plan))
        ),
        ("Numbers per answer", max(stage.question.length(plan) for stage in asked)),
        ("Silos", ", ".join(silos[:20]) + (f" and {len(silos) - 20} more" if len(silos) > 20 else "")),
        ("Adjacency", f"data sets that differ in one replaced {plan.unit}"),
    ]
    return section(
        "The plan",
        tag(
            "p",
            "Every silo's operator approved this plan by its digest. Nothing the server sends can change it.",
        ),
        tag("p", tag("code", plan.digest())),
        table("What the plan says", ["", ""], rows),
    )
