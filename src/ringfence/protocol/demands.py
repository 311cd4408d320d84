"""What a plan must meet to be made, approved or served today, beside being a valid document.

Documents of earlier versions are read, continued and accounted for whatever stands in them, so these are no part of
their format. A new decision about a plan is held to them.
"""

from collections.abc import Iterator

from ringfence.foreign_text import visible
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Schema

LONGEST_NAME = 200

_SMALLEST, _LARGEST = 2.0**-300, 2.0**300


def unmet(plan: Plan) -> str:
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
    """Tell whether features and targets have a size to compute with.

    Squares and quotients of such numbers are exact to the last digits. Beyond, they vanish or overflow: a question in
    units of the largest norm, which had become 0, would be answered with 0/0.
    """
    return all(_SMALLEST < size < _LARGEST for size in (schema.feature_norm, schema.target_bound))


def _unmet(plan: Plan) -> Iterator[str]:
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
    if schema.person is not None:
        yield "column", schema.person
    for name, column in schema.columns.items():
        yield "column", name
        yield from (("category", category) for category in column.names)
