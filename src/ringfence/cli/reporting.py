"""Options of commands that write a report or can be followed by a tracker, and what they mean."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.output import require_folder
from ringfence.errors import OutputError

if TYPE_CHECKING:
    from ringfence.tracking import TensorBoard

ReportFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the report here (HTML). Default: beside the model, or the ledgers.",
        rich_help_panel="Output",
    ),
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.", rich_help_panel="Output")]
Figures = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Also write the report's figures to this folder, as SVG and, if matplotlib is installed, PNG.",
        rich_help_panel="Output",
    ),
]
Track = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write each round's public numbers to this folder, for TensorBoard.",
        rich_help_panel="Output",
    ),
]


def report_path(
    report: Path | None, *, no_report: bool, figures: Path | None, model: Path | None, ledgers: Path
) -> Path | None:
    """Return where the report goes: where it was asked for, else beside the model, else with the ledgers.

    Refuses, before anything is spent, what contradicts itself or could not be written.
    """
    if no_report and report is not None:
        raise OutputError("--report and --no-report contradict each other: give one of them.")
    usual = ledgers / "ringfence-report.html" if model is None else model.with_suffix(".html")
    path = report or (None if no_report else usual)
    if figures is not None and path is None:
        raise OutputError("--figures needs a report: name its file with --report.")
    if path is not None and path == model:
        raise OutputError(f"The model and the report cannot both be written to {path}: name another file.")
    require_folder(path)
    return path


def trackers(folder: Path | None) -> "list[TensorBoard]":
    """Return who else follows the run: TensorBoard, if a folder was named for it."""
    if folder is None:
        return []
    from ringfence.tracking import TensorBoard

    return [TensorBoard(folder)]
