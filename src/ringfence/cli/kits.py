"""Startup kits: how a silo and the server make their keys, come to certificates, and start their part of the engine."""

from pathlib import Path
from typing import Annotated

from ringfence.cli import server, silo
from ringfence.cli.options import App, argument, option
from ringfence.cli.output import say, warn
from ringfence.errors import require_extra
from ringfence.planning.options import REQUIRED, offered

Response = Annotated[Path, argument("The organiser's response, as written by `ringfence federation sign`.")]
# Not required to be readable: a courier of another user may reach the door in it, and list nothing.
CourierFolder = Annotated[Path, argument("The silo's own folder.", readable=False)]
Kit = Annotated[Path, argument("The silo's startup kit, outside that folder.")]
_FLOWER = "flower.toml"
"""What a kit for Flower holds, and no other."""
ServerFolder = Annotated[Path, argument("Folder of the kits of the server and the administrator.")]


@silo.app.command()
def request(
    kit: Path = offered(
        REQUIRED, "The silo's startup kit: a new folder. An existing kit keeps its key.", argument=True
    ),
    name: str = offered(REQUIRED, "The silo's name in plans."),
) -> None:
    """Make the silo's key for the engine, and a certificate request.

    The key stays in a kit on this machine; the request goes to the organiser.

    Examples:
      ringfence silo request north-kit --name north
    """
    require_extra("deployment", "A startup kit", "nvflare")
    from ringfence.deployment.nvflare import kit as kits

    content, fingerprint = kits.make_request(kit, name)
    file = kit.with_name(f"{kit.name}.request")
    file.write_bytes(content)
    say(f"{kit} holds the key, which stays here. Send {file} to the organiser; it contains nothing secret.")
    say(f"Tell the organiser the key's fingerprint through another channel: {fingerprint}")


@silo.app.command()
def join(
    folder: CourierFolder,
    kit: Kit,
    response: Path | None = offered(
        None, "The organiser's response. Default: the kit keeps its certificate.", argument=True
    ),
    same_user: bool = offered(
        False, "Let the courier run as a user who can read the silo's data. The ledger and all certificates say so."
    ),
) -> None:
    """Bind a startup kit to the silo, and let only our courier run.

    It writes the site's policy and checks it.

    Examples:
      ringfence silo join north-silo north-kit north-kit.response
    """
    if same_user:
        from ringfence.silo.operator.decisions import allow_same_user

        allow_same_user(silo.opened(folder))
    if (kit / _FLOWER).exists():
        from ringfence.deployment.flower.courier import join_kit

        join_kit(kit, same_user=same_user)
        say(f"{kit} belongs to the silo in {folder}. Start its courier with `ringfence silo courier FOLDER KIT`.")
        return
    require_extra("deployment", "A startup kit", "nvflare")
    from ringfence.deployment.nvflare import kit as kits
    from ringfence.deployment.nvflare import policy

    policy.join_kit(folder, kit, kits.Response.read(response) if response else None, same_user=same_user)
    say(f"{kit} now belongs to the silo in {folder}. Jobs can use our courier there and nothing else.")
    say(
        "Compare the authority's fingerprint with the organiser through another channel: "
        f"{kits.authority_fingerprint(kit)}."
    )
    who = "" if same_user else " as a user who cannot read the silo's data"
    say(f"Start it with `ringfence silo courier FOLDER KIT`{who}.")


@silo.app.command()
def courier(folder: CourierFolder, kit: Kit) -> None:
    """Run the engine's client for the silo.

    The site's policy, the kit's dates and this user's permissions are checked first.

    Examples:
      ringfence silo courier north-silo north-kit
    """
    if (kit / _FLOWER).exists():
        require_extra("flower", "A courier for Flower", "flwr")
        from ringfence.deployment.flower.courier import run_courier

        run_courier(folder, kit)
        return
    require_extra("deployment", "A courier", "nvflare")
    from ringfence.deployment.nvflare.launch import run_client

    run_client(folder, kit, _warn)


@server.app.command("request")
def request_server(
    folder: ServerFolder,
    host: str = offered(REQUIRED, "The host name at which silos reach this machine."),
    admin: str = offered("admin", "The administrator, who submits jobs.", metavar="NAME"),
) -> None:
    """Make the engine server's keys, and a certificate request.

    The keys of the server and its administrator stay on this machine; the request goes to the organiser.

    Examples:
      ringfence server request kits --host fl.example.org
    """
    require_extra("deployment", "A startup kit", "nvflare")
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
    require_extra("deployment", "A startup kit", "nvflare")
    from ringfence.deployment.nvflare.federation import join_server

    join_server(folder, response)
    say(f"Start the engine's server with `ringfence server start {folder / 'server'}`.")
    say(f"Run a plan with `ringfence server run PLAN --engine nvflare --kit {folder / 'admin'} ...`.")


@server.app.command()
def start(kit: Path = offered(REQUIRED, "The engine server's startup kit.", argument=True)) -> None:
    """Run the engine's server from its kit, until stopped.

    Examples:
      ringfence server start kits/server
    """
    require_extra("deployment", "The engine's server", "nvflare")
    from ringfence.deployment.nvflare.launch import run_server

    run_server(kit, _warn)


def _warn(sentence: str) -> None:
    """Print a sentence about a startup kit on standard error, with the program's name."""
    warn(f"ringfence: {sentence}")


app = App(help="Found a federation and admit its members.")


@app.command()
def init(
    folder: Path = offered(REQUIRED, "New folder for the authority and its private key.", argument=True),
    server: str = offered(REQUIRED, "Where the silos reach the engine's server.", metavar="HOST[:PORT]"),
    silo: list[str] = offered(REQUIRED, "A silo's name in plans. Once per silo.", metavar="NAME"),
    admin: str = offered("admin", "The administrator, who submits jobs.", metavar="NAME"),
    here: bool = offered(False, "The engine's server runs on this machine: also make its kits, in the folder."),
) -> None:
    """Found a federation: its authority and the list of its members.

    No silo's key is made here: each silo makes its own.

    Examples:
      ringfence federation init federation --server fl.example.org --silo north --silo south --here
    """
    require_extra("deployment", "A federation's authority", "nvflare")
    from ringfence.deployment.nvflare import federation, kit

    fingerprint = federation.found_federation(folder, server, silo, admin)
    if here:
        request, _ = federation.request_server(folder, kit.parse_address(server)[0], admin)
        response, _ = federation.sign_requests(folder, request)
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
    folder: Path = offered(REQUIRED, "The federation's folder, made by `ringfence federation init`.", argument=True),
    requests: list[Path] = offered(
        REQUIRED, "Certificate requests that you received.", argument=True, metavar="REQUEST..."
    ),
    days: Annotated[int, option("How long the certificates are valid.", min=1, max=3000)] = 360,
    new_key: bool = offered(
        False, "Accept a new key from a party that was admitted before, once its owner has confirmed it."
    ),
) -> None:
    """Sign certificate requests of members.

    Each response is written beside its request. To renew a certificate, sign the same request again.

    Examples:
      ringfence federation sign federation north-kit.request
    """
    require_extra("deployment", "A federation's authority", "nvflare")
    from ringfence.deployment.nvflare import federation

    for request in requests:
        response, signed = federation.sign_requests(folder, request, days=days, new_key=new_key)
        for each in signed:
            say(f"{each.name}, until {each.until:%Y-%m-%d}, with the key {each.fingerprint}")
        say(f"Compare the key with its owner, then send {response} back. It contains nothing secret.")
