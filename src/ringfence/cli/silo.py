"""`ringfence silo`: a silo's folder, its agent, what its operator decides, and its side of the engine."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.ledger import print_summary
from ringfence.cli.options import NewBeginning, NewFolder, Note, PlanFile, SchemaFile, UnusualBudget, Which
from ringfence.cli.output import AsJson, print_json, print_result, print_table, require_folder, say, warn
from ringfence.foreign_text import visible

if TYPE_CHECKING:
    from ringfence.silo.folder import SiloFolder

app = typer.Typer(help="Set up, decide for and serve one silo.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The silo's folder, made by `ringfence silo init`.")]
Epsilon = Annotated[float, typer.Option(help="The most that all releases from the data may cost together: epsilon.")]
Delta = Annotated[float, typer.Option(help="The delta at which all releases are counted.")]
Alone = Annotated[
    float | None,
    typer.Option(
        help="The most epsilon of plans that trust a shuffler, against a server that works together with it; by "
        "default no more than --epsilon."
    ),
]
Port = Annotated[
    int | None, typer.Option(help="Serve on this port of 127.0.0.1, token required; by default on a Unix socket.")
]


@app.command()
def init(
    folder: NewFolder,
    name: Annotated[str, typer.Option(help="The silo's name in plans.")],
    data: Annotated[Path, typer.Option(help="The silo's records: a CSV file, which stays where it is.")],
    schema: SchemaFile,
    epsilon: Epsilon,
    delta: Delta,
    alone: Alone = None,
    same_data_as: Annotated[
        Path | None, typer.Option(metavar="LEDGER", help="The ledger that these records have already; it goes on.")
    ] = None,
    new_beginning: NewBeginning = "",
    port: Port = None,
    courier_group: Annotated[
        str | None,
        typer.Option(help="A group of this machine whose members may carry messages, and read nothing else."),
    ] = None,
    note: Note = "",
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Make a silo's folder: settings, a ledger with a total budget, a signing key and a door token."""
    from ringfence.silo.budget import Budget
    from ringfence.silo.folder import SiloFolder, make_settings

    settings = make_settings(
        name=name,
        data_file=str(data),
        schema_file=str(schema),
        ledger_file=None if same_data_as is None else str(same_data_as),
        port=port,
        courier_group=courier_group,
    )
    granted = Budget(epsilon, delta, anyone=alone)
    silo_folder = SiloFolder.create(
        folder, settings, granted, note=note, unusual_budget=unusual_budget, new_beginning=new_beginning
    )
    print_result(
        f"{folder} is ready: silo '{name}', budget epsilon {epsilon:g} at delta {delta:g}. It answers no plan "
        f"until you approve one. Next: `ringfence silo review {folder} PLAN`, `ringfence silo serve {folder}`.",
        {"silo": name, "folder": str(silo_folder.path), "budget": granted.as_data()},
        json=json,
    )


@app.command()
def serve(folder: Folder, port: Port = None) -> None:
    """Answer the rounds of approved plans, until stopped; decisions made meanwhile take effect at once."""
    from ringfence.silo import agent

    silo_folder = opened(folder)
    agent.serve(silo_folder, port=port, ready=lambda where: say(f"silo '{silo_folder.name}' is served at {where}"))


@app.command()
def page(
    folder: Folder,
    port: Annotated[int, typer.Option(help="A port of 127.0.0.1; by default any free one.")] = 0,
) -> None:
    """Serve the operator's page to a browser on this machine: budget, waiting plans, ledger, and a stop button."""
    from ringfence.silo import operator

    silo_folder = opened(folder)
    token = operator.token_path(silo_folder)
    operator.serve(
        silo_folder,
        port=port,
        ready=lambda address: say(
            f"silo '{silo_folder.name}': open {address} in a browser here, and enter the token in {token}"
        ),
    )


@app.command()
def review(folder: Folder, plan: PlanFile, json: AsJson = False) -> None:
    """Say in plain words what a plan would reveal, to whom and at what cost; approve nothing."""
    from ringfence.protocol.plan import load_plan
    from ringfence.silo.decisions import review_plan

    result = review_plan(opened(folder), load_plan(plan))
    text, command = result.text(), ["ringfence", "silo", "approve", str(folder), str(plan)]
    if not result.objection:
        text += f"\n\n  {visible(shlex.join([*command, '--digest', result.plan.digest()]))}"
    print_result(text, result.data(), json=json)


@app.command()
def approve(
    folder: Folder,
    plan: PlanFile,
    digest: Annotated[
        str,
        typer.Option(metavar="HEX", help="The plan's digest as the review showed it, or its first 12 characters."),
    ],
    note: Note = "",
    json: AsJson = False,
) -> None:
    """Let the rounds of a plan that was reviewed be answered, and reserve their cost from the budget."""
    from ringfence.protocol.plan import load_plan
    from ringfence.silo.decisions import approve_plan, require_reviewed

    loaded = load_plan(plan)
    require_reviewed(loaded, digest)
    result = approve_plan(opened(folder), loaded, note=note)
    print_result(
        f"Approved plan {result.plan.digest()}: epsilon {result.own[0].epsilon:.4g} for each {result.plan.unit} is "
        f"reserved for it. All plans together may use {result.total[0].epsilon:.4g}; {result.remaining[0]:.4g} of the "
        f"budget of {result.budget.epsilon:.4g} is left.",
        {"approved": result.plan.digest(), **result.data()},
        json=json,
    )


@app.command()
def revoke(folder: Folder, which: Which, note: Note = "", json: AsJson = False) -> None:
    """Stop a plan at once: nothing of it is answered any more, not even what was answered before."""
    _end(folder, which, note, json, revoke=True)


@app.command()
def end(folder: Folder, which: Which, note: Note = "", json: AsJson = False) -> None:
    """Finish a plan: no new round is answered, and what it reserved and did not use is given back."""
    _end(folder, which, note, json, revoke=False)


def _end(folder: Path, which: str, note: str, json: bool, *, revoke: bool) -> None:
    from ringfence.silo.decisions import end_plan

    digest = end_plan(opened(folder), which, revoke=revoke, note=note)
    word = "revoked" if revoke else "ended"
    sentence = f"{word.capitalize()} plan {digest}: no further round of it is answered."
    print_result(sentence, {word: digest}, json=json)


@app.command()
def budget(
    folder: Folder,
    epsilon: Epsilon,
    delta: Delta,
    alone: Alone = None,
    note: Note = "",
    unusual_budget: UnusualBudget = False,
    json: AsJson = False,
) -> None:
    """Set the data's total budget; after a lowering every running plan waits until it is approved again."""
    from ringfence.silo.budget import Budget
    from ringfence.silo.decisions import set_budget

    granted = Budget(epsilon, delta, anyone=alone)
    set_budget(opened(folder), granted, note=note, unusual_budget=unusual_budget)
    print_result(f"The budget is now {granted}.", {"budget": granted.as_data()}, json=json)


@app.command()
def status(folder: Folder, json: AsJson = False) -> None:
    """Show the budget, what is guaranteed, used and left, every plan, and whether an agent serves the folder."""
    from ringfence.silo.decisions import status as read_status

    silo_folder = opened(folder)
    found = read_status(silo_folder)
    if json:
        print_json(found)
        return
    print_summary(found, silo_folder.ledger_path, ending=f"ringfence silo end {shlex.quote(str(folder))} PLAN")
    if found["objection"]:
        warn(f"No agent may answer here. {found['objection']}")
    say("An agent serves this folder." if found["serving"] else "No agent serves this folder.")
    say(f"Its certificates are signed with the key {found['public_key']}.")


@app.command()
def ledger(folder: Folder, json: AsJson = False) -> None:
    """List every entry of the silo's ledger."""
    from ringfence.silo.decisions import list_entries
    from ringfence.silo.summary import describe_entry

    entries = list_entries(opened(folder))
    if json:
        print_json({"entries": entries})
        return
    print_table(
        ["entry", "time", "kind", "about"], [[e["number"], e["time"], e["kind"], describe_entry(e)] for e in entries]
    )


@app.command()
def certificate(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Write the certificate here (JSON).")],
    json: AsJson = False,
) -> None:
    """Export a signed statement of everything ever released, for anybody to check with `ringfence verify`."""
    from ringfence.silo.certificate import export

    require_folder(out)
    made = export(opened(folder), out)
    print_result(
        f"{out} certifies {len(made.entries)} ledger entries of silo '{made.silo}'. Tell its readers, by another "
        f"way, that your key is {made.public_key}.",
        {"out": str(out), "silo": made.silo, "entries": len(made.entries), "public_key": made.public_key},
        json=json,
    )


def opened(folder: Path) -> "SiloFolder":
    """Open the folder that a command is about, and install the losses that its operator put there."""
    from ringfence.silo.folder import SiloFolder

    own = SiloFolder.open(folder)
    sources = [] if own.settings.workers else sorted((folder / "losses").glob("*.py"))
    if sources:
        from ringfence.errors import SiloError
        from ringfence.losses import install

        for source in sources:
            places = [path.stat() for path in (source, source.parent)]
            if any(place.st_mode & 0o022 or place.st_uid not in (0, os.geteuid()) for place in places):
                raise SiloError(
                    f"{source} may be changed by other users, and it would be run: chown it and its folder to the "
                    "silo's user, and chmod -R go-w them first."
                )
            install(source)
    return own
