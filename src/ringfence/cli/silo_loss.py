"""`ringfence silo loss`: the program of a loss that a plan brings, for the operator to read and to install."""

from typing import Annotated

import typer

from ringfence.cli.options import PlanFile
from ringfence.cli.output import AsJson, print_json, say, warn
from ringfence.cli.silo import Folder, app, opened


@app.command()
def loss(
    folder: Folder,
    plan: PlanFile,
    install: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="Let the silo run it: its SHA-256 as shown, or the first 12 characters."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the program of a plan's own loss, or let the silo run it.

    Read it before you install it: it runs on the silo's records.

    Examples:
      ringfence silo loss north-silo plan.json
      ringfence silo loss north-silo plan.json --install 5c1f0d2a9b7e
    """
    from ringfence.errors import PlanError
    from ringfence.protocol.plan import load_plan
    from ringfence.storage.private_files import replace_private

    own, loaded = opened(folder), load_plan(plan)
    found = loaded.loss.program if loaded.dimension else None
    if found is None:
        raise PlanError("This plan has no loss of its own, so there is no program to read or to install.")
    if own.settings.workers:
        raise PlanError("This silo's table is held by workers, which run no losses of plans: decline the plan.")
    place = own.path / "losses" / f"{found.title}-{found.digest[:12]}.py"
    if install is not None:
        if len(install) < 12 or not found.digest.startswith(install.lower()):
            raise PlanError(f"The program in {plan} does not have that SHA-256. Read it again, without --install.")
        place.parent.mkdir(mode=0o700, exist_ok=True)
        replace_private(place, found.source.encode())
    if json:
        told = {"title": found.title, "sha256": found.digest, "source": found.source}
        print_json({**told, "installed": str(place) if place.exists() else None})
    elif install is not None:
        say(f"Silo '{own.name}' now runs the loss '{found.title}' in plans that you approve: {place}")
    else:
        say(found.source.rstrip("\n"))
        warn(
            f"This program would run on the records, as the silo's user. To allow it: ringfence silo loss {folder} "
            f"{plan} --install {found.digest[:12]}"
        )
