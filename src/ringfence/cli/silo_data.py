"""`ringfence silo update` and `register`: what an operator says of the silo's data, and of its ledger."""

from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_result
from ringfence.cli.silo import Folder, app, opened


@app.command()
def update(
    folder: Folder,
    reason: Annotated[str, typer.Option(help="What happened to the data, in one line; it will stand in the ledger.")],
    json: AsJson = False,
) -> None:
    """Go on with data that has changed: more records or persons, fewer, others, or the same in another order."""
    from ringfence.silo.decisions import update_data

    change = update_data(opened(folder), reason)
    print_result(
        f"{change.words()} An agent that runs has the former records, and answers nothing until it is started again. "
        "Plans that count another number are not answered any more, nor are those that divide records or persons by "
        "their places and have begun.",
        change.model_dump(),
        json=json,
    )


@app.command()
def register(
    folder: Folder,
    reason: Annotated[
        str, typer.Option(help="Why this ledger, if the records have another one that this registry knows.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Say that the folder's ledger is that of its data: after a move to another machine, or a lost registry."""
    from ringfence.silo.decisions import register as register_ledger

    silo_folder = opened(folder)
    said = register_ledger(silo_folder, reason)
    print_result(
        f"{silo_folder.ledger_path} is now registered as the ledger of its data. {said.words()}",
        {"ledger": str(silo_folder.ledger_path), **said.model_dump(exclude_none=True)},
        json=json,
    )
