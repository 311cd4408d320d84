"""A report: one page that needs no network, and its figures as separate files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringfence import __version__
from ringfence.errors import OutputError
from ringfence.html.markup import Html, Value, document, tag
from ringfence.report.png import png_of


@dataclass(frozen=True)
class ReportPage:
    """A page's title and parts, and its figures by name; those that were not drawn are None."""

    title: str
    kicker: str
    parts: tuple[Value, ...]
    figures: Mapping[str, Html | None] = field(default_factory=dict)

    def html(self) -> str:
        """Return the page, whole: style and figures are inside it, and it loads and runs nothing."""
        footer = tag("footer", f"Written by Ringfence {__version__}. This page is one file: it loads and runs nothing.")
        head = tag("header", tag("p", self.kicker, class_="kicker"), tag("h1", self.title))
        return document(self.title, head, *self.parts, footer)

    def write(self, path: Path, *, figures: Path | None = None) -> None:
        """Write the page whole or not at all, and its figures into the folder `figures` if one is given.

        A figure is an SVG file, with a PNG file beside it where matplotlib is installed.
        """
        try:
            write_whole(path, self.html().encode())
            if figures is not None:
                figures.mkdir(parents=True, exist_ok=True)
                for name, drawn in self.figures.items():
                    if drawn is not None:
                        write_whole(figures / f"{name}.svg", f"{drawn}\n".encode())
                        if (picture := png_of(drawn)) is not None:
                            write_whole(figures / f"{name}.png", picture)
        except OSError as problem:
            raise OutputError(
                f"Cannot write the report {path} ({problem.strerror}). The model is safe; name another file."
            ) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def counted(number: int, what: str) -> str:
    """Return a number of things as a phrase: 1 silo, 2 silos."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def facts(pairs: Mapping[str, Value]) -> Html:
    """Return a page's few most important numbers."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs.items()), class_="facts")


def not_private(*children: Value) -> Html:
    """Return the warning above anything that was measured on records without noise."""
    return tag("p", tag("strong", "NOT PRIVATE: "), *children, class_="note warning")
