"""Options that several commands share, and options of the form NAME=VALUE."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ringfence.errors import PlanError

Value = TypeVar("Value")

SchemaFile = Annotated[Path, typer.Option(help="The public schema (TOML); `ringfence schema draft` begins one.")]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Epsilon = Annotated[float, typer.Option(help="Every silo's epsilon.")]
Delta = Annotated[float | None, typer.Option(help="Every silo's delta; by default 1/n², at most 1e-5.")]
Budgets = Annotated[list[str], typer.Option(metavar="NAME=EPS,DELTA", help="One silo's own budget.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds; chosen for you if not given.")]
LossName = Annotated[str | None, typer.Option(help="logistic, softmax, squared or huber; by the target's type.")]
SamplingName = Annotated[str, typer.Option(help="full, fixed, poisson or one-pass.")]
Batch = Annotated[int | None, typer.Option(help="Records per round, unless sampling is full.")]
Clip = Annotated[float | None, typer.Option(help="Largest norm of a record's gradient; chosen for you.")]
Step = Annotated[float | None, typer.Option(help="Step size, without momentum; chosen for you.")]
Ridge = Annotated[float, typer.Option(help="Strength of the L2 penalty, added at the server.")]
Weights = Annotated[str, typer.Option(help="How silos count: by 'records', or 'equal'.")]
Available = Annotated[int | None, typer.Option(help="How many silos are asked in a round; all if not given.")]


def parse_budgets(options: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Read NAME=EPS,DELTA options."""
    budgets: dict[str, tuple[float, float]] = {}
    for option in options:
        name, _, value = option.rpartition("=")
        try:
            epsilon, delta = (float(part) for part in value.split(","))
        except ValueError:
            raise PlanError(f"'{option}' is not of the form NAME=EPS,DELTA, like clinic=0.5,1e-6.") from None
        _put(budgets, name, (epsilon, delta))
    return budgets


def parse_files(options: Sequence[str]) -> dict[str, Path]:
    """Read NAME=FILE options."""
    files: dict[str, Path] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name or not value:
            raise PlanError(f"'{option}' is not of the form NAME=FILE, like clinic=clinic-test.csv.")
        _put(files, name, Path(value))
    return files


def parse_sizes(options: Sequence[str]) -> dict[str, int]:
    """Read NAME=RECORDS options."""
    sizes: dict[str, int] = {}
    for option in options:
        name, _, value = option.rpartition("=")
        if not name or not value.isdecimal():
            raise PlanError(f"'{option}' is not of the form NAME=RECORDS, like clinic=1200.")
        _put(sizes, name, int(value))
    return sizes


def _put(values: dict[str, Value], name: str, value: Value) -> None:
    if name in values:
        raise PlanError(f"'{name}' is given twice.")
    values[name] = value
