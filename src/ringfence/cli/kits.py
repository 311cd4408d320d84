"""Startup kits: how a silo and the server make their keys, come to certificates, and start their part of the engine."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import server, silo
from ringfence.cli.output import say, warn

Response = Annotated[Path, typer.Argument(help="What the organiser answered: a file that `federation sign` wrote.")]
# Not required to be readable: a courier of another user may reach the door in it, and list nothing.
CourierFolder = Annotated[Path, typer.Argument(readable=False, help="The silo's own folder.")]
Kit = Annotated[Path, typer.Argument(help="The silo's startup kit, outside that folder.")]
ServerFolder = Annotated[Path, typer.Argument(help="The folder of the server's and the administrator's kits.")]


@silo.app.command()
def request(
    kit: Annotated[Path, typer.Argument(help="The silo's startup kit: a new folder; one that has a key keeps it.")],
    name: Annotated[str, typer.Option(help="The silo's name in plans.")],
) -> None:
    """Make the silo's key for the engine, in a kit on this machine, and a certificate request for the organiser."""
    from ringfence.deployment.nvflare import kit as kits

    content, fingerprint = kits.request(kit, name)
    file = kit.with_name(f"{kit.name}.request")
    file.write_bytes(content)
    say(f"{kit} holds the key, which stays here. Send {file} to the organiser; it holds nothing secret.")
    say(f"Tell the organiser, by another way, the key's fingerprint: {fingerprint}")


@silo.app.command()
def join(
    folder: CourierFolder,
    kit: Kit,
    response: Annotated[
        Path | None,
        typer.Argument(help="What the organiser answered; by default the kit keeps the certificate that it has."),
    ] = None,
    same_user: Annotated[
        bool,
        typer.Option(
            "--same-user",
            help="Let the courier run as a user who can read the silo's data; the ledger and every certificate say so.",
        ),
    ] = False,
) -> None:
    """Tie a startup kit to the silo: write the site's policy, by which only our courier may run, and check it."""
    from ringfence.deployment.nvflare import kit as kits
    from ringfence.deployment.nvflare import policy

    if same_user:
        from ringfence.silo.decisions import allow_same_user

        allow_same_user(silo.opened(folder))
    policy.join(folder, kit, kits.Response.read(response) if response else None, same_user=same_user)
    say(f"{kit} now belongs to the silo in {folder}: jobs may use our courier there, and nothing else.")
    say(f"Its authority, which the organiser can tell you by another way, is {kits.authority_of(kit)}.")
    who = "" if same_user else " as a user who may not read the silo's data"
    say(f"Start it with `ringfence silo courier FOLDER KIT`{who}.")


@silo.app.command()
def courier(folder: CourierFolder, kit: Kit) -> None:
    """Check the site's policy, the kit's dates and this user's rights, then run the engine's client until it ends."""
    from ringfence.deployment.nvflare.launch import run_client

    run_client(folder, kit, _warn)


@server.app.command("request")
def request_server(
    folder: ServerFolder,
    host: Annotated[str, typer.Option(help="The name under which the silos reach this machine.")],
    admin: Annotated[str, typer.Option(metavar="NAME", help="Who submits jobs.")] = "admin",
) -> None:
    """Make the keys of the engine's server and its administrator on this machine, and a request for the organiser."""
    from ringfence.deployment.nvflare.federation import request_server

    file, fingerprints = request_server(folder, host, admin)
    say(f"{folder} holds the keys, which stay here. Send {file} to the organiser; it holds nothing secret.")
    for name, fingerprint in fingerprints.items():
        say(f"Tell the organiser, by another way, the fingerprint of {name}: {fingerprint}")


@server.app.command("join")
def join_server(folder: ServerFolder, response: Response) -> None:
    """Complete the kits of the engine's server and its administrator with what the organiser answered."""
    from ringfence.deployment.nvflare.federation import join_server

    join_server(folder, response)
    say(f"Start the engine's server with `ringfence server start {folder / 'server'}`.")
    say(f"Conduct a run with `ringfence server run PLAN --engine nvflare --kit {folder / 'admin'} ...`.")


@server.app.command()
def start(kit: Annotated[Path, typer.Argument(help="The engine server's startup kit.")]) -> None:
    """Run the engine's server from its kit, until it is ended."""
    from ringfence.deployment.nvflare.launch import run_server

    run_server(kit, _warn)


def _warn(sentence: str) -> None:
    warn(f"ringfence: {sentence}")
