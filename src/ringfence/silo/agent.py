"""The silo's own service around its gate: one door, on this machine only.

A courier hands in a round's request and gets the gate's answer, or a fixed sentence that says why the bytes were not
one. Every reply is a message of the protocol or a constant: nothing in it, nor in what the agent prints, is computed
from a record. There is no log of requests beside the ledger, and no metric.

The door is a Unix socket that only its owner may use, or a port of the loopback interface where a courier must show
the door's token. One connection carries one request, and must bring it whole within `RECEIVE_SECONDS`.
"""

import asyncio
import hmac
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import closing
from types import FrameType
from typing import Any, TypeAlias

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from ringfence.errors import LedgerError, MessageError, SiloError
from ringfence.protocol.messages import SIZE_LIMIT, Reason, Refusal, RoundRequest
from ringfence.silo.gate import Gate
from ringfence.silo.house import House
from ringfence.silo.ledger import Account, Ledger

RECEIVE_SECONDS = 30.0
SMALL_REQUEST = 2**20
"""Requests up to this many bytes are read whatever they ask; longer ones only if an approved plan needs them."""

_FRAME = 1024  # more than a request has around its weights
_CONNECTIONS = 32
_LOOPBACK = "127.0.0.1"

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_SENTENCES = {
    400: "This is not a round's request.",
    401: "Show the door's token.",
    404: "There is nothing here.",
    405: "The door is not used that way.",
    408: "The request came too slowly.",
    413: "The request is longer than any approved plan needs.",
    421: "The door answers to localhost only.",
    503: "The agent cannot answer now; ask again later.",
}

_RESPONSES: dict[int | str, dict[str, Any]] = {status: {"description": text} for status, text in _SENTENCES.items()}


class Agent:
    """The ASGI application. `token` is what callers must show, if anything; all replies close the connection."""

    def __init__(self, gate: Gate, ledger: Ledger, token: str | None) -> None:
        self._gate = gate
        self._ledger = ledger
        self._token = None if token is None else token.encode()
        self._inner = self._routes()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Check who asks and how; whatever goes wrong behind the door, the caller gets a constant."""
        if scope["type"] != "http":
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            status = self._turned_away(scope)
            answer = self._inner if status is None else _fixed(status)
            await answer(scope, receive, watched)
        except ClientDisconnect:
            pass
        except Exception as problem:
            _complain(problem)
            if not begun:
                await _fixed(503)(scope, receive, send)

    def _turned_away(self, scope: MutableMapping[str, Any]) -> int | None:
        headers = [(name, value) for name, value in scope["headers"] if name in (b"host", b"authorization")]
        hosts = [value for name, value in headers if name == b"host"]
        # A browser that was led here under another name (DNS rebinding) says so in this header.
        if [value.rsplit(b":", 1)[0] for value in hosts] not in ([b"localhost"], [_LOOPBACK.encode()]):
            return 421
        shown = [value for name, value in headers if name == b"authorization"]
        if self._token is not None and not (
            len(shown) == 1 and hmac.compare_digest(shown[0], b"Bearer " + self._token)
        ):
            return 401
        return None

    def _routes(self) -> FastAPI:
        app = FastAPI(title="Ringfence silo agent", docs_url=None, redoc_url=None, redirect_slashes=False)

        async def refuse(_: Request, problem: Exception) -> Response:
            status = getattr(problem, "status_code", 400)
            return _fixed(status if status in _SENTENCES else 400)

        for status in (404, 405):
            app.add_exception_handler(status, refuse)

        body = {"required": True, "content": {"application/json": {"schema": RoundRequest.model_json_schema()}}}

        @app.post("/answer", responses=_RESPONSES, openapi_extra={"requestBody": body})
        async def answer(request: Request) -> Response:
            """Answer a round's request with a noisy update or a refusal."""
            return await self._answer(request)

        @app.get("/health", responses=_RESPONSES)
        async def health() -> Response:
            """Say that the agent is there."""
            return _reply(200, b'{"status":"serving"}')

        return app

    async def _answer(self, request: Request) -> Response:
        content = await self._read(request)
        if isinstance(content, int):
            return _fixed(content)
        return await run_in_threadpool(self._decide, content)

    async def _read(self, request: Request) -> bytes | int:
        """Return the body, or the status that says why it is not read to its end."""
        content = bytearray()
        limit = SMALL_REQUEST
        declared = request.headers.get("content-length", "")
        expected = int(declared) if declared.isdecimal() and declared.isascii() else 0
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                async for chunk in request.stream():
                    content += chunk
                    longest = max(expected, len(content))
                    if longest > limit:
                        limit = await run_in_threadpool(self._longest_request)
                        if longest > limit:
                            return 413
        except TimeoutError:
            return 408
        return bytes(content)

    def _longest_request(self) -> int:
        def dimension(account: Account) -> int:
            return max((p.plan.dimension for p in account.plans.values() if not p.ended), default=0)

        try:
            numbers = self._ledger.look(dimension)
        except LedgerError:
            return SMALL_REQUEST
        return min(SIZE_LIMIT, max(SMALL_REQUEST, _FRAME + 4 * -(-8 * numbers // 3)))

    def _decide(self, content: bytes) -> Response:
        try:
            request = RoundRequest.from_bytes(content)
        except MessageError:
            return _fixed(400)
        try:
            answer = self._gate.answer(request).to_bytes()
        except Exception as problem:
            _complain(problem)
            refusal = Refusal(plan=request.plan, round=request.round, silo=self._gate.silo, reason=Reason.UNAVAILABLE)
            answer = refusal.to_bytes()
        return _reply(200, answer)


def _reply(status: int, content: bytes) -> Response:
    return Response(content, status, {"connection": "close"}, "application/json")


def _fixed(status: int) -> Response:
    return _reply(status, f'{{"error":"{_SENTENCES[status]}"}}'.encode())


def _complain(problem: Exception) -> None:
    """Tell the operator that there is a bug, by its kind alone: an exception's text may hold a record's value."""
    print(  # noqa: T201 (the agent's only log)
        f"ringfence: a request could not be answered: {type(problem).__name__}. Please report this.",
        file=sys.stderr,
        flush=True,
    )


class _Connection(H11Protocol):
    """A connection that must bring its request's head in time; `Agent` sees to the body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(RECEIVE_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        request: object = self.cycle
        if request is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """A server that says when it is ready, and ends in peace when it is told to."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True


def serve(house: House, *, port: int | None = None, ready: Callable[[str], None] = lambda where: None) -> None:
    """Serve the folder until SIGTERM or SIGINT; `ready` is told where, when requests are taken.

    Raises, before anything is served, if the ledger cannot be trusted, the records cannot be read or another agent
    serves the folder.
    """
    port = house.settings.port if port is None else port
    with house.alone(), house.ledger() as ledger:
        gate = Gate(house.records(), ledger)
        token = None if port is None else house.token()
        if token is not None and len(token) < 32:
            raise SiloError(f"{house.token_path} holds no token of 32 characters or more; write a random one.")
        with closing(_listen(house, port)) as listening:
            address = listening.getsockname()
            house.tell_couriers(None if port is None else address[1])
            where = f"unix:{house.socket_path}" if port is None else f"{_LOOPBACK}:{address[1]}"
            try:
                _run(Agent(gate, ledger, token), listening, lambda: ready(where))
            finally:
                if port is None:
                    house.socket_path.unlink(missing_ok=True)


def _run(agent: Agent, listening: socket.socket, ready: Callable[[], None]) -> None:
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)  # what it would say is about callers, or a traceback
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
    config = uvicorn.Config(
        agent,
        interface="asgi3",
        http=_Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=30,
    )
    _Server(config, ready).run(sockets=[listening])


def _listen(house: House, port: int | None) -> socket.socket:
    """Open the door: what connects from now on waits until it is served."""
    try:
        if port is not None:
            listening = socket.create_server((_LOOPBACK, port))
        else:
            listening = _listen_on_socket(house)
            house.open_socket_to_couriers()
    except OSError as problem:
        where = house.socket_path if port is None else f"port {port}"
        raise SiloError(f"The door cannot be opened at {where}: {problem.strerror}.") from None
    return listening


def _listen_on_socket(house: House) -> socket.socket:
    house.socket_path.unlink(missing_ok=True)  # left by an agent that was killed: `alone` says there is no other
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(house.folder, os.O_PATH)  # a socket's address is short; the folder's path need not be
    previous = os.umask(0o177)
    try:
        listening.bind(f"/proc/self/fd/{folder}/{house.socket_path.name}")
        listening.listen()
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(previous)
        os.close(folder)
    return listening
