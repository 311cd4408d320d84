"""`ringfence federation`: what the organiser of a federation does: found it, and sign what its parties ask for."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import say

app = typer.Typer(help="Set up a federation: an authority, and certificates for those who ask.", no_args_is_help=True)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="New folder; it will hold the authority's private key.")],
    server: Annotated[str, typer.Option(metavar="HOST[:PORT]", help="Where the silos reach the engine's server.")],
    silo: Annotated[list[str], typer.Option(metavar="NAME", help="A silo, as plans name it; once per silo.")],
    admin: Annotated[str, typer.Option(metavar="NAME", help="Who submits jobs.")] = "admin",
    here: Annotated[
        bool, typer.Option("--here", help="The engine's server runs on this machine: make its kits too, in the folder.")
    ] = False,
) -> None:
    """Found a federation: an authority of its own, and the list of who takes part. No silo's key is made here."""
    from ringfence.deployment.nvflare import federation, kit

    fingerprint = federation.init(folder, server, silo, admin)
    if here:
        request, _ = federation.request_server(folder, kit.address(server)[0], admin)
        response, _ = federation.sign(folder, request)
        federation.join_server(folder, response)
        say(f"Kit of the engine's server: {folder / 'server'}   (there: ringfence server start KIT)")
        say(f"Kit of the administrator:   {folder / 'admin'}   (there: ringfence server run ... --kit KIT)")
    say(
        "Each silo makes its own key (`ringfence silo request KIT --name NAME`) and sends you a request, which you "
        f"sign: `ringfence federation sign {folder} REQUEST...`."
    )
    say(f"The authority's fingerprint, for silos to compare: {fingerprint}")
    say(
        f"Whoever holds {folder / 'authority'} can admit others, and pose as any party to the engine; it cannot make a "
        "silo release anything that its operator did not approve. Keep it closed, and back it up."
    )


@app.command()
def sign(
    folder: Annotated[Path, typer.Argument(help="The federation's folder, made by `ringfence federation init`.")],
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", help="What parties sent: their requests.")],
    days: Annotated[int, typer.Option(min=1, max=3000, help="For how long the certificates hold.")] = 360,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="A party that was admitted before has a new key, as its owner told you.")
    ] = False,
) -> None:
    """Sign certificate requests; each response is written beside its request. To renew, sign the same one again."""
    from ringfence.deployment.nvflare import federation

    for request in requests:
        response, signed = federation.sign(folder, request, days=days, new_key=new_key)
        for each in signed:
            say(f"{each.name}, until {each.until:%Y-%m-%d}, with the key {each.fingerprint}")
        say(f"Send {response} back once you have compared the key with its owner; it holds nothing secret.")
