"""`ringfence doctor`: what is wrong on this machine, and what to do."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, say


def doctor(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Folders to check: of a silo or a shuffler, or a startup kit."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Check this machine and your folders, and say what to fix.

    The exit status is 1 if something is wrong.

    Examples:
      ringfence doctor
      ringfence doctor north-silo
    """
    from ringfence.doctor import examine

    findings = examine(folders or [])
    if json:
        print_json({"findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        for place in dict.fromkeys(finding.place for finding in findings):
            say(f"{place}:")
            for finding in findings:
                if finding.place == place:
                    say(f"  {'ok   ' if finding.well else 'WRONG'} {finding.check}: {finding.says}")
    if not all(finding.well for finding in findings):
        raise typer.Exit(1)
