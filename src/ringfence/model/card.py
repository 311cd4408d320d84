"""A model card in Markdown: what a model was made of, what its silos were promised, how good it is, what it is not for.

Everything in it is public: the plan, what the statement tells, and what the private evaluation found.
"""

import re
from collections.abc import Iterable, Sequence

from ringfence.errors import visible
from ringfence.model.curves import column_curves, line_names
from ringfence.model.model import Model
from ringfence.model.statement import SiloGuarantee, observer_words
from ringfence.protocol import rounds_words
from ringfence.protocol.schema.columns.base import ReadColumn

MOST_WEIGHTS = 20
"""How many of the weights a card shows, the largest first."""


def model_card(model: Model) -> str:
    """Return the card of a model."""
    target = _markdown_text(model.plan.data.target_words)
    parts = [
        f"# Model card: {target}",
        f"A linear model that predicts *{target}*, trained by {len(model.plan.silos)} silos with Ringfence, none of "
        "which sent a record.",
        *_data_section(model),
        *_plan_section(model),
        *_guarantee_section(model),
        *_evaluation_section(model),
        *_weights_section(model),
        *_misuse_section(model),
    ]
    return "\n\n".join(parts) + "\n"


def _data_section(model: Model) -> list[str]:
    """Return the model card's section about the columns of the data."""
    data = model.plan.data
    columns = {**{name: data.used[name] for name in (*data.targets, *data.roles.values())}, **data.features}
    rows = [[_markdown_text(name), *_column_cells(column)] for name, column in columns.items()]
    mapped = [_markdown_text(each.words) for each in data.maps or ()]
    roles = [f"The {role} of a record is in the column {_markdown_text(name)}." for role, name in data.roles.items()]
    person = [f"The column {_markdown_text(data.person)} identifies persons."] if data.person else []
    return [
        "## Data",
        "The public schema defines the possible values; values beyond a bound count as the bound. The first "
        f"{'column is' if len(data.targets) == 1 else f'{len(data.targets)} columns are'} predicted.",
        *([" ".join(roles)] if roles else []),
        *person,
        _markdown_table(["column", "kind", "values", "missing"], rows),
        *([f"Features computed from them by public maps: {'; '.join(mapped)}."] if mapped else []),
    ]


def _column_cells(column: ReadColumn) -> list[str]:
    """Return a column's kind, values and replacement of missing cells, for the model card's table."""
    kind, values = column.described
    missing = getattr(column, "missing", None)
    return [kind, _markdown_text(values), "" if missing is None else _markdown_text(str(missing))]


def _plan_section(model: Model) -> list[str]:
    """Return the model card's section about the plan."""
    plan = model.plan
    plans = (plan,) if model.statement is None else model.statement.plans
    held_out = "none" if plan.held_out is None else f"{plan.held_out:.0%} of each silo's {plan.unit}s"
    facts = [
        ["digest", f"`{plan.digest()}`"],
        *([name.lower(), _markdown_text(text)] for name, text in plan.responsible.items()),
        ["loss", _markdown_text(plan.loss.called)],
        ["algorithm", plan.algorithm.name],
        ["rounds", rounds_words(*plans)],
        ["held out from training", held_out],
        *([["candidates that it was chosen from", str(len(model.choice.candidates))]] if model.choice else []),
    ]
    return ["## Plan", _markdown_table(["", ""], facts)]


def _guarantee_section(model: Model) -> list[str]:
    """Return the model card's section about the silos' guarantees."""
    plan, statement = model.plan, model.statement
    if statement is None:
        return [
            "## Guarantee",
            "This model was made without access to any silo's ledger, so it has no statement of what was released. "
            "This is what the plan guarantees each silo for this run, enforced by the silo's gate:",
            _markdown_table(
                ["silo", f"{plan.unit}s", "unit", "epsilon", "delta", "against"],
                [
                    [_markdown_text(terms.name), str(terms.records), f"one {plan.unit}", f"{own.epsilon:.4g}",
                     f"{own.delta:.2g}", observer_words(own.against, plan.observers, plan.most_colluders)]
                    for terms in plan.silos for own in terms.guarantees
                ],
            ),
            "Ask each silo for its certificate (`ringfence silo certificate`).",
        ]  # fmt: skip
    rows = [line for name, silo in statement.silos.items() for line in _guarantee_rows(model, name, silo)]
    return [
        "## Guarantee",
        f"Differential privacy under replacement of one {plan.unit} of one silo, by the noise that the silo adds. "
        "*This run* was fixed in advance; *all runs* holds over everything in the silo's ledger, however plans were "
        "chosen and whenever you stop.",
        _markdown_table(
            ["silo", f"{plan.unit}s", "unit", "against", "this run: epsilon", "delta", "all runs: epsilon", "delta"],
            rows,
        ),
        "```text\n" + statement.words().replace("```", "'''") + "\n```",
        "This is what the model's maker wrote into its file; `ringfence model statement --certificate` checks it.",
    ]


def _guarantee_rows(model: Model, name: str, silo: SiloGuarantee) -> Iterable[list[str]]:
    """Yield the rows of a silo in the model card's table of guarantees, one per observer."""
    plan = model.plan
    for run in silo.this_run:
        total = next(total for total in silo.all_runs if total.against in (run.against, "anyone"))
        words = observer_words(run.against, plan.observers, plan.most_colluders)
        yield [
            _markdown_text(name), str(silo.records), f"one {plan.unit}", words,
            f"{run.epsilon:.4g}", f"{run.delta:.2g}", f"{total.epsilon:.4g}", f"{total.delta:.2g}",
        ]  # fmt: skip


def _evaluation_section(model: Model) -> list[str]:
    """Return the model card's section about the private evaluation."""
    if model.evaluation is None:
        return ["## Evaluation", "None: the plan asked no held-out records. `ringfence evaluate` can, for an epsilon."]
    found = model.evaluation
    head = (
        f"Measured privately on {found.together.records} held-out {found.unit}s of all silos. Each interval holds with "
        f"probability {found.coverage:.0%}{_markdown_text(found.positive_words)}."
    )
    return ["## Evaluation", head, "\n".join(f"- {_markdown_text(line)}." for line in found.together.sentences())]


def _weights_section(model: Model) -> list[str]:
    """Return the model card's section with the largest weights; of a model with maps, with points of all curves."""
    weights = model.by_size()
    left_out = f" The {MOST_WEIGHTS} largest of {len(weights)}." if len(weights) > MOST_WEIGHTS else ""
    title, rows = "Weights", [tuple[str | float, ...](row) for row in weights[:MOST_WEIGHTS]]
    head, words = ["feature", "of", "weight"], f"Of the schema's scaled features, largest first.{left_out}"
    if model.plan.data.maps and (curves := column_curves(model.placed_plan, model.coefficients)):
        title, head = "Curves", ["column", "value", *line_names(model.plan)]
        words = "What a column's value adds to the score, compared with the mean over its range or categories."
        rows = [(curve.name, *row) for curve in curves for row in curve.table()[1]]
    cells = [[f"{x:.4g}" if isinstance(x, float) else _markdown_text(x) for x in row] for row in rows]
    head = [_markdown_text(name) for name in head]
    return [f"## {title}", f"{words} Each contains the silos' noise.", _markdown_table(head, cells)]


def _misuse_section(model: Model) -> list[str]:
    """Return the model card's section about what the model must not be used for."""
    unit = model.plan.unit
    uses = (
        "To decide about a single person without human review: its errors are those above, and they were not measured "
        "for any particular group.",
        "To infer causes from its weights: they show associations in these silos' records, with noise. `ringfence "
        "model summary` gives intervals.",
        "For rows unlike those it was trained on: beyond the schema's bounds, predictions are those at the bound.",
        f"As evidence that a {unit} was, or was not, in a silo's data: the guarantee above limits how well anybody can "
        "tell.",
        "To claim a stronger guarantee than the one above, or one for a person with "
        + ("several records." if unit == "record" else "rows in several silos."),
    )
    return ["## What it must not be used for", "\n".join(f"- {use}" for use in uses)]


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of the model card in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _markdown_text(text: str) -> str:
    """Escape a name or value for the model card, so that Markdown shows it as text."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", visible(text))
