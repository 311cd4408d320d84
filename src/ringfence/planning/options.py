"""Options of the command line, declared once: at the field of the request object that they fill in.

    @dataclass(frozen=True)
    class Request:
        rounds: int | None = offered(None, "Exact number of training rounds. Default: automatic.", "Algorithm")
        files: Sequence[Path] = offered(REQUIRED, "One table per silo.", argument=True, metavar="FILE...")

A command that takes a `Request` gets the option `--rounds` and the argument FILE... (`cli.options`). The library fills
the same fields in itself. Parsers of NAME=VALUE texts are here, too.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ringfence.errors import PlanError

Value = TypeVar("Value")

REQUIRED: Any = MISSING
"""The default of an option that has none."""


@dataclass(frozen=True)
class Option:
    """How the command line offers a field.

    `flag` is the option's name where it is not the field's. `reads` is the type that the command line reads, where it
    is not the field's, and `parser` makes the field's value from it. `required` asks for a value on the command line of
    a field that has a default elsewhere. An `argument` is positional.
    """

    help: str
    section: str | None
    flag: str = ""
    metavar: str | None = None
    reads: Any = None
    parser: Callable[[Any], Any] | None = None
    required: bool = False
    argument: bool = False


def offered(default: Any, help: str, section: str | None = None, **how: Any) -> Any:
    """Return a dataclass field that the command line offers, in a section of its help, as `Option` describes."""
    metadata = {"option": Option(help, section, **how)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def offered_sizes(default: Any, help: str, section: str) -> Any:
    """Return a field for the sizes of deployed silos, offered as --silo NAME=RECORDS."""
    return offered(default, help, section, flag="silo", metavar="NAME=RECORDS", reads=list[str], parser=parse_sizes)


def parse_budgets(options: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Read NAME=EPS,DELTA options."""
    return _by_name(options, "NAME=EPS,DELTA, like clinic=0.5,1e-6", lambda text: _numbers(text, 2))


def parse_curves(option: str | None) -> int | None:
    """Read how many pieces curves have: a number, none, or auto."""
    if option in (None, "auto"):
        return None
    try:
        return 0 if option == "none" else int(option)
    except ValueError:
        raise PlanError(f"The curves '{option}' are not a number of pieces like 8, none, or auto.") from None


def parse_cuts(option: str | None) -> tuple[float, ...] | None:
    """Read T1,T2,...: times at which a hazard may change."""
    cuts = None if option is None else _numbers(option)
    if cuts is None and option is not None:
        raise PlanError(f"The cuts '{option}' are not numbers separated by commas, like 365,730.")
    return cuts


def parse_figures(option: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Read figures to measure: NAME,NAME,..., or a sequence of names."""
    if option is None:
        return None
    names = option.split(",") if isinstance(option, str) else option
    return tuple(name.strip() for name in names if name.strip())


def parse_cap(option: str | None) -> tuple[float, ...] | None:
    """Read an EPS,DELTA or EPS,DELTA,ALONE option."""
    cap = None if option is None else _numbers(option, 2, 3)
    if cap is None and option is not None:
        raise PlanError(f"The cap '{option}' is not of the form EPS,DELTA, like 4,1e-6, or EPS,DELTA,ALONE.")
    return cap


def parse_files(options: Sequence[str]) -> dict[str, Path]:
    """Read NAME=FILE options; a file's name may contain another =."""
    form = "NAME=FILE, like clinic=clinic-test.csv"
    return _by_name(options, form, lambda text: Path(text) if text else None, split=str.partition)


def parse_public_keys(options: Sequence[str]) -> dict[str, str]:
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
    split: Callable[[str, str], tuple[str, str, str]] = str.rpartition,
) -> dict[str, Value]:
    """Read NAME=VALUE options; `read` returns None for a text of another form."""
    values: dict[str, Value] = {}
    for option in options:
        name, _, text = split(option, "=")
        value = read(text)
        if not name or value is None:
            raise PlanError(f"'{option}' is not of the form {form}.")
        if name in values:
            raise PlanError(f"'{name}' is given twice.")
        values[name] = value
    return values


def _numbers(text: str, *counts: int) -> tuple[float, ...] | None:
    """Read an option's numbers, separated by commas; None unless there are as many as `counts`, if any, allow."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        return None
    return numbers if not counts or len(numbers) in counts else None
