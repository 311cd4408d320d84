"""`ringfence silo update` and `register`: what an operator says of the silo's data, and of its ledger."""

from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_result
from ringfence.cli.silo import Folder, app, opened


@app.command()
def update(
    folder: Folder,
    reason: Annotated[str, typer.Option(help="What happened to the data, in one line. It is kept in the ledger.")],
    json: AsJson = False,
) -> None:
    """Continue with data that has changed.

    Records or persons may have been added, removed, replaced or reordered.

    Examples:
      ringfence silo update north-silo --reason "records of 2026 added"
    """
    from ringfence.silo.decisions import update_data

    change = update_data(opened(folder), reason)
    print_result(
        f"{change.words()} A running agent still has the old records and answers nothing until you restart it. Plans "
        "for a different number of records or persons are no longer answered, and neither are plans under way that "
        "divide them by position.",
        change.model_dump(),
        json=json,
    )


@app.command()
def register(
    folder: Folder,
    reason: Annotated[
        str, typer.Option(help="Why this ledger, if the registry knows another one for these records.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Register the folder's ledger as the ledger of its data.

    This is needed after a move to another machine, or if the registry was lost.

    Examples:
      ringfence silo register north-silo
    """
    from ringfence.silo.decisions import register as register_ledger

    silo_folder = opened(folder)
    said = register_ledger(silo_folder, reason)
    print_result(
        f"{silo_folder.ledger_path} is now registered as the ledger of its data. {said.words()}",
        {"ledger": str(silo_folder.ledger_path), **said.model_dump(exclude_none=True)},
        json=json,
    )
