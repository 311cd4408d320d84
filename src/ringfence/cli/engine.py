"""`ringfence server start`: the engine's own server."""

from pathlib import Path
from typing import Annotated

import typer


def start(kit: Annotated[Path, typer.Argument(help="The engine server's startup kit.")]) -> None:
    """Run the engine's server from its kit, until it is ended."""
    from ringfence.deployment.nvflare.launch import run_server

    run_server(kit)
