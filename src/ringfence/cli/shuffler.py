"""`ringfence shuffler`: the party that mixes what silos send, so that the server cannot tell whose is whose."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ringfence.cli.options import App, NewFolder, PlanFile, Which, argument, option
from ringfence.cli.output import Output, Table, say
from ringfence.errors import require_extra
from ringfence.planning.options import offered

app = App(help="Set up and run a shuffler.")

Folder = Annotated[Path, argument("The shuffler's folder, made by `ringfence shuffler init`.")]


@dataclass(frozen=True)
class ServeOptions:
    """Where a shuffler serves, and how it shows who it is."""

    port: int = offered(8790, "Port to serve on; 0 picks a free one.")
    host: str = offered("127.0.0.1", "Address to serve on. Any but a local one needs TLS.")
    certificate: Path | None = offered(None, "The certificate for TLS (PEM).")
    private_key: Path | None = offered(None, "The certificate's private key (PEM).")


@app.command()
def init(folder: NewFolder) -> Output:
    """Create a shuffler's folder: key, server token and database.

    Examples:
      ringfence shuffler init shuffler
    """
    from ringfence.shuffler.shuffler import Shuffler
    from ringfence.shuffler.store import Store

    with Store.create(folder) as store:
        key = Shuffler(store).public_key
    return Output(
        {"folder": str(folder), "public_key": key},
        f"{folder} is ready. The shuffler's public key, for plans, is {key}. It serves no plan until you add one. Give "
        f"{folder / 'shuffler.token'} to the server's operator. Next: `ringfence shuffler add {folder} PLAN`, then "
        f"`ringfence shuffler serve {folder}`.",
    )


@app.command()
def add(folder: Folder, plan: PlanFile) -> Output:
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
    return Output({"added": digest}, f"Added plan {digest} with {len(content.silos)} silos.")


@app.command()
def end(folder: Folder, which: Which) -> Output:
    """End a plan and delete its messages and batches.

    The shuffler takes no more messages for it and releases no more batches.
    """
    from ringfence.protocol import load_plan
    from ringfence.shuffler.shuffler import Shuffler

    named = load_plan(Path(which)).digest() if Path(which).is_file() else which.lower()
    with Shuffler.open(folder) as shuffler:
        digest = shuffler.end(named)
    return Output({"ended": digest}, f"Ended plan {digest} and deleted its batches.")


@app.command()
def restore(folder: Folder) -> Output:
    """Make an older copy of the folder safe to serve.

    It ends all plans of the copy, which may have forgotten batches that it released.
    """
    require_extra("serving", "A shuffler", "starlette", "uvicorn")
    from ringfence.shuffler.service import restore as restore_folder

    ended = restore_folder(folder)
    return Output(
        {"ended": ended},
        f"Ended {len(ended)} plans permanently. {folder} may be served again, with new plans that the silos approve.",
    )


@app.command()
def serve(
    folder: Folder,
    options: ServeOptions,
    seconds: Annotated[
        float, option("After the first message, how long a round waits for silos beyond the quorum.", min=0.0)
    ] = 10.0,
) -> None:
    """Collect sealed messages and release mixed batches, until stopped.

    Plans that you add in the meantime are served at once.

    Examples:
      ringfence shuffler serve shuffler --port 8790
    """
    require_extra("serving", "A shuffler", "starlette", "uvicorn")
    from ringfence.shuffler import service

    service.serve(folder, seconds=seconds, ready=lambda where: say(f"shuffler is served at {where}"), **vars(options))


@app.command()
def status(folder: Folder) -> Output:
    """Show the key, the plans, and the messages of each round."""
    from ringfence.shuffler.shuffler import Shuffler

    with Shuffler.open(folder) as shuffler:
        found = shuffler.status()
    return Output(found, *_describe_status(found, folder))


def _describe_status(found: Mapping[str, Any], folder: Path) -> Iterator[str | Table]:
    """Yield what `shuffler status` says, for people."""
    yield f"Silos seal their messages to the key {found['public_key']}."
    if not found["plans"]:
        yield f"There is no plan yet. Next: `ringfence shuffler add {folder} PLAN`."
    for plan in found["plans"]:
        ended = " Ended." if plan.get("ended") else ""
        yield f"\nPlan {plan['plan']}, run {plan['run']}: {plan['silos']} silos, quorum {plan['quorum']}.{ended}"
        header = ["round", "silos", "state"]
        if plan["rounds"]:
            yield Table(header, [[entry[name] for name in header] for entry in plan["rounds"]])
        else:
            yield "No message has arrived yet."
