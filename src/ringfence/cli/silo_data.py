"""`ringfence silo update` and `register`: what an operator says of the silo's data, and of its ledger."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_result

Folder = Annotated[Path, typer.Argument(help="The silo's folder, made by `ringfence silo init`.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to those of `ringfence silo`."""
    app.command()(update)
    app.command()(register)


def update(
    folder: Folder,
    reason: Annotated[str, typer.Option(help="What happened to the data, in one line; it will stand in the ledger.")],
    json: AsJson = False,
) -> None:
    """Go on with data that has changed: more records or persons, fewer, others, or the same in another order."""
    from ringfence.silo.decisions import update_data
    from ringfence.silo.folder import SiloFolder

    change = update_data(SiloFolder.open(folder), reason)
    print_result(
        f"{change.words()} An agent that runs has the former records, and answers nothing until it is started again. "
        "Plans that count another number are not answered any more, nor are those that divide records or persons by "
        "their places and have begun.",
        change.model_dump(),
        json=json,
    )


def register(
    folder: Folder,
    reason: Annotated[
        str, typer.Option(help="Why this ledger, if the records have another one that this registry knows.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Say that the folder's ledger is that of its data: after a move to another machine, or a lost registry."""
    from ringfence.silo.decisions import register as register_ledger
    from ringfence.silo.folder import SiloFolder

    silo_folder = SiloFolder.open(folder)
    said = register_ledger(silo_folder, reason)
    print_result(
        f"{silo_folder.ledger_path} is now registered as the ledger of its data. {said.words()}",
        {"ledger": str(silo_folder.ledger_path), **said.model_dump(exclude_none=True)},
        json=json,
    )
