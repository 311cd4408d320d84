"""The shuffler's own service: the server hands in silos' envelopes and fetches batches; nobody else gets in.

Callers must show the folder's token. The token keeps strangers out and no more: what a silo has signed and
sealed needs no trust in who carries it. Off this machine the service speaks TLS only.
"""

import ipaddress
import json
import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from ringfence.errors import ShufflerError
from ringfence.shuffler.shuffler import SECONDS, Shuffler, ShufflerRefusal, Waiting
from ringfence.shuffler.store import Store
from ringfence.shuffler.witness import Witness
from ringfence.storage.decision_log import DecisionLog
from ringfence.transport.serving import Service, json_reply, open_port, read_body, serve_application, shows_token

SMALL_DEPOSIT = 2**20
"""Bodies up to this many bytes are read whatever they are; longer ones only if a served plan needs them."""

_WAITING, _REFUSED = 202, 422

_SENTENCES = {
    400: "The request cannot be read.",
    401: "Show the shuffler's token.",
    404: "There is nothing here.",
    405: "The shuffler does not support this request.",
    408: "The request came too slowly.",
    413: "The request is longer than any served plan needs.",
    503: "The shuffler cannot answer now; ask again later.",
}


def application(shuffler: Shuffler, token: str) -> Service:
    """Return the HTTP service of a shuffler, for callers who show the token."""
    secret = token.encode()

    def turned_away(scope: Scope) -> int | None:
        """Return the status for a caller who does not show the shuffler's token; None for one who does."""
        return None if shows_token(scope, secret) else 401

    async def deposit(request: Request) -> Response:
        """Take a silo's sealed update, at the shuffler's HTTP service."""
        content = await read_body(request, small=SMALL_DEPOSIT, longest=shuffler.longest_deposit)
        if isinstance(content, int):
            return service.fixed(content)
        outcome = await run_in_threadpool(shuffler.deposit, content)
        return _refusal(outcome) if isinstance(outcome, ShufflerRefusal) else _document(200, receipt=outcome.value)

    async def batch(request: Request) -> Response:
        """Return a round's batch from the shuffler's HTTP service, or how many silos it waits for."""
        try:
            round = int(request.path_params["round"])
        except ValueError:
            return service.fixed(404)
        outcome = await run_in_threadpool(shuffler.release, request.path_params["plan"], round)
        if isinstance(outcome, ShufflerRefusal):
            return _refusal(outcome)
        if isinstance(outcome, Waiting):
            return _document(_WAITING, waiting=f"{outcome.silos} of {outcome.quorum} silos")
        return json_reply(200, outcome)

    routes = Route("/deposit", deposit, methods=["POST"]), Route("/batch/{plan}/{round}", batch)
    service = Service(_SENTENCES, turned_away, *routes)
    return service


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    seconds: float = SECONDS,
    certificate: Path | None = None,
    private_key: Path | None = None,
    ready: Callable[[str], None] = lambda where: None,
) -> None:
    """Run the shuffler's service until SIGTERM or SIGINT; `ready` is called with its address when it accepts requests.

    Raises, before anything is served, if the folder cannot be trusted or is older than its witness knows, another
    process serves it, or the service would be open to a network without TLS.
    """
    _check_transport(host, certificate, private_key)
    with Store(folder) as store, store.alone(), closing(DecisionLog(folder)) as log:
        shuffler = Shuffler(store, seconds=seconds, witness=Witness(store), note=log)
        shuffler.settle()
        service = application(shuffler, store.token())
        with closing(open_port(host, port, "shuffler", ShufflerError)) as listening:
            name = f"[{host}]" if ":" in host else host
            where = f"{'http' if certificate is None else 'https'}://{name}:{listening.getsockname()[1]}"
            serve_application(service, listening, lambda: ready(where), certificate, private_key)


def restore(folder: Path) -> list[str]:
    """End all plans of a shuffler's folder that is an older copy, or has lost its witness, and return them."""
    with Store(folder) as store, store.alone():
        return Shuffler(store, witness=Witness(store)).restore()


def _document(status: int, **content: str) -> Response:
    """Return a JSON response of the shuffler's service."""
    return json_reply(status, json.dumps(content, separators=(",", ":")).encode())


def _refusal(reason: ShufflerRefusal) -> Response:
    """Return the response of the shuffler's service for a refusal."""
    return _document(_REFUSED, refused=reason.value, error=reason.explanation)


def _check_transport(host: str, certificate: Path | None, private_key: Path | None) -> None:
    """Raise ShufflerError if the shuffler would be served over a network without TLS."""
    if (certificate is None) != (private_key is None):
        raise ShufflerError("TLS needs both a certificate and its private key: give --certificate and --private-key.")
    is_local = host == "localhost"
    with suppress(ValueError):
        is_local = is_local or ipaddress.ip_address(host).is_loopback
    if certificate is None and not is_local:
        raise ShufflerError(
            f"{host} can be reached over a network, where the token could be read: give --certificate and "
            "--private-key, or serve on 127.0.0.1."
        )
    if certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, private_key)
        except (OSError, ValueError):  # ssl.SSLError is an OSError
            raise ShufflerError(
                f"{certificate} and {private_key} are not a certificate and its private key in PEM, or this user may "
                "not read them."
            ) from None
