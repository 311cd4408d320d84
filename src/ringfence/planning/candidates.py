"""What may be tried: which options of a plan several candidates may differ in, and the grid of their values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from ringfence.errors import PlanError
from ringfence.planning.request import PlanRequest

MOST_CANDIDATES = 64
"""As many as one comparison takes (`protocol.questions.comparison`)."""

TRIED = (
    "algorithm", "average", "batch", "clip", "correlation", "distance", "lasso", "most_rounds", "person_rule", "ridge",
    "risk", "rounds", "rows_per_person", "sampling", "step", "survey",
)  # fmt: skip
"""Options that say how a model is trained, and nothing else."""

_WHY_NOT = {
    **dict.fromkeys(
        ("epsilon", "delta", "budgets", "held_out", "unit"),
        "it says what is granted and for whom, which all candidates share",
    ),
    **dict.fromkeys(
        ("trust", "keys", "quorum", "colluders", "bits"), "it says whom the guarantee relies on, which all share"
    ),
    **dict.fromkeys(
        ("loss", "quantile", "margin", "dispersion", "cuts"),
        "candidates are compared by their loss, which has to be the same for all",
    ),
    **dict.fromkeys(("weights", "available"), "it says whom the model is for and who is asked, which all share"),
    **dict.fromkeys(("purpose", "controller", "contact"), "it says what the run is for, which all share"),
}

Settings = Mapping[str, Any]
"""What one candidate asks for, by the option's name as a user writes it."""


def grid(tried: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the options' values; PlanError if that leaves nothing to choose from, or too much."""
    for name, values in tried.items():
        if any(value in values[:place] for place, value in enumerate(values)):
            raise PlanError(f"A value of '{name}' is listed twice, which would pay for the same model twice.")
    count = math.prod(len(values) for values in tried.values())
    if count < 2:
        raise PlanError(
            "That is one candidate, so there is nothing to choose from: list at least two values, or set the option "
            "itself."
        )
    if count > MOST_CANDIDATES:
        raise PlanError(
            f"That makes {count} candidates, more than the {MOST_CANDIDATES} allowed: all of them are trained and "
            "share one budget. Try fewer values or one option at a time, or choose on public or simulated data."
        )
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def flags() -> dict[str, str]:
    """Return the fields of a request that the command line offers, by the option's name there."""
    offered = {field.name: field.metadata.get("option") for field in dataclasses.fields(PlanRequest)}
    return {
        (option.flag.partition("/")[0] or name.replace("_", "-")): name
        for name, option in offered.items()
        if option is not None
    }


def parse_tries(options: Sequence[str]) -> dict[str, list[Any]]:
    """Read OPTION=VALUE,VALUE,... options: each a name of the command line, with values of its type.

    `auto` stands for what the planner would choose, where it does.
    """
    fields, tried = flags(), {}
    for option in options:
        name, _, text = option.partition("=")
        name = name.strip().removeprefix("--")
        field = fields.get(name)
        if not text.strip() or field is None:
            known = ", ".join(sorted(flag for flag, own in fields.items() if own in TRIED))
            raise PlanError(
                f"'{option}' is not of the form OPTION=VALUE,VALUE, like clip=0.5,1,2; the options to try are {known}."
            )
        if field not in TRIED:
            raise PlanError(f"'{name}' cannot be tried: {_WHY_NOT[field]}. Give it once, as --{name}.")
        if name in tried:
            raise PlanError(f"'{name}' is given twice: list all its values at once, separated by commas.")
        tried[name] = [_value(name, field, each.strip()) for each in text.split(",")]
    return tried


def candidate_request(request: PlanRequest, settings: Settings) -> PlanRequest:
    """Return what a candidate of the command line asks for."""
    fields = flags()
    chosen: dict[str, Any] = {fields[name]: value for name, value in settings.items()}
    return dataclasses.replace(request, **chosen)


def _value(name: str, field: str, text: str) -> Any:
    kind = next(str(own.type) for own in dataclasses.fields(PlanRequest) if own.name == field)
    if text == "auto" and kind.endswith("None"):
        return None
    plain = kind.partition(" ")[0]
    try:
        if plain == "bool":
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        value = {"float": float, "int": int}.get(plain, str)(text)
    except (KeyError, ValueError):
        what = {"float": "a number", "int": "a whole number", "bool": "yes or no"}[plain]
        raise PlanError(f"'{text}' is not a value of '{name}', which takes {what}.") from None
    if not text or (isinstance(value, float) and not math.isfinite(value)):
        raise PlanError(f"'{text}' is not a value of '{name}': leave it out, or name another.")
    return value
