"""`ringfence silo personalise` and `ringfence silo compare`: what a silo has of a federation's model for itself."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import Note
from ringfence.cli.output import AsJson, print_json, print_table, say
from ringfence.cli.silo import Folder, app, opened

FederationsModel = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The federation's model, as written by `ringfence train --out`.")
]


@app.command()
def personalise(folder: Folder, model: FederationsModel, note: Note = "", json: AsJson = False) -> None:
    """Adapt a model to the silo's own records: NOT PRIVATE.

    The result is for the silo only and stays in its folder. Cross-validation chooses how strongly it is pulled towards
    the federation's model. Nothing leaves the silo and nothing is charged; the ledger records that it was done.

    Examples:
      ringfence silo personalise north-silo model.json
    """
    from ringfence.model import Model
    from ringfence.personal import NOT_PRIVATE, personalise

    found = personalise(opened(folder), Model.load(model), note=note)
    if json:
        print_json(found.as_data())
        return
    own, federation = (found.as_data()["loss"][name] for name in ("own", "federation"))
    say(f"{NOT_PRIVATE}\n")
    print_table(["model", "cross-validated loss"], [["federation", federation], ["own", own]])
    say(f"\nStrength of the pull: {found.strength}.\nmodel {found.path}\npage {found.page}")


@app.command()
def compare(folder: Folder, model: FederationsModel, note: Note = "", json: AsJson = False) -> None:
    """Measure what taking part is worth to this silo: NOT PRIVATE.

    Three models are measured on records that none of them was fitted to: one fitted to the silo's records alone, the
    federation's, and the silo's adapted one. The result is for the silo only.

    Examples:
      ringfence silo compare north-silo model.json
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
        title=f"On {found.records} {found.unit}s that no model was fitted to",
    )
    say("\n".join(["", *found.sentences(), f"page {found.page}"]))
