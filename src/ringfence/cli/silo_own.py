"""`ringfence silo personalise` and `ringfence silo compare`: what a silo has of a federation's model for itself."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import Note
from ringfence.cli.output import AsJson, print_json, print_table, say
from ringfence.cli.silo import Folder, app, opened

FederationsModel = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The federation's model, as `ringfence train --out` writes it.")
]


@app.command()
def personalise(folder: Folder, model: FederationsModel, note: Note = "", json: AsJson = False) -> None:
    """Fit a federation's model on to the silo's own records, for the silo alone: NOT PRIVATE, and kept in its folder.

    Cross-validation chooses how hard it is pulled towards the federation's. Nothing leaves and nothing is charged; the
    ledger says that it was done.
    """
    from ringfence.model import Model
    from ringfence.personal import NOT_PRIVATE, personalise

    found = personalise(opened(folder), Model.load(model), note=note)
    if json:
        print_json(found.as_data())
        return
    own, federation = (found.as_data()["loss"][name] for name in ("own", "federation"))
    say(f"{NOT_PRIVATE}\n")
    print_table(["model", "loss in cross-validation"], [["federation", federation], ["own", own]])
    say(f"\nStrength of the pull: {found.strength}.\nmodel {found.path}\npage {found.page}")


@app.command()
def compare(folder: Folder, model: FederationsModel, note: Note = "", json: AsJson = False) -> None:
    """Say what taking part is worth to this silo, on held-out records: NOT PRIVATE, for the silo alone.

    Three models are measured on records that their fits did not see: one of the silo's records alone, the federation's,
    and the silo's own.
    """
    from ringfence.model import Model
    from ringfence.personal import NOT_PRIVATE, compare

    found = compare(opened(folder), Model.load(model), note=note)
    if json:
        print_json(found.as_data())
        return
    say(f"{NOT_PRIVATE}\n")
    print_table(
        ["model", found.metric, "loss"],
        [[name, found.scores[name], found.losses[name]] for name in found.scores],
        title=f"On {found.records} {found.unit}s that no fit saw",
    )
    say("\n".join(["", *found.sentences(), f"page {found.page}"]))
