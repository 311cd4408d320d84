"""Printing: JSON for machines on standard output, tables for people; progress goes to standard error.

All that the command line prints is printed here, and nothing in it is taken for more than text: what somebody else
wrote (a name, a category, a note, a file's name) can neither drive the terminal nor hide or forge a line of ours.
"""

import json as json_format
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ringfence.errors import OutputError, visible, visible_lines

# rich is imported where it is needed: `--help` needs none of it.
if TYPE_CHECKING:
    from rich.progress import Progress

    from ringfence.federation.requests import ChargeOptions
    from ringfence.protocol import Plan
    from ringfence.rehearsal.quote import Quote


def say(text: str = "", *, end: str = "\n") -> None:
    """Print a text of the command line, which may have several lines, on standard output."""
    typer.echo(visible_lines(text) + end, nl=False)


def warn(sentence: str) -> None:
    """Print one sentence, in one line, on standard error."""
    typer.echo(visible(sentence), err=True)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers keep their full precision."""
    typer.echo(json_format.dumps(_without_infinity(content), indent=2, allow_nan=False))


class Table(NamedTuple):
    """A table for people."""

    header: Sequence[str]
    rows: Iterable[Sequence[object]]
    title: str | None = None


class Output:
    """A command's result: one JSON object for machines; texts, tables and warnings for people; whether it failed."""

    def __init__(
        self, data: Mapping[str, Any], *parts: str | Table, warnings: Iterable[str] = (), failed: bool = False
    ) -> None:
        """Collect the result in both forms; an empty text is an empty line, and warnings go to standard error."""
        self.data, self.parts, self.warnings, self.failed = data, parts, warnings, failed


def show_output(output: Output, *, json: bool) -> None:
    """Print a command's result in one of its forms, and end the command with status 1 if it failed."""
    if json:
        print_json(output.data)
    else:
        for part in output.parts:
            if isinstance(part, Table):
                print_table(*part)
            else:
                say(part)
        for sentence in output.warnings:
            warn(sentence)
    if output.failed:
        raise typer.Exit(1)


class EarlyOutput(Exception):  # noqa: N818 - not an error: a dry run ends where it would charge
    """The result of a command that ends early."""

    def __init__(self, output: Output) -> None:
        """Hold the command's result."""
        super().__init__()
        self.output = output


def show_quote(quote: "Quote", options: "ChargeOptions", show: Callable[[str], None] = warn) -> None:
    """Show what to expect for the budget; EarlyOutput in a dry run, which that ends."""
    if options.dry_run:
        raise EarlyOutput(Output(quote.as_data(), *quote.lines()))
    for line in quote.lines():
        show(line)


def write_plan(plan: "Plan", out: Path, options: "ChargeOptions") -> Output:
    """Rehearse a plan for deployed silos, write it, and return its digest, with the whole plan for machines."""
    from ringfence.rehearsal.quote import rehearse

    quote = rehearse(plan)
    show_quote(quote, options)
    if not options.anyway:
        quote.require_worth()
    out.write_bytes(plan.content)
    return Output(
        {"digest": plan.digest(), **quote.as_data(), "plan": plan.model_dump(mode="json")},
        f"Wrote {out}. Once every silo's operator has approved it, `ringfence server run` runs it.",
        f"plan {plan.digest()}",
    )


def _without_infinity(value: Any) -> Any:
    """Return the content with null for infinity and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _without_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def require_folder(out: Path | None) -> None:
    """Refuse, before any work is done or any budget spent, an output file that could not be written."""
    if out is not None and not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise OutputError(
            f"{out} cannot be written: the folder {out.parent} does not exist, or you may not write to it."
        )


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table as wide as it needs, which a terminal wraps; columns of numbers are aligned right."""
    from rich.cells import cell_len

    content = [[visible(name) for name in header], *([cell(value) for value in row] for row in rows)]
    columns = list(zip(*content, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    are_numbers = [all(map(_is_number, column[1:])) for column in columns]
    if title is not None:
        say(title)
    for number, row in enumerate(content):
        line = ""
        for text, width, is_number in zip(row, widths, are_numbers, strict=True):
            space = " " * (width - cell_len(text))
            line += f"{space}{text}  " if is_number else f"{text}{space}  "
        typer.secho(line.rstrip(), bold=number == 0)


def cell(value: object) -> str:
    """Write a value for a table: four significant digits are enough for a person."""
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


def _is_number(text: str) -> bool:
    """Return whether a printed table's cell is a number, to align its column right."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def remark(bar: "Progress", sentence: str) -> None:
    """Print one sentence, in one line, on standard error, above a progress bar that may be there."""
    from rich.text import Text

    bar.console.print(Text(visible(sentence)), soft_wrap=True)
