"""`ringfence federation`: what the organiser of a federation does: found it, and sign what its parties ask for."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.help import App
from ringfence.cli.output import say

app = App(help="Found a federation and admit its members.")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for the authority and its private key.")],
    server: Annotated[str, typer.Option(metavar="HOST[:PORT]", help="Where the silos reach the engine's server.")],
    silo: Annotated[list[str], typer.Option(metavar="NAME", help="A silo's name in plans. Once per silo.")],
    admin: Annotated[str, typer.Option(metavar="NAME", help="The administrator, who submits jobs.")] = "admin",
    here: Annotated[
        bool,
        typer.Option("--here", help="The engine's server runs on this machine: also make its kits, in the folder."),
    ] = False,
) -> None:
    """Found a federation: its authority and the list of its members.

    No silo's key is made here: each silo makes its own.

    Examples:
      ringfence federation init federation --server fl.example.org --silo north --silo south --here
    """
    from ringfence.deployment.nvflare import federation, kit

    fingerprint = federation.init(folder, server, silo, admin)
    if here:
        request, _ = federation.request_server(folder, kit.address(server)[0], admin)
        response, _ = federation.sign(folder, request)
        federation.join_server(folder, response)
        say(f"Kit of the engine's server: {folder / 'server'}   (there: ringfence server start KIT)")
        say(f"Kit of the administrator:   {folder / 'admin'}   (there: ringfence server run ... --kit KIT)")
    say(
        "Each silo makes its own key (`ringfence silo request KIT --name NAME`) and sends you a request. Sign it with "
        f"`ringfence federation sign {folder} REQUEST...`."
    )
    say(f"The authority's fingerprint, for silos to compare: {fingerprint}")
    say(
        f"Whoever holds {folder / 'authority'} can admit members and impersonate any party to the engine, but cannot "
        "make a silo release anything that its operator did not approve. Restrict access to it, and back it up."
    )


@app.command()
def sign(
    folder: Annotated[Path, typer.Argument(help="The federation's folder, made by `ringfence federation init`.")],
    requests: Annotated[
        list[Path], typer.Argument(metavar="REQUEST...", help="Certificate requests that you received.")
    ],
    days: Annotated[int, typer.Option(min=1, max=3000, help="How long the certificates are valid.")] = 360,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key", help="Accept a new key from a party that was admitted before, once its owner has confirmed it."
        ),
    ] = False,
) -> None:
    """Sign certificate requests of members.

    Each response is written beside its request. To renew a certificate, sign the same request again.

    Examples:
      ringfence federation sign federation north-kit.request
    """
    from ringfence.deployment.nvflare import federation

    for request in requests:
        response, signed = federation.sign(folder, request, days=days, new_key=new_key)
        for each in signed:
            say(f"{each.name}, until {each.until:%Y-%m-%d}, with the key {each.fingerprint}")
        say(f"Compare the key with its owner, then send {response} back. It contains nothing secret.")
