"""`ringfence silo backup` and `restore`: a copy of the ledger that forgets nothing, and how it is put back."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_result, require_folder
from ringfence.cli.silo import Folder, app, opened


@app.command()
def backup(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Write the copy here. Existing files are not overwritten.")],
    json: AsJson = False,
) -> None:
    """Copy the ledger and verify the copy, even while serving.

    Examples:
      ringfence silo backup north-silo --out north.backup
    """
    from ringfence.silo.backup import back_up

    require_folder(out)
    made = back_up(opened(folder), out)
    print_result(
        f"{out} is a complete copy of the ledger of silo '{made.silo}': {made.number} entries, the last with hash "
        f"{made.hash}.",
        {"out": str(out), "silo": made.silo, "entries": made.number, "head": made.hash},
        json=json,
    )


@app.command()
def restore(
    folder: Folder,
    copy: Annotated[Path, typer.Argument(metavar="BACKUP", help="A copy of this silo's ledger.")],
    json: AsJson = False,
) -> None:
    """Restore the ledger from a copy that lacks no known release.

    Examples:
      ringfence silo restore north-silo north.backup
    """
    from ringfence.silo.backup import restore as put_back

    made = put_back(opened(folder), copy)
    kept = f" The file it replaced is now {made.replaced}." if made.replaced else ""
    print_result(
        f"Restored the ledger of silo '{made.silo}': {made.number} entries, the last with hash {made.hash}.{kept} "
        "Before you serve it, compare number and hash with the newest certificate that anybody holds.",
        {
            "silo": made.silo,
            "entries": made.number,
            "head": made.hash,
            "replaced": None if made.replaced is None else str(made.replaced),
        },
        json=json,
    )
