"""Parts that several reports share, made of public values only: what a run's rounds were and what they cost."""

from collections.abc import Mapping, Sequence

from ringfence.html.charts import Bar, Line, bar_chart, figure, line_chart
from ringfence.html.markup import Html, Value, bullets, section, table, tag, together
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Unit
from ringfence.tracking import FOLLOWED, Progress

MOST_BARS = 20

UNITS: dict[Unit, tuple[str, str]] = {
    "record": ("Record", "One row of one silo's table. The guarantee is for each single one of them."),
    "person": (
        "Person",
        "Whoever has rows in one silo's table. The guarantee is for each, with all these rows.",
    ),
}

WORDS = (
    ("Silo", "One organisation that keeps its own records: a hospital, a bank, a school."),
    (
        "Epsilon (ε)",
        "How much what a silo sent can tell about any one {unit}: the smaller, the less. At 0 it tells nothing; at 1 "
        "the odds that anybody would give for or against a {unit} change by a factor of at most 2.72.",
    ),
    ("Delta (δ)", "The probability, chosen to be tiny, of what epsilon does not cover."),
    ("Ledger", "The silo's own list of everything it was asked and ever sent. A changed line is found out."),
)


def glossary(unit: Unit) -> Html:
    """Say what the words of a statement mean, to somebody who has never met them."""
    words = (UNITS[unit], *WORDS)
    return bullets(together(tag("strong", f"{word}. "), meaning.format(unit=unit)) for word, meaning in words)


def budget_chart(
    bars: Mapping[str, Sequence[float]], limits: Mapping[str, float], *, names: Sequence[str], limit_name: str
) -> Html:
    """Draw every silo's epsilons beside its limit; of many silos those with the largest."""
    shown = sorted(bars.items(), key=lambda item: -max(item[1]))[:MOST_BARS] if len(bars) > MOST_BARS else bars.items()
    left_out = f" The {MOST_BARS} largest of {len(bars)} silos are shown." if len(bars) > MOST_BARS else ""
    return bar_chart(
        [Bar(name, values, limits.get(name)) for name, values in shown],
        names=names,
        title="Epsilon of every silo",
        description=f"One group of bars per silo: {', '.join(names)}.{left_out}",
        x_label="epsilon",
        limit_name=limit_name,
    )


def epsilon_chart(rounds: Sequence[Progress]) -> Html | None:
    """Draw what each silo's answers have used after every round; None if nothing was recorded."""
    marked = [progress for progress in rounds if progress.epsilon]
    if not marked:
        return None
    silos = list(marked[-1].epsilon)
    lines = [Line(silo, [(p.round + 1, p.epsilon[silo]) for p in marked]) for silo in silos]
    return line_chart(
        lines,
        title="Epsilon over the rounds",
        description="After each round, what all answers so far have used of each silo's guarantee; it ends at what the "
        "plan allows.",
        x_label="round",
        y_label="epsilon used",
    )


def update_chart(rounds: Sequence[Progress], plan: Plan) -> Html | None:
    """Draw how long the averaged noisy gradients were, and what of it is noise; None if there were none."""
    gradients = [p for p in rounds if plan.place(p.round).stage.question.trains and p.update_norm is not None]
    if not gradients:
        return None
    noise = [(p.round + 1.0, p.noise_norm) for p in gradients if p.noise_norm is not None]
    lines = [
        Line("averaged answer, noise included", [(p.round + 1.0, p.update_norm or 0.0) for p in gradients], level=True),
        Line("what the noise alone comes to", noise, level=True),
    ]
    return line_chart(
        lines,
        title="Length of the averaged noisy gradients",
        description="Where the first line is no longer above the second, a round shows little but noise.",
        x_label="round",
        y_label="length",
    )


def rounds_section(plan: Plan, epsilon: Html | None, updates: Html | None) -> Html:
    """Show how a run went, by what the server saw."""
    more = f" The {FOLLOWED} silos with the largest epsilon are shown." if len(plan.silos) > FOLLOWED else ""
    return section(
        "Round by round",
        figure(
            epsilon,
            "What the answers so far have used of each silo's guarantee, exactly composed. This is bookkeeping, "
            f"counted from the plan: the guarantee is the plan's, also for whoever stops earlier.{more}",
        ),
        figure(
            updates,
            "What the server saw of each round: the length of the silos' averaged answers, which contain noise, beside "
            "the length that noise alone has. Both are public.",
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
        *dict.fromkeys((f"{unit}s in a round", stage.sampling.brief) for stage in asked),
        *dict.fromkeys(
            (f"Of a single {plan.unit}", limits) for stage in asked if (limits := stage.question.limits(plan))
        ),
        ("Numbers in an answer", max(stage.question.length(plan) for stage in asked)),
        ("Silos", ", ".join(silos[:20]) + (f" and {len(silos) - 20} more" if len(silos) > 20 else "")),
        ("Neighbours", f"data sets that differ in one replaced {plan.unit}"),
    ]
    return section(
        "The plan",
        tag(
            "p",
            "Every silo's operator approved this one document, by its digest; nothing that a server sends later can "
            "change it.",
        ),
        tag("p", tag("code", plan.digest())),
        table("What the plan says", ["", ""], rows),
    )
