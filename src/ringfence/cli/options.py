"""Options and arguments of commands: generated from request objects, and those that several commands share.

A command's parameter whose default is a `planning.options.offered` field is an option. A command whose parameter is a
request object (a dataclass of such fields) gets an option for each field, and receives the object. Options of the
request's own class come before inherited ones.
A command that returns an `Output` gets the option --json.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.help import Command, Group
from ringfence.cli.output import EarlyOutput, Output, show_output
from ringfence.planning.options import Option


def option(help: str, section: str | None = None, *names: str, **settings: Any) -> Any:
    """Return an option for `Annotated`, with its section of the help."""
    return typer.Option(*names, help=help, rich_help_panel=section, **settings)


def argument(help: str, **settings: Any) -> Any:
    """Return a positional argument for `Annotated`."""
    return typer.Argument(help=help, **settings)


AsJson = Annotated[bool, option("Print one JSON object and nothing else.", "Output", "--json")]
ModelFile = Annotated[Path, argument("A model, as written by `ringfence train --out`.")]
NewFolder = Annotated[Path, argument("The folder to create. An existing one must be empty.")]
NOTE = ("A note kept with the decision in the ledger and in certificates.", "Ledger")
Note = Annotated[str, option(*NOTE, metavar="TEXT")]
PlanFile = Annotated[Path, argument("A plan, as written by `ringfence plan --out`.", metavar="PLAN")]
Which = Annotated[str, argument("A plan's file, or at least the first 8 characters of its digest.", metavar="PLAN")]


class App(typer.Typer):
    """A group of commands whose help has sections and examples."""

    def __init__(self, **settings: Any) -> None:
        """Make a group of commands with this command line's own help pages."""
        super().__init__(
            cls=Group,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,  # its traceback shows local variables, which may hold records
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Add a command, with options for the fields of its request objects, and --json if it returns an `Output`."""
        add = super().command(name, **{"cls": Command, **settings})

        def added(command: Callable[..., None]) -> Callable[..., None]:
            """Add the command to the group, and return it unchanged."""
            add(as_typer_command(command))
            return command

        return added


def as_typer_command(command: Callable[..., Any]) -> Callable[..., None]:
    """Make options of a command's request objects and offered parameters, and print the `Output` that it returns."""
    own = inspect.signature(command)
    requests = {name: each.annotation for name, each in own.parameters.items() if _is_request(each.annotation)}
    offered = {name: each.default for name, each in own.parameters.items() if isinstance(each.default, Field)}
    parameters: list[inspect.Parameter] = []
    for name, each in own.parameters.items():
        if name in requests:
            parameters += _parameters(requests[name])
        elif name in offered:
            parameters.append(_parameter(name, each.annotation, offered[name]))
        else:
            parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    prints = own.return_annotation is Output
    if prints:
        parameters.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))

    @wraps(command)
    def with_options(**options: Any) -> None:
        """Fill in the command's request objects from its options, call it, and print what it returns."""
        json = prints and options.pop("json")
        filled = {name: _filled(kind, options) for name, kind in requests.items()}
        parsed = {name: _parsed(field, options.pop(name)) for name, field in offered.items()}
        try:
            output = command(**filled, **parsed, **options)
        except EarlyOutput as early:
            output = early.output
        if prints:
            show_output(output, json=json)

    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return with_options


def _is_request(annotation: Any) -> bool:
    """Return whether a command's parameter is a request object, whose fields become options."""
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _fields(kind: Any) -> Iterator["Field[Any]"]:
    """Yield a request's fields, those of its own class before inherited ones."""
    fields = {each.name: each for each in dataclasses.fields(kind)}
    for base in kind.__mro__:
        for name in inspect.get_annotations(base):
            if name in fields:
                yield fields.pop(name)


def _parameters(kind: Any) -> Iterator[inspect.Parameter]:
    """Yield a parameter for every field of a request that the command line offers, and for those of requests in it."""
    for field in _fields(kind):
        if _is_request(field.type):
            yield from _parameters(field.type)
        elif "option" in field.metadata:
            yield _parameter(field.name, field.type, field)


def _parameter(name: str, annotation: Any, field: "Field[Any]") -> inspect.Parameter:
    """Return the parameter, as typer reads it, of a field that the command line offers."""
    option: Option = field.metadata["option"]
    reads = _type_read(annotation) if option.reads is None else option.reads
    default = field.default
    if reads in (list[str], list[Path]):
        default = None if option.argument else []  # click before 8.3 refuses an argument's list
    if option.required or field.default is field.default_factory is dataclasses.MISSING:
        default = inspect.Parameter.empty
    flag = f"--{option.flag or name.replace('_', '-')}"
    shown = (
        typer.Argument(help=option.help, metavar=option.metavar)
        if option.argument
        else typer.Option(flag, help=option.help, metavar=option.metavar, rich_help_panel=option.section)
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[reads, shown])


def _parsed(field: "Field[Any]", given: Any) -> Any:
    """Return the value of a field from what the command line read."""
    parser = field.metadata["option"].parser
    if given is None and field.default == ():
        given = []
    return given if parser is None else parser(given)


def _filled(kind: Any, options: dict[str, Any]) -> Any:
    """Return a request filled in from the options, which are taken out of them."""
    values = {}
    for field in _fields(kind):
        if _is_request(field.type):
            values[field.name] = _filled(field.type, options)
        elif "option" in field.metadata:
            values[field.name] = _parsed(field, options.pop(field.name))
    return kind(**values)


def _type_read(annotation: Any) -> Any:
    """Return the type that the command line reads: a number, a switch, a path, or else a text that is checked later."""
    if not isinstance(annotation, str):
        return {Sequence[str]: list[str], Sequence[Path]: list[Path]}.get(annotation, annotation)
    kind = {"float": float, "int": int, "bool": bool}.get(annotation.partition(" ")[0], str)
    return kind | None if annotation.endswith("None") else kind
