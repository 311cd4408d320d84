"""A small HTTP service that trusts no caller: what the silo's agent and the shuffler have in common.

Every reply is a document of the protocol or a constant, and closes its connection. One connection carries one request,
which must come whole within some seconds and may have no more bytes than the service can use. Who calls is not logged.
Those who may not come in cannot keep others out (`transport.connections`).
"""

import asyncio
import hmac
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence.errors import RingfenceError, visible
from ringfence.transport.connections import Connection, Server, let_in

RECEIVE_SECONDS = 30.0
"""The body of a request must have come whole in this time, after its head."""


def json_reply(status: int, content: bytes) -> Response:
    """Answer an HTTP request with a JSON document, and end the connection."""
    return Response(content, status, {"connection": "close"}, "application/json")


class Service:
    """The ASGI application around a service's routes, and `/health`, which says that it is there.

    `sentences` are the constants that it answers with, by status; they must have one for 400, 404, 405, 408, 413, 503
    and whatever `turned_away` returns, which decides by the request's head alone whether it is let in.
    """

    def __init__(
        self, sentences: Mapping[int, str], turned_away: Callable[[Scope], int | None], *routes: Route
    ) -> None:
        """Make an HTTP service with a constant sentence for each status; `turned_away` tells strangers."""
        self._sentences = sentences
        self._turned_away = turned_away

        async def health(_: Request) -> Response:
            """Say that the HTTP service is there."""
            return json_reply(200, b'{"status":"serving"}')

        self._routes = (Route("/health", health), *routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who asks and how; whatever goes wrong behind the door, the caller gets a constant."""
        if scope["type"] != "http":
            return
        begun = False

        async def watched(message: Message) -> None:
            """Send a message of the HTTP service, and remember that the response has begun."""
            nonlocal begun
            begun = True
            await send(message)

        try:
            status = self._turned_away(scope)
            if status is None and not let_in(scope):
                status = 503
            answer = await self._answer(scope, receive) if status is None else self.fixed(status)
            await answer(scope, receive, watched)
        except ClientDisconnect:
            pass
        except Exception as problem:
            report_problem(problem)
            if not begun:
                await self.fixed(503)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """Return the HTTP service's answer to a request that was let in."""
        status = 404
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                answer: Response = await route.endpoint(Request({**scope, **found}, receive))
                return answer
            if match is Match.PARTIAL:
                status = 405
        return self.fixed(status)

    def fixed(self, status: int) -> Response:
        """Answer with the HTTP service's constant of this status."""
        return json_reply(status, f'{{"error":"{self._sentences[status]}"}}'.encode())


def shows_token(scope: Scope, token: bytes) -> bool:
    """Whether a request has exactly one `Authorization` header, with this bearer token."""
    shown = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(shown) == 1 and hmac.compare_digest(shown[0], b"Bearer " + token)


async def read_body(request: Request, *, small: int, longest: Callable[[], int]) -> bytes | int:
    """Return a request's body, or the HTTP status of the refusal.

    Up to `small` bytes are read whatever they are; only for more is `longest` asked how many are allowed.
    """
    content = bytearray()
    limit = small
    declared = request.headers.get("content-length", "")
    expected = int(declared) if declared.isdecimal() and declared.isascii() else 0
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            async for chunk in request.stream():
                content += chunk
                size = max(expected, len(content))
                if size > limit:
                    limit = max(small, await run_in_threadpool(longest))
                    if size > limit:
                        return 413
    except TimeoutError:
        return 408
    return bytes(content)


def report_problem(problem: Exception) -> None:
    """Tell the operator what went wrong: in our own words, or by its kind alone, since its text may hold a secret."""
    text = (
        visible(str(problem))
        if isinstance(problem, RingfenceError)
        else f"{type(problem).__name__}. Please report this."
    )
    print(f"ringfence: a request could not be answered: {text}", file=sys.stderr, flush=True)  # noqa: T201 (the only log)


def open_port(host: str, port: int, what: str, error: type[RingfenceError]) -> socket.socket:
    """Open a port, 0 for any that is free: what connects from now on waits until it is served."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "there is no such port"
        raise error(f"The {what} cannot be served at {host}, port {port}: {reason}. Name another port.") from None


def serve_application(
    application: ASGIApp,
    listening: socket.socket,
    ready: Callable[[], None],
    certificate: Path | None = None,
    private_key: Path | None = None,
) -> None:
    """Serve on an open socket until SIGTERM or SIGINT, with TLS if there is a certificate."""

    for name in ("uvicorn", "uvicorn.error"):  # what they would say is about callers, or a traceback
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    config = uvicorn.Config(
        application,
        interface="asgi3",
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=30,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    Server(config, ready).run(sockets=[listening])
