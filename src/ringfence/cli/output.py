"""Printing: JSON for machines on standard output, tables for people; progress goes to standard error.

All that the command line prints is printed here, and nothing in it is taken for more than text: what somebody else
wrote (a name, a category, a note, a file's name) can neither drive the terminal nor hide or forge a line of ours.
"""

import json as json_format
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.errors import OutputError
from ringfence.foreign_text import visible, visible_lines

# rich is imported where it is needed: `--help` needs none of it.
if TYPE_CHECKING:
    from rich.progress import Progress

    from ringfence.protocol.plan import Plan

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else.", rich_help_panel="Output")
]


def say(text: str = "", *, end: str = "\n") -> None:
    """Print a text of ours, which may have several lines, on standard output."""
    typer.echo(visible_lines(text) + end, nl=False)


def warn(sentence: str) -> None:
    """Print one sentence, in one line, on standard error."""
    typer.echo(visible(sentence), err=True)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers keep their full precision."""
    typer.echo(json_format.dumps(_without_infinity(content), indent=2, allow_nan=False))


def print_result(text: str, content: Mapping[str, Any], *, json: bool) -> None:
    """Print what a command did: a text for people, or one JSON object for machines."""
    if json:
        print_json(content)
    else:
        say(text)


def print_plan(plan: "Plan", sentence: str = "", *, json: bool) -> None:
    """Print a plan's digest, after what is to be said of it; or the whole plan for machines."""
    text = "\n".join(filter(None, [sentence, f"plan {plan.digest()}"]))
    print_result(text, {"digest": plan.digest(), "plan": plan.model_dump(mode="json")}, json=json)


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


def require_new(out: Path | None) -> None:
    """Refuse, before any budget is spent, to write over a file: it may be a model that cost a budget."""
    if out is not None and out.exists():
        raise OutputError(
            f"{out} already exists, and may hold a model that cost privacy budget: name another file, or add "
            "--overwrite."
        )


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; columns of numbers are aligned right."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    content = [[cell(value) for value in row] for row in rows]
    if title is not None:
        say(title)
    # A `Text` is no more than its characters: no markup, no code of an emoji in it means anything.
    table = Table(*(Column(Text(visible(name))) for name in header), box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(table.columns):
        column.justify = "right" if all(_is_number(row[place]) for row in content) else "left"
    for row in content:
        table.add_row(*map(Text, row))
    # As wide as it needs: a cell that was cut off helps nobody, and a terminal wraps by itself.
    Console(width=1000).print(table)


def cell(value: object) -> str:
    """Write a value for a table: four significant digits are enough for a person."""
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def progress() -> "Progress":
    """Return a progress bar on standard error, shown only if that is a terminal.

    FORCE_COLOR, which notebooks set, makes rich take a file or a pipe for a terminal, and fill it with every frame.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )


def remark(bar: "Progress", sentence: str) -> None:
    """Print one sentence, in one line, on standard error, above a progress bar that may be there."""
    from rich.text import Text

    bar.console.print(Text(visible(sentence)), soft_wrap=True)
