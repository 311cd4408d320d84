"""Startup kits: how a silo and the server make their keys, come to certificates, and start their part of the engine."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import server, silo
from ringfence.cli.output import say, warn

Response = Annotated[Path, typer.Argument(help="The organiser's response, as written by `ringfence federation sign`.")]
# Not required to be readable: a courier of another user may reach the door in it, and list nothing.
CourierFolder = Annotated[Path, typer.Argument(readable=False, help="The silo's own folder.")]
Kit = Annotated[Path, typer.Argument(help="The silo's startup kit, outside that folder.")]
ServerFolder = Annotated[Path, typer.Argument(help="Folder of the kits of the server and the administrator.")]


@silo.app.command()
def request(
    kit: Annotated[Path, typer.Argument(help="The silo's startup kit: a new folder. An existing kit keeps its key.")],
    name: Annotated[str, typer.Option(help="The silo's name in plans.")],
) -> None:
    """Make the silo's key for the engine, and a certificate request.

    The key stays in a kit on this machine; the request goes to the organiser.

    Examples:
      ringfence silo request north-kit --name north
    """
    from ringfence.deployment.nvflare import kit as kits

    content, fingerprint = kits.request(kit, name)
    file = kit.with_name(f"{kit.name}.request")
    file.write_bytes(content)
    say(f"{kit} holds the key, which stays here. Send {file} to the organiser; it contains nothing secret.")
    say(f"Tell the organiser the key's fingerprint through another channel: {fingerprint}")


@silo.app.command()
def join(
    folder: CourierFolder,
    kit: Kit,
    response: Annotated[
        Path | None,
        typer.Argument(help="The organiser's response. Default: the kit keeps its certificate."),
    ] = None,
    same_user: Annotated[
        bool,
        typer.Option(
            "--same-user",
            help="Let the courier run as a user who can read the silo's data. The ledger and all certificates say so.",
        ),
    ] = False,
) -> None:
    """Bind a startup kit to the silo, and let only our courier run.

    It writes the site's policy and checks it.

    Examples:
      ringfence silo join north-silo north-kit north-kit.response
    """
    from ringfence.deployment.nvflare import kit as kits
    from ringfence.deployment.nvflare import policy

    if same_user:
        from ringfence.silo.decisions import allow_same_user

        allow_same_user(silo.opened(folder))
    policy.join(folder, kit, kits.Response.read(response) if response else None, same_user=same_user)
    say(f"{kit} now belongs to the silo in {folder}. Jobs can use our courier there and nothing else.")
    say(f"Compare the authority's fingerprint with the organiser through another channel: {kits.authority_of(kit)}.")
    who = "" if same_user else " as a user who cannot read the silo's data"
    say(f"Start it with `ringfence silo courier FOLDER KIT`{who}.")


@silo.app.command()
def courier(folder: CourierFolder, kit: Kit) -> None:
    """Run the engine's client for the silo.

    The site's policy, the kit's dates and this user's permissions are checked first.

    Examples:
      ringfence silo courier north-silo north-kit
    """
    from ringfence.deployment.nvflare.launch import run_client

    run_client(folder, kit, _warn)


@server.app.command("request")
def request_server(
    folder: ServerFolder,
    host: Annotated[str, typer.Option(help="The host name at which silos reach this machine.")],
    admin: Annotated[str, typer.Option(metavar="NAME", help="The administrator, who submits jobs.")] = "admin",
) -> None:
    """Make the engine server's keys, and a certificate request.

    The keys of the server and its administrator stay on this machine; the request goes to the organiser.

    Examples:
      ringfence server request kits --host fl.example.org
    """
    from ringfence.deployment.nvflare.federation import request_server

    file, fingerprints = request_server(folder, host, admin)
    say(f"{folder} holds the keys, which stay here. Send {file} to the organiser; it contains nothing secret.")
    for name, fingerprint in fingerprints.items():
        say(f"Tell the organiser the fingerprint of {name} through another channel: {fingerprint}")


@server.app.command("join")
def join_server(folder: ServerFolder, response: Response) -> None:
    """Complete the kits of the server with the organiser's response.

    Examples:
      ringfence server join kits server.response
    """
    from ringfence.deployment.nvflare.federation import join_server

    join_server(folder, response)
    say(f"Start the engine's server with `ringfence server start {folder / 'server'}`.")
    say(f"Run a plan with `ringfence server run PLAN --engine nvflare --kit {folder / 'admin'} ...`.")


@server.app.command()
def start(kit: Annotated[Path, typer.Argument(help="The engine server's startup kit.")]) -> None:
    """Run the engine's server from its kit, until stopped.

    Examples:
      ringfence server start kits/server
    """
    from ringfence.deployment.nvflare.launch import run_server

    run_server(kit, _warn)


def _warn(sentence: str) -> None:
    warn(f"ringfence: {sentence}")
