"""Printing: JSON for machines on standard output, tables for people; progress goes to standard error."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines, and nothing else.")]


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers keep their full precision."""
    typer.echo(json.dumps(content, indent=2, allow_nan=True))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; columns of numbers are aligned right."""
    content = [[cell(value) for value in row] for row in rows]
    table = Table(*header, title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(table.columns):
        numeric = all(row[place][:1].isdigit() or row[place] in ("-", "inf") for row in content)
        column.justify = "right" if numeric else "left"
    for row in content:
        table.add_row(*row)
    # As wide as it needs: a cell that was cut off helps nobody, and a terminal wraps by itself.
    Console(width=1000).print(table, markup=False, highlight=False)


def cell(value: object) -> str:
    """Write a value for a table: four significant digits are enough for a person."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def progress() -> Progress:
    """Return a progress bar on standard error, which hides itself when that is not a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
