"""`ringfence shuffler`: the party that mixes what silos send, so that the server cannot tell whose is whose."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import NewFolder, PlanFile, Which
from ringfence.cli.output import AsJson, print_json, print_result, print_table, say

app = typer.Typer(help="Set up and serve the shuffler of plans that trust one.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The shuffler's folder, made by `ringfence shuffler init`.")]
Port = Annotated[int, typer.Option(help="Serve on this port; 0 takes a free one.")]
Host = Annotated[str, typer.Option(help="Serve at this address; another than this machine's needs TLS.")]
Certificate = Annotated[Path | None, typer.Option(help="The certificate for TLS (PEM).")]
PrivateKey = Annotated[Path | None, typer.Option(help="The certificate's private key (PEM).")]


@app.command()
def init(folder: NewFolder, json: AsJson = False) -> None:
    """Make a shuffler's folder: a key that silos seal to, a token for the server, and an empty database."""
    from ringfence.shuffler.shuffler import Shuffler
    from ringfence.shuffler.store import Store

    with Store.create(folder) as store:
        key = Shuffler(store).public_key
    print_result(
        f"{folder} is ready: a shuffler whose key, for plans, is {key}. It serves no plan until you add one. Give "
        f"{folder / 'shuffler.token'} to the server's operator. Next: `ringfence shuffler add {folder} PLAN`, "
        f"`ringfence shuffler serve {folder}`.",
        {"folder": str(folder), "public_key": key},
        json=json,
    )


@app.command()
def add(folder: Folder, plan: PlanFile, json: AsJson = False) -> None:
    """Serve a plan from now on, also if the folder is being served already."""
    from ringfence.protocol.plan import load_plan
    from ringfence.shuffler.shuffler import Shuffler

    content = load_plan(plan)
    with Shuffler.open(folder) as shuffler:
        shuffler.add(content)
    digest = content.digest()
    print_result(f"Added plan {digest} of {len(content.silos)} silos.", {"added": digest}, json=json)


@app.command()
def end(folder: Folder, which: Which, json: AsJson = False) -> None:
    """Finish a plan: its messages and batches are deleted, and nothing of it is taken or let out any more."""
    from ringfence.protocol.plan import load_plan
    from ringfence.shuffler.shuffler import Shuffler

    named = load_plan(Path(which)).digest() if Path(which).is_file() else which.lower()
    with Shuffler.open(folder) as shuffler:
        digest = shuffler.end(named)
    print_result(f"Ended plan {digest}: its batches are deleted.", {"ended": digest}, json=json)


@app.command()
def restore(folder: Folder, json: AsJson = False) -> None:
    """Make an older copy of the folder safe to serve: end all its plans, whose batches it may have forgotten."""
    from ringfence.shuffler.service import restore as restore_folder

    ended = restore_folder(folder)
    print_result(
        f"Ended {len(ended)} plans for good; {folder} may be served. Add new plans: silos approve them anew.",
        {"ended": ended},
        json=json,
    )


@app.command()
def serve(
    folder: Folder,
    port: Port = 8790,
    host: Host = "127.0.0.1",
    certificate: Certificate = None,
    private_key: PrivateKey = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="How long a round waits for silos beyond the quorum, after the first.")
    ] = 10.0,
) -> None:
    """Take silos' envelopes and hand out mixed batches, until stopped; plans added meanwhile are served at once."""
    from ringfence.shuffler import service

    service.serve(
        folder,
        host=host,
        port=port,
        seconds=seconds,
        certificate=certificate,
        private_key=private_key,
        ready=lambda where: say(f"shuffler is served at {where}"),
    )


@app.command()
def status(folder: Folder, json: AsJson = False) -> None:
    """Show the key, the plans, and how many silos have deposited in each round."""
    from ringfence.shuffler.shuffler import Shuffler

    with Shuffler.open(folder) as shuffler:
        found = shuffler.status()
    if json:
        print_json(found)
        return
    say(f"Silos seal to the key {found['public_key']}.")
    if not found["plans"]:
        say(f"No plan is served. Next: `ringfence shuffler add {folder} PLAN`.")
    for plan in found["plans"]:
        ended = " It was ended." if plan.get("ended") else ""
        say(f"\nPlan {plan['plan']}, run {plan['run']}: {plan['silos']} silos, quorum {plan['quorum']}.{ended}")
        if plan["rounds"]:
            rows = [[entry["round"], entry["silos"], entry["state"]] for entry in plan["rounds"]]
            print_table(["round", "silos", "state"], rows)
        else:
            say("Nothing was deposited yet.")
