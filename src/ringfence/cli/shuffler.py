"""`ringfence shuffler`: the party that mixes what silos send, so that the server cannot tell whose is whose."""

from pathlib import Path
from typing import Annotated

from ringfence.cli.help import App
from ringfence.cli.options import AsJson, NewFolder, PlanFile, Which, argument, option
from ringfence.cli.output import print_json, print_result, print_table, say
from ringfence.errors import require_extra

app = App(help="Set up and run a shuffler.")

Folder = Annotated[Path, argument("The shuffler's folder, made by `ringfence shuffler init`.")]
Port = Annotated[int, option("Port to serve on; 0 picks a free one.")]
Host = Annotated[str, option("Address to serve on. Any but a local one needs TLS.")]
Certificate = Annotated[Path | None, option("The certificate for TLS (PEM).")]
PrivateKey = Annotated[Path | None, option("The certificate's private key (PEM).")]


@app.command()
def init(folder: NewFolder, json: AsJson = False) -> None:
    """Create a shuffler's folder: key, server token and database.

    Examples:
      ringfence shuffler init shuffler
    """
    from ringfence.shuffler.shuffler import Shuffler
    from ringfence.shuffler.store import Store

    with Store.create(folder) as store:
        key = Shuffler(store).public_key
    print_result(
        f"{folder} is ready. The shuffler's public key, for plans, is {key}. It serves no plan until you add one. Give "
        f"{folder / 'shuffler.token'} to the server's operator. Next: `ringfence shuffler add {folder} PLAN`, then "
        f"`ringfence shuffler serve {folder}`.",
        {"folder": str(folder), "public_key": key},
        json=json,
    )


@app.command()
def add(folder: Folder, plan: PlanFile, json: AsJson = False) -> None:
    """Add a plan, also while the shuffler is running.

    Examples:
      ringfence shuffler add shuffler plan.json
    """
    from ringfence.protocol import load_plan
    from ringfence.shuffler.shuffler import Shuffler

    content = load_plan(plan)
    with Shuffler.open(folder) as shuffler:
        shuffler.add(content)
    digest = content.digest()
    print_result(f"Added plan {digest} with {len(content.silos)} silos.", {"added": digest}, json=json)


@app.command()
def end(folder: Folder, which: Which, json: AsJson = False) -> None:
    """End a plan and delete its messages and batches.

    The shuffler takes no more messages for it and releases no more batches.
    """
    from ringfence.protocol import load_plan
    from ringfence.shuffler.shuffler import Shuffler

    named = load_plan(Path(which)).digest() if Path(which).is_file() else which.lower()
    with Shuffler.open(folder) as shuffler:
        digest = shuffler.end(named)
    print_result(f"Ended plan {digest} and deleted its batches.", {"ended": digest}, json=json)


@app.command()
def restore(folder: Folder, json: AsJson = False) -> None:
    """Make an older copy of the folder safe to serve.

    It ends all plans of the copy, which may have forgotten batches that it released.
    """
    require_extra("serving", "A shuffler", "fastapi", "uvicorn")
    from ringfence.shuffler.service import restore as restore_folder

    ended = restore_folder(folder)
    print_result(
        f"Ended {len(ended)} plans permanently. {folder} may be served again, with new plans that the silos approve.",
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
        float,
        option("After the first message, how long a round waits for silos beyond the quorum.", min=0.0),
    ] = 10.0,
) -> None:
    """Collect sealed messages and release mixed batches, until stopped.

    Plans that you add in the meantime are served at once.

    Examples:
      ringfence shuffler serve shuffler --port 8790
    """
    require_extra("serving", "A shuffler", "fastapi", "uvicorn")
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
    """Show the key, the plans, and the messages of each round."""
    from ringfence.shuffler.shuffler import Shuffler

    with Shuffler.open(folder) as shuffler:
        found = shuffler.status()
    if json:
        print_json(found)
        return
    say(f"Silos seal their messages to the key {found['public_key']}.")
    if not found["plans"]:
        say(f"There is no plan yet. Next: `ringfence shuffler add {folder} PLAN`.")
    for plan in found["plans"]:
        ended = " Ended." if plan.get("ended") else ""
        say(f"\nPlan {plan['plan']}, run {plan['run']}: {plan['silos']} silos, quorum {plan['quorum']}.{ended}")
        if plan["rounds"]:
            rows = [[entry["round"], entry["silos"], entry["state"]] for entry in plan["rounds"]]
            print_table(["round", "silos", "state"], rows)
        else:
            say("No message has arrived yet.")
