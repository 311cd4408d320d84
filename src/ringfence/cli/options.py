"""Options that several commands share, and options of the form NAME=VALUE."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ringfence.errors import PlanError

if TYPE_CHECKING:
    from ringfence.planning.wishes import Wishes

Value = TypeVar("Value")

SchemaFile = Annotated[Path, typer.Option(help="The public schema (TOML); `ringfence schema draft` begins one.")]
Target = Annotated[str, typer.Option(help="The column to predict.")]


def wishes(
    epsilon: Annotated[float, typer.Option(help="Every silo's epsilon.")],
    delta: Annotated[float | None, typer.Option(help="Every silo's delta; by default 1/n², at most 1e-5.")] = None,
    budget: Annotated[list[str], typer.Option(metavar="NAME=EPS,DELTA", help="One silo's own budget.")] = [],  # noqa: B006
    algorithm: Annotated[
        str | None,
        typer.Option(help="minibatch-sgd, accelerated, regularised, multi-stage or localized; chosen for you."),
    ] = None,
    risk: Annotated[
        str, typer.Option(help="Choose by certificates of the 'empirical' or of the 'population' loss.")
    ] = "empirical",
    rounds: Annotated[int | None, typer.Option(help="Rounds, exactly; chosen for you.")] = None,
    max_rounds: Annotated[int | None, typer.Option(help="The most rounds that may be chosen; by default 100.")] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="logistic, hinge, softmax, squared, huber, absolute, pinball or epsilon-insensitive; by the "
            "target's type."
        ),
    ] = None,
    quantile: Annotated[float, typer.Option(help="Which quantile the pinball loss aims at.")] = 0.5,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Where huber turns linear, or what epsilon-insensitive ignores, in scaled units; by default a tenth "
            "of the target's bound."
        ),
    ] = None,
    sampling: Annotated[
        str | None, typer.Option(help="full, fixed, poisson, one-pass or phased; chosen for you.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Records per round, where sampling leaves it open.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest norm of a record's gradient; chosen for you.")] = None,
    distance: Annotated[
        float | None, typer.Option(help="How large the best weights are expected to be; chosen for you.")
    ] = None,
    step: Annotated[float | None, typer.Option(help="Step of minibatch-sgd; chosen for you.")] = None,
    average: Annotated[
        str | None,
        typer.Option(
            help="The model: 'weighted' as in the theorems, 'last' point, or 'tail' average; by default weighted, with "
            "a step of yours tail."
        ),
    ] = None,
    correlation: Annotated[
        float, typer.Option(help="Let one-pass noise cancel over the rounds: 0 is independent, 0.5 a good value.")
    ] = 0.0,
    survey: Annotated[
        bool | None,
        typer.Option(
            "--survey/--no-survey",
            help="Spend a little on a private estimate that the steps of accelerated need; by default where it pays.",
        ),
    ] = None,
    ridge: Annotated[float, typer.Option(help="Strength of the L2 penalty, added at the server.")] = 0.0,
    weights: Annotated[str, typer.Option(help="How silos count: by 'records', or 'equal'.")] = "records",
    available: Annotated[
        int | None, typer.Option(help="How many silos are asked in a round; all if not given.")
    ] = None,
    trust: Annotated[
        str,
        typer.Option(
            help="Whom the guarantee relies on: 'nobody', or a 'shuffler' that does not work together with the server."
        ),
    ] = "nobody",
    keys: Annotated[
        Path | None, typer.Option(help="Public keys of server, shuffler and silos (TOML), for a plan with a shuffler.")
    ] = None,
    quorum: Annotated[
        int | None, typer.Option(help="The fewest silos that a shuffler lets out together; all that are asked.")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="The most bits per record of the shuffled sum; by default 140 per weight.")
    ] = None,
) -> "Wishes":
    """Put the options that describe a plan together."""
    from ringfence.planning.events import require_count
    from ringfence.planning.wishes import Wishes
    from ringfence.protocol.shuffle import load_keys

    if batch is not None:
        require_count("batch", batch)
    if rounds is not None and max_rounds is not None:
        raise PlanError("Give either --rounds, exactly how many, or --max-rounds, a limit to choose within.")
    return Wishes(
        epsilon=epsilon,
        delta=delta,
        budgets=parse_budgets(budget),
        algorithm=algorithm,
        risk=risk,
        rounds=rounds,
        most_rounds=max_rounds,
        loss=loss,
        quantile=quantile,
        margin=margin,
        sampling=sampling,
        batch=batch,
        clip=clip,
        distance=distance,
        step=step,
        average=average,
        correlation=correlation,
        survey=survey,
        ridge=ridge,
        weights=weights,
        available=available,
        trust=trust,
        keys=None if keys is None else load_keys(keys),
        quorum=quorum,
        bits=bits,
    )


def takes_wishes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `wishes`; it receives them as its argument `wishes`."""
    own = inspect.signature(command)
    shared = inspect.signature(wishes)
    parameters = [
        inserted
        for parameter in own.parameters.values()
        for inserted in (shared.parameters.values() if parameter.name == "wishes" else [parameter])
    ]

    @wraps(command)
    def with_options(**options: Any) -> None:
        wished = wishes(**{name: options.pop(name) for name in shared.parameters})
        command(wishes=wished, **options)

    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    with_options.__signature__ = own.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    with_options.__annotations__ = {**wishes.__annotations__, **command.__annotations__}
    return with_options


def parse_budgets(options: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Read NAME=EPS,DELTA options."""
    budgets: dict[str, tuple[float, float]] = {}
    for option in options:
        name, _, value = option.rpartition("=")
        budget = _numbers(value)
        if budget is None or len(budget) != 2:
            raise PlanError(f"'{option}' is not of the form NAME=EPS,DELTA, like clinic=0.5,1e-6.")
        _put(budgets, name, budget)
    return budgets


def parse_cap(option: str | None) -> tuple[float, ...] | None:
    """Read an EPS,DELTA option, or EPS,DELTA,ALONE."""
    if option is None:
        return None
    cap = _numbers(option)
    if cap is None or len(cap) not in (2, 3):
        raise PlanError(f"The cap '{option}' is not of the form EPS,DELTA, like 4,1e-6, or EPS,DELTA,ALONE.")
    return cap


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


def _numbers(text: str) -> tuple[float, ...] | None:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        return None


def _put(values: dict[str, Value], name: str, value: Value) -> None:
    if name in values:
        raise PlanError(f"'{name}' is given twice.")
    values[name] = value
