"""`ringfence silo join` and `ringfence silo courier`: a silo's side of the engine."""

from pathlib import Path
from typing import Annotated

import typer

# Not required to be readable: a courier of another user may reach the door in it, and list nothing.
Folder = Annotated[Path, typer.Argument(readable=False, help="The silo's own folder.")]
Kit = Annotated[Path, typer.Argument(help="The silo's startup kit, outside that folder.")]


def join(folder: Folder, kit: Kit) -> None:
    """Tie a startup kit to the silo: write the site's policy, by which only our courier may run, and check it."""
    from ringfence.deployment.nvflare import policy

    policy.join(folder, kit)
    typer.echo(f"{kit} now belongs to the silo in {folder}: jobs may use our courier there, and nothing else.")
    typer.echo("Start it with `ringfence silo courier FOLDER KIT`, best as a user who may not read the silo's data.")


def courier(folder: Folder, kit: Kit) -> None:
    """Check the site's policy, then run the engine's client, until it is ended."""
    from ringfence.deployment.nvflare.launch import run_client

    run_client(folder, kit)
