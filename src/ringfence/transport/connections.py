"""Connections to a service: those of strangers, and those that were let in because their request showed the token.

A connection is a stranger's from the moment it is accepted, TLS handshake included, until the application says that its
request may come in (`let_in`). Strangers compete among themselves alone:

- There are at most `STRANGERS` of them. For one more, one is dropped: the oldest of the address that has the most. A
  caller who shows its token at once is therefore always served, however many others hold connections open.
- A request's head must have come whole within `HEAD_SECONDS` of the connection.
- Connections are accepted one at a time, in the order in which they came, and each is read from before the next.

Those who were let in have `CONNECTIONS` places, which no stranger can take. An answer must be read in time as well:
a caller who takes less than `LEAST_RATE` bytes a second, after `SEND_SECONDS`, is dropped with what is left of it.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEAD_SECONDS = 5.0
"""A request's head must have come whole in this time, TLS handshake included."""

SEND_SECONDS = 30.0
LEAST_RATE = 65536.0
"""An answer of that many bytes must be taken in SEND_SECONDS, and a second more for each LEAST_RATE of them."""

STRANGERS = 64
CONNECTIONS = 32

_WAITING = 2048  # connections that the system keeps until they are accepted: a caller waits its turn, and is not lost
_LET_IN = "let_in"


def let_in(scope: Scope) -> bool:
    """Count the request's connection among those let in; False if there are too many, and it stays a stranger.

    Only from the thread that serves.
    """
    admitted: bool = scope["state"][_LET_IN]()
    return admitted


class Server(uvicorn.Server):
    """A server that keeps strangers apart, says when it is ready, and shuts down cleanly."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        """Make the uvicorn server that counts its connections; `ready` is called once it accepts them."""
        super().__init__(config)
        self._ready = ready
        self._callers = _Callers()
        self._accepting: list[asyncio.Task[None]] = []
        self._ending: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept by ourselves: uvicorn would learn of a connection only when its TLS handshake is over."""
        self.servers = []
        for listening in sockets or []:
            listening.setblocking(False)
            listening.listen(_WAITING)
            self._accepting.append(asyncio.create_task(self._accept(listening)))
        self.started = True
        self._ready()

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections on a listening socket, one after the other."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:  # no file descriptor is left, or the caller has gone already
                await asyncio.sleep(0.1)
                continue
            Connection(self.config, self.server_state, self._callers, str(address[0]) if address else "").open(accepted)
            await asyncio.sleep(0)  # `sock_accept` gives nobody else a turn while connections wait

    async def main_loop(self) -> None:
        """Wait for the end without polling: uvicorn would wake every idle agent ten times a second."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        self._ending = lambda: loop.call_soon_threadsafe(ended.set)
        if not await self.on_tick(0):
            await ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, drop strangers, and finish the requests already admitted."""
        for task in self._accepting:
            task.cancel()
        self._callers.drop_strangers()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Remember only that we are to end: uvicorn would raise the signal again when it has."""
        self.should_exit = True
        self._ending()


class _Callers:
    """The connections of strangers, oldest first, and of those who were let in."""

    def __init__(self) -> None:
        """Begin without connections: neither strangers nor callers who were let in."""
        self._strangers: dict[Connection, None] = {}
        self._known: set[Connection] = set()

    def arrive(self, connection: "Connection") -> None:
        """Take one more stranger, in another's place if there are too many."""
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS:
            ((crowd, _),) = Counter(stranger.address for stranger in self._strangers).most_common(1)
            next(stranger for stranger in self._strangers if stranger.address == crowd).drop()

    def let_in(self, connection: "Connection") -> bool:
        """Give a stranger a place among those who were let in, if one is free."""
        if connection not in self._strangers or len(self._known) >= CONNECTIONS:
            return False
        del self._strangers[connection]
        self._known.add(connection)
        return True

    def forget(self, connection: "Connection") -> None:
        """Free the connection's place; again is fine."""
        self._strangers.pop(connection, None)
        self._known.discard(connection)

    def drop_strangers(self) -> None:
        """End all connections that were not let in."""
        for stranger in list(self._strangers):
            stranger.drop()


class Connection(H11Protocol):
    """One accepted connection. Nothing refers to it once it is closed: no timer, no list."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState, callers: _Callers, address: str) -> None:
        """Begin a caller's connection, which must send a request's head in time."""
        super().__init__(config, server_state, {_LET_IN: partial(callers.let_in, self)}, asyncio.get_running_loop())
        self.address = address
        self._callers = callers
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._timer = self.loop.call_later(HEAD_SECONDS, self._require_head)

    def open(self, accepted: socket.socket) -> None:
        """Begin to serve the connection: with the TLS handshake, if there is one."""

        def opened(_: object) -> None:
            """Free a connection whose TLS handshake has failed."""
            self._opening = None
            if not self._is_open:  # the handshake failed, or we were dropped before its end
                accepted.close()
                self._forget()

        self._opening = self.loop.create_task(self._serve(accepted))
        self._opening.add_done_callback(opened)
        self._callers.arrive(self)

    async def _serve(self, accepted: socket.socket) -> None:
        """Serve the accepted connection, after its TLS handshake."""
        with suppress(OSError):
            await self.loop.connect_accepted_socket(lambda: self, accepted, ssl=self.config.ssl)

    def drop(self) -> None:
        """End the connection at once, with whatever was not sent yet."""
        self._forget()
        if self._is_open:
            self.transport.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take what the caller sends from now on."""
        self._is_open = True
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the connection's place, and let go of it."""
        self._forget()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Give the connection's caller limited time to read the answer, which is all in memory now."""
        super().on_response_complete()
        self._timer.cancel()
        if self in self.connections:
            left = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(SEND_SECONDS + left / LEAST_RATE, self.drop)

    def _require_head(self) -> None:
        """Drop a connection that has not sent a request's head in time."""
        request: object = self.cycle
        if request is None:
            self.drop()

    def _forget(self) -> None:
        """Stop the connection's timer and free its place."""
        self._timer.cancel()
        self._callers.forget(self)
