"""What the pages of `ringfence reproduce` have in common, as Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path


def command(experiment: str, out: Path, quick: bool) -> str:
    """Return the command that writes an experiment's page into a folder of that name."""
    return f"ringfence reproduce {experiment} --out {out.name}" + " --quick" * quick


def made_by(line: str) -> str:
    """Say which command made a page."""
    return f"This command made everything on this page:\n\n```sh\n{line}\n```"


def table(head: Sequence[str], lines: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Return a table whose first columns, so many, are text and whose others are numbers."""
    align = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, align, *lines))


def bullets(notes: Iterable[str]) -> str:
    """Return a list of notes."""
    return "\n".join(f"- {note}" for note in notes)


def write_parts(path: Path, parts: Iterable[str]) -> Path:
    """Write the parts of a page, with empty lines between them; return its path."""
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path
