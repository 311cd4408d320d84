"""`ringfence tour`: a whole federation on one machine, in one command."""

from typing import Annotated

import typer


def tour(rounds: Annotated[int, typer.Option(help="Rounds of the run.", min=1)] = 12) -> None:
    """Bring up an engine's server and three silos here, train, show the ledgers, and leave nothing behind."""
    from ringfence.deployment.tour import tour as run

    run(typer.echo, rounds=rounds)
