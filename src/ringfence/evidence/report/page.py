"""A report: one self-contained HTML page, and its charts as separate files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ringfence import __version__
from ringfence.errors import WHY, OutputError, os_error_as
from ringfence.html.markup import Html, Value, document, page_header, tag


@dataclass(frozen=True)
class ReportPage:
    """A page's title and parts, and its charts by name; those that were not drawn are None."""

    title: str
    kicker: str
    parts: tuple[Value, ...]
    figures: Mapping[str, Html | None] = field(default_factory=dict)

    def html(self) -> str:
        """Return the report as a whole HTML page, with style and charts inside it."""
        footer = tag(
            "footer", f"Written by Ringfence {__version__}. Self-contained page: no scripts, no external files."
        )
        return document(self.title, page_header(self.kicker, self.title), *self.parts, footer)

    def write(self, path: Path, *, svg: Path | None = None) -> None:
        """Write the report's page atomically, and its charts as SVG files into the folder `svg` if one is given."""
        with os_error_as(OutputError, f"Cannot write the report {path} ({WHY}). The model is safe; name another file."):
            write_whole(path, self.html().encode())
            if svg is not None:
                svg.mkdir(parents=True, exist_ok=True)
                for name, drawn in self.figures.items():
                    if drawn is not None:
                        write_whole(svg / f"{name}.svg", f"{drawn}\n".encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a report's or dossier's file atomically: whole or not at all."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def kicker_line(kind: str, subject: str) -> str:
    """Return the line above a report page's title: its kind, the present time, and its subject."""
    return f"{kind} · {datetime.now(UTC):%d %B %Y, %H:%M} UTC · {subject}"


def counted(number: int, what: str) -> str:
    """Return a number of things as a phrase for a report page: 1 silo, 2 silos."""
    return f"{number} {what}{'' if number == 1 else 's'}"
