"""Checks of a whole plan: what makes it a valid document, and what makes it fit to be approved.

`check_plan` is part of the format. `unmet` is not: a later version may demand more of new plans, and still read,
continue and account for plans that were approved before.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringfence.errors import visible
from ringfence.protocol.plan.sampling import require_one_partition
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.schema import Schema

if TYPE_CHECKING:
    from ringfence.protocol.plan.plan import Plan, Stage


def check_plan(plan: "Plan") -> None:
    """Raise ValueError if parts of the plan contradict each other."""
    _check_training(plan)
    _check_unit(plan)
    if plan.held_out is not None and round(plan.held_out, 2) != plan.held_out:
        raise ValueError("the held-out share must be a whole percentage")
    names = [terms.name for terms in plan.silos]
    if len(set(names)) != len(names):
        raise ValueError("two silos have the same name")
    if not math.isclose(math.fsum(terms.weight for terms in plan.silos), 1.0, rel_tol=1e-9):
        raise ValueError("the silos' weights must add up to 1")
    for terms in plan.silos:
        if len(terms.stages) != len(plan.stages):
            raise ValueError(f"silo '{terms.name}' must have terms for each of the plan's {len(plan.stages)} stages")
        if tuple(guarantee.against for guarantee in terms.guarantees) != plan.observers:
            raise ValueError(
                f"silo '{terms.name}' must have one guarantee against each of: {', '.join(plan.observers)}"
            )
        if not all(0 < guarantee.epsilon < math.inf for guarantee in terms.guarantees):
            raise ValueError(f"silo '{terms.name}' must be promised a positive and finite epsilon")
    require_one_partition(stage.sampling for stage in plan.stages)
    for number, stage in enumerate(plan.stages):
        _check_stage(plan, number, stage)
    if plan.training is not None:
        plan.training.algorithm.check(plan)


def _check_stage(plan: "Plan", number: int, stage: "Stage") -> None:
    """Check that a plan's stage suits its query, silos, sampling rule and channel."""
    stage.query.check(plan)
    if (stage.participation.silos or 0) > len(plan.silos):
        raise ValueError("a round cannot ask more silos than the plan has")
    if stage.query.record_norm(plan) is None and not stage.sampling.takes_all:
        raise ValueError(f"the {stage.query.name} is asked of all records: its sampling must be full")
    if stage.section is not None and plan.held_out is None:
        raise ValueError("a stage asks a section of the records, but the plan does not say which share is held out")
    for terms in plan.silos:
        batch, records = terms.stages[number].batch, plan.records_in(stage, terms)
        if not records:
            raise ValueError(f"silo '{terms.name}' has too few records: its {stage.section} section would be empty")
        stage.sampling.check(terms.name, records=records, batch=batch, rounds=stage.most_answers)
    stage.channel.check(plan, stage, number)


def _check_unit(plan: "Plan") -> None:
    """Check that a plan that protects persons says who they are and how their rows count."""
    if (plan.unit == "person") != (plan.data.person is not None):
        raise ValueError(
            "a plan protects persons if, and only if, its schema names the column that identifies them: `person`"
        )
    if (plan.unit == "person") != (plan.person_rule is not None):
        raise ValueError("a plan has a rule for a person's rows if, and only if, it protects persons")
    if (plan.person_rule == "rows") != (plan.rows_per_person is not None):
        raise ValueError("a plan has `rows_per_person` if, and only if, its rule is 'rows'")


def _check_training(plan: "Plan") -> None:
    """Check that a plan that trains says how, and that the loss of its model has one source and fits the target."""
    if plan.training is None and plan.training_numbers:
        raise ValueError("training: Field required, since a stage of the plan trains")
    about_model = any(stage.query.about_model for stage in plan.stages)
    if plan.model_loss is not None and (plan.training is not None or not about_model):
        raise ValueError("model_loss: only a plan that asks about a model without training one may name its loss")
    if about_model or plan.training is not None:
        _check_loss_fits_target(plan)  # and that there is a target


def _check_loss_fits_target(plan: "Plan") -> None:
    """Check that a plan's loss suits the type and the number of its targets."""
    column = plan.data.target_column
    classes = len(column.classes)
    kind = plan.loss.target_kind
    several = len(plan.data.targets)
    if (kind == "numbers") != (several > 1) or (kind == "numbers" and plan.loss.outputs != several):
        raise ValueError(
            "several targets need the multi-squared loss, with as many targets, and one target needs any other: leave "
            "the loss out, or name one target"
        )
    fits = {"label": classes == 2, "class": classes == plan.loss.categories > 2}.get(kind, classes == 0)
    if not fits:
        raise ValueError(
            f"the {plan.loss.name} loss does not fit the target '{plan.data.target}': logistic and hinge need two "
            "categories, softmax three or more, ordinal three or more in order, the others a numeric target"
        )
    if isinstance(column, Scaled) and (misfit := plan.loss.target_problem(column.unit, column.offset, column.low)):
        raise ValueError(misfit)
    if (kind == "time") != (plan.data.event is not None):
        raise ValueError(
            "the survival loss, and no other, needs a time and an event: name the time as target, and the `event` "
            "column beside it"
        )
    if plan.loss.shares_slopes and not plan.data.intercept:
        raise ValueError(f"the {plan.loss.name} loss learns intercepts: give the schema an intercept")


LONGEST_NAME = 200

_SMALLEST, _LARGEST = 2.0**-300, 2.0**300


def unmet(plan: "Plan") -> str:
    """Say, as a clause, the first thing that the plan would have to change; nothing if it is fit."""
    return next(_unmet(plan), "")


def name_problem(name: str) -> str:
    """Say, as the end of a sentence, why a name cannot be used; nothing if it can.

    Operators read names and decide by them. Letters, digits, marks, punctuation and spaces of any script are allowed;
    characters that are invisible, or that change how their neighbours are shown, are not.
    """
    if visible(name) != name:
        return "has invisible characters, or ones that change how others are shown: give it a plain name"
    if name != name.strip():
        return "has spaces around it: give it a plain name"
    return f"is longer than {LONGEST_NAME} characters: give it a short name" if len(name) > LONGEST_NAME else ""


def is_computable(schema: Schema) -> bool:
    """Return whether features and targets have a size to compute with.

    Squares and quotients of such numbers are exact to the last digits. Beyond, they vanish or overflow: a query in
    units of the largest norm, which had become 0, would be answered with 0/0.
    """
    return all(_SMALLEST < size < _LARGEST for size in (schema.feature_norm, schema.target_bound))


def _unmet(plan: "Plan") -> Iterator[str]:
    """Yield what makes a consistent plan unfit to run: unusable names, weak keys and the like."""
    names = [("silo", terms.name) for terms in plan.silos] + list(_names(plan.data))
    for what, name in names:
        if problem := name_problem(name):
            yield f"its {what} '{visible(name[:LONGEST_NAME])}' {problem}"
    weak = plan.keys.low_order() if plan.keys is not None else ""
    if weak:
        yield f"its key of {visible(weak)} is not a valid key; ask its owner for it again"
    if not is_computable(plan.data):
        yield "its schema scales values to numbers too small or too large to compute with; give columns other scales"
    if plan.dimension and plan.loss.missing:
        yield plan.loss.missing
    for stage in plan.stages:
        if oversize := stage.channel.oversize(plan, stage):
            yield f"{oversize}; ask for a plan with fewer weights or shares"


def _names(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the names of columns and categories that a plan's schema shows to people, for a check of them."""
    if schema.person is not None:
        yield "column", schema.person
    for name, column in schema.columns.items():
        yield "column", name
        yield from (("category", category) for category in column.names)
