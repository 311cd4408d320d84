"""`ringfence silo backup`, `update`, `loss`, `personalise` and the like: a silo's ledger, data, programs and models."""

from pathlib import Path
from typing import Annotated

from ringfence.cli.options import Note, PlanFile, argument
from ringfence.cli.output import Output, Table, require_folder
from ringfence.cli.silo import Folder, app, opened
from ringfence.planning.options import REQUIRED, offered


@app.command()
def backup(
    folder: Folder, out: Path = offered(REQUIRED, "Write the copy here. Existing files are not overwritten.")
) -> Output:
    """Copy the ledger and verify the copy, even while serving.

    Examples:
      ringfence silo backup north-silo --out north.backup
    """
    from ringfence.silo.ledger.backup import back_up

    require_folder(out)
    made = back_up(opened(folder), out)
    return Output(
        {"out": str(out), "silo": made.silo, "entries": made.number, "head": made.head},
        f"{out} is a complete copy of the ledger of silo '{made.silo}': {made.number} entries, the last with hash "
        f"{made.head}.",
    )


@app.command()
def restore(
    folder: Folder, copy: Path = offered(REQUIRED, "A copy of this silo's ledger.", argument=True, metavar="BACKUP")
) -> Output:
    """Restore the ledger from a copy that lacks no known release.

    Examples:
      ringfence silo restore north-silo north.backup
    """
    from ringfence.silo.ledger.backup import restore as put_back

    made, replaced = put_back(opened(folder), copy)
    kept = f" The file it replaced is now {replaced}." if replaced else ""
    return Output(
        {
            "silo": made.silo,
            "entries": made.number,
            "head": made.head,
            "replaced": None if replaced is None else str(replaced),
        },
        f"Restored the ledger of silo '{made.silo}': {made.number} entries, the last with hash {made.head}.{kept} "
        "Before you serve it, compare number and hash with the newest certificate that anybody holds.",
    )


@app.command()
def update(
    folder: Folder, reason: str = offered(REQUIRED, "What happened to the data, in one line. It is kept in the ledger.")
) -> Output:
    """Continue with data that has changed.

    Records or persons may have been added, removed, replaced or reordered.

    Examples:
      ringfence silo update north-silo --reason "records of 2026 added"
    """
    from ringfence.silo.operator.decisions import update_data

    change = update_data(opened(folder), reason)
    return Output(
        change.model_dump(),
        f"{change.words()} A running agent still has the old records and answers nothing until you restart it. Plans "
        "for a different number of records or persons are no longer answered, and neither are plans under way that "
        "divide them by position.",
    )


@app.command()
def register(
    folder: Folder, reason: str = offered("", "Why this ledger, if the registry knows another one for these records.")
) -> Output:
    """Register the folder's ledger as the ledger of its data.

    This is needed after a move to another machine, or if the registry or the ledger's watermark was lost.

    Examples:
      ringfence silo register north-silo
    """
    from ringfence.silo.operator.decisions import register as register_ledger

    silo_folder = opened(folder)
    said = register_ledger(silo_folder, reason)
    return Output(
        {"ledger": str(silo_folder.ledger_path), **said.model_dump(exclude_none=True)},
        f"{silo_folder.ledger_path} is now registered as the ledger of its data. {said.words()}",
    )


@app.command()
def loss(
    folder: Folder,
    plan: PlanFile,
    install: str | None = offered(
        None, "Let the silo compute it: its SHA-256 as shown, or the first 12 characters.", metavar="HEX"
    ),
) -> Output:
    """Show the program of a plan's own loss, or install it.

    Read it before you install it: it decides what is learned from the silo's records.

    Examples:
      ringfence silo loss north-silo plan.json
      ringfence silo loss north-silo plan.json --install 5c1f0d2a9b7e
    """
    from ringfence.errors import PlanError
    from ringfence.protocol import load_plan
    from ringfence.protocol.losses.elementwise import read
    from ringfence.storage.files import replace_private

    own, loaded = opened(folder), load_plan(plan)
    found = loaded.loss.program if loaded.dimension else None
    if found is None:
        raise PlanError("This plan has no loss of its own, so there is no program to read or to install.")
    place = own.path / "losses" / found.file_name
    if install is not None:
        if len(install) < 12 or not found.digest.startswith(install.lower()):
            raise PlanError(f"The program in {plan} does not have that SHA-256. Read it again, without --install.")
        read(found.source)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        replace_private(place, found.source.encode())
    data = {
        "title": found.title,
        "sha256": found.digest,
        "source": found.source,
        "installed": None if found.missing else str(place),
    }
    if install is not None:
        return Output(data, f"Silo '{own.name}' computes the loss '{found.title}' in plans that you approve: {place}")
    return Output(
        data,
        found.source.rstrip("\n"),
        warnings=[
            f"This loss would be computed on the records. To allow it: ringfence silo loss {folder} {plan} --install "
            f"{found.digest[:12]}"
        ],
    )


FederationsModel = Annotated[
    Path, argument("The federation's model, as written by `ringfence train --out`.", metavar="MODEL")
]


@app.command()
def personalise(folder: Folder, model: FederationsModel, note: Note = "") -> Output:
    """Adapt a model to the silo's own records: NOT PRIVATE.

    The result is for the silo only and stays in its folder. Cross-validation chooses how strongly it is pulled towards
    the federation's model. Nothing leaves the silo and nothing is charged; the ledger records that it was done.

    Examples:
      ringfence silo personalise north-silo model.json
    """
    from ringfence.model.model import Model
    from ringfence.model.personal import NOT_PRIVATE, personalise

    found = personalise(opened(folder), Model.load(model), note=note)
    data = found.as_data()
    return Output(
        data,
        f"{NOT_PRIVATE}\n",
        Table(["model", "cross-validated loss"], [[name, data["loss"][name]] for name in ("federation", "own")]),
        f"\nStrength of the pull: {found.strength}.\nmodel {found.path}\npage {found.page}",
    )


@app.command()
def compare(folder: Folder, model: FederationsModel, note: Note = "") -> Output:
    """Measure what taking part is worth to this silo: NOT PRIVATE.

    Three models are measured on records that none of them was fitted to: one fitted to the silo's records alone, the
    federation's, and the silo's adapted one. The result is for the silo only.

    Examples:
      ringfence silo compare north-silo model.json
    """
    from ringfence.model.model import Model
    from ringfence.model.personal import NOT_PRIVATE, compare

    found = compare(opened(folder), Model.load(model), note=note)
    return Output(
        found.as_data(),
        f"{NOT_PRIVATE}\n",
        Table(
            ["model", found.metric, "loss"],
            [[name, found.scores[name], found.losses[name]] for name in found.scores],
            f"On {found.records} {found.unit}s that no model was fitted to",
        ),
        "",
        *found.sentences(),
        f"page {found.page}",
    )
