"""`ringfence federation`: what the organiser of a federation does, once."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import say

app = typer.Typer(help="Set up a federation: certificates and one startup kit per party.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Keep `init` a command of its own while it is the only one."""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for the kits; it will hold private keys.")],
    server: Annotated[str, typer.Option(metavar="HOST[:PORT]", help="Where the silos reach the engine's server.")],
    silo: Annotated[list[str], typer.Option(metavar="NAME", help="A silo, as plans name it; once per silo.")],
    admin: Annotated[str, typer.Option(metavar="NAME", help="Who submits jobs.")] = "admin",
) -> None:
    """Make the startup kits: one per silo, the engine server's, and the administrator's."""
    from ringfence.deployment.nvflare.federation import init as make

    kits = make(folder, server, silo, admin)
    say(f"Kit of the engine's server: {kits.server}   (there: ringfence server start KIT)")
    say(f"Kit of the administrator:   {kits.admin}   (there: ringfence server run ... --engine nvflare --kit KIT)")
    for kit in kits.silos.values():
        say(f"Kit of a silo:              {kit}   (there: ringfence silo join FOLDER KIT)")
    say(
        "Hand each kit to its owner over a channel you both trust, then delete it here. Whoever holds a kit can pose "
        f"as its owner, and whoever holds {folder / 'authority'} can admit others; neither can make a silo release "
        "anything that its operator did not approve."
    )
