"""Options that several commands share, and options of the form NAME=VALUE."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ringfence.errors import PlanError
from ringfence.planning.request import PlanRequest

Value = TypeVar("Value")

SchemaFile = Annotated[
    Path,
    typer.Option(
        help="The public schema (TOML). `ringfence schema draft` writes a first one, `ringfence example` one to try.",
        rich_help_panel="Basic",
    ),
]
Target = Annotated[
    list[str],
    typer.Option(
        help="The column to predict. Repeat it to predict several numeric columns together.", rich_help_panel="Basic"
    ),
]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, as written by `ringfence plan --out`.")]
ModelFile = Annotated[Path, typer.Argument(help="A model, as written by `ringfence train --out`.")]
SiloFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="SILO.csv...",
        help="One table per silo, named after it: north.csv is silo 'north'. `ringfence example` writes three to try.",
    ),
]
Ledgers = Annotated[
    Path | None,
    typer.Option(help="Folder of the ledgers. Default: beside each table.", rich_help_panel="Ledger"),
]
SameDataAs = Annotated[
    list[Path],
    typer.Option(
        metavar="LEDGER",
        help="A ledger that a silo's records already have. Repeat it for each such silo.",
        rich_help_panel="Ledger",
    ),
]
NewBeginning = Annotated[
    str,
    typer.Option(
        metavar="REASON",
        help="Start a new ledger for records that already have one, without counting what the old one shows. The "
        "reason is kept in the new ledger and in every certificate.",
        rich_help_panel="Ledger",
    ),
]
Which = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan's file, or at least the first 8 characters of its digest.")
]
NewFolder = Annotated[Path, typer.Argument(help="The folder to create. An existing one must be empty.")]

Note = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="A note kept with the decision in the ledger and in certificates.",
        rich_help_panel="Ledger",
    ),
]
UnusualBudget = Annotated[
    bool,
    typer.Option(
        "--unusual-budget",
        help="Accept an epsilon above 20 or a delta above 1/n, which protect nobody.",
        rich_help_panel="Privacy",
    ),
]


def _plan_options() -> dict[str, inspect.Parameter]:
    """Return an option for every field of a plan's request that offers one, by the field's name."""
    options: dict[str, inspect.Parameter] = {}
    for field in dataclasses.fields(PlanRequest):
        option = field.metadata.get("option")
        if option is None:
            continue
        kind, default = _SPECIAL.get(field.name) or (_plain(str(field.type)), field.default)
        flag = f"--{option.flag or field.name.replace('_', '-')}"
        described = typer.Option(flag, help=option.help, metavar=option.metavar, rich_help_panel=option.section)
        shown = Annotated[kind, described]  # type: ignore[valid-type]
        options[field.name] = inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=shown
        )
    return options


_SPECIAL: dict[str, tuple[Any, Any]] = {
    "epsilon": (float, inspect.Parameter.empty),  # here there are no members to say it
    "budgets": (list[str], []),
    "keys": (Path | None, None),
    "cuts": (str | None, None),
}


def _plain(annotation: str) -> Any:
    """Return the type that the command line reads: a number, a switch, or else a text, whose value is checked later."""
    kind = {"float": float, "int": int, "bool": bool}.get(annotation.partition(" ")[0], str)
    return kind | None if annotation.endswith("None") else kind


def takes_plan_request(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that describe a plan; it receives them as one argument, `request`."""
    own = inspect.signature(command)
    shared = _plan_options()
    parameters = [
        inserted
        for parameter in own.parameters.values()
        for inserted in (shared.values() if parameter.name == "request" else [parameter])
    ]

    @wraps(command)
    def with_options(**options: Any) -> None:
        asked = {name: options.pop(name) for name in shared}
        asked["budgets"] = parse_budgets(asked["budgets"])
        asked["cuts"] = parse_cuts(asked["cuts"])
        if asked["keys"] is not None:
            from ringfence.protocol.keys import load_keys

            asked["keys"] = load_keys(asked["keys"])
        command(request=PlanRequest(**asked), **options)

    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    with_options.__signature__ = own.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    described = {name: parameter.annotation for name, parameter in shared.items()}
    with_options.__annotations__ = {**described, **command.__annotations__}
    return with_options


def parse_budgets(options: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Read NAME=EPS,DELTA options."""
    return _by_name(options, "NAME=EPS,DELTA, like clinic=0.5,1e-6", lambda text: _numbers(text, 2))


def parse_cuts(option: str | None) -> tuple[float, ...] | None:
    """Read T1,T2,... where a hazard may change."""
    if option is None:
        return None
    try:
        return tuple(float(part) for part in option.split(","))
    except ValueError:
        raise PlanError(f"The cuts '{option}' are not numbers separated by commas, like 365,730.") from None


def parse_cap(option: str | None) -> tuple[float, ...] | None:
    """Read an EPS,DELTA option, or EPS,DELTA,ALONE."""
    if option is None:
        return None
    cap = _numbers(option, 2, 3)
    if cap is None:
        raise PlanError(f"The cap '{option}' is not of the form EPS,DELTA, like 4,1e-6, or EPS,DELTA,ALONE.")
    return cap


def parse_files(options: Sequence[str]) -> dict[str, Path]:
    """Read NAME=FILE options; a file's name may hold another =."""
    form = "NAME=FILE, like clinic=clinic-test.csv"
    return _by_name(options, form, lambda text: Path(text) if text else None, cut=str.partition)


def parse_keys(options: Sequence[str]) -> dict[str, str]:
    """Read NAME=KEY options."""
    form = "NAME=KEY, with a public key of 64 hexadecimal digits"
    return _by_name(options, form, lambda text: text if re.fullmatch("[0-9a-fA-F]{64}", text) else None)


def parse_sizes(options: Sequence[str]) -> dict[str, int]:
    """Read NAME=RECORDS options."""
    form = "NAME=RECORDS, like clinic=1200"
    return _by_name(options, form, lambda text: int(text) if text.isdecimal() else None)


def _by_name(
    options: Sequence[str],
    form: str,
    read: Callable[[str], Value | None],
    cut: Callable[[str, str], tuple[str, str, str]] = str.rpartition,
) -> dict[str, Value]:
    """Read NAME=VALUE options; `read` returns None for what is no such value."""
    values: dict[str, Value] = {}
    for option in options:
        name, _, text = cut(option, "=")
        value = read(text)
        if not name or value is None:
            raise PlanError(f"'{option}' is not of the form {form}.")
        if name in values:
            raise PlanError(f"'{name}' is given twice.")
        values[name] = value
    return values


def _numbers(text: str, *counts: int) -> tuple[float, ...] | None:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        return None
    return numbers if len(numbers) in counts else None
