"""`ringfence reproduce looking`: how precise private looking is, and whether its intervals cover what they should."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ringfence.research.experiments import (
    looking_coefficients,
    looking_errors,
    looking_evaluation,
    looking_quote,
    looking_statistics,
)
from ringfence.research.markdown import command, made_by, write_parts

Watch = Callable[[int, int], None]
SECTIONS: Mapping[str, Callable[[bool, Watch], str]] = {
    "Evaluation": looking_evaluation.section,
    "Errors with outliers": looking_errors.section,
    "Statistics": looking_statistics.section,
    "Coefficients": looking_coefficients.section,
    "The quote before a charge": looking_quote.section,
}
"""What is measured: each writes its part of the page, small if it is asked to."""


def reproduce_looking(out: Path, *, quick: bool = False, watch: Watch = lambda done, total: None) -> Path:
    """Measure everything and write looking.md into the folder `out`. `quick` is a rehearsal, not a result."""
    out.mkdir(parents=True, exist_ok=True)
    parts = [f"## {title}\n\n{write(quick, watch)}" for title, write in SECTIONS.items()]
    head = (
        "# Looking: how precise private figures are\n\nEvery epsilon on this page is for each record, against anyone "
        "who sees everything that its silo sends in one plan, fixed in advance."
    )
    return write_parts(out / "looking.md", [head, made_by(command("looking", out, quick)), *parts])
