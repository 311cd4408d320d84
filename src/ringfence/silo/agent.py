"""The silo's agent: a service around its gate, reachable from this machine only.

A courier sends a round's request and gets the gate's answer, or a constant error. Every reply is a message of the
protocol, a constant, or metrics of public numbers: nothing in it, and nothing that the agent prints or logs
(`silo.monitor`), is computed from a record without the plan's noise.

The door is a Unix socket that only its owner may use, or a port of the loopback interface, where a courier must show
the door's token. One connection carries one request, whose head and body must arrive in time (`transport.connections`,
`serving.RECEIVE_SECONDS`).
"""

import os
import socket
from collections.abc import Callable
from contextlib import closing

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from ringfence.errors import LedgerDamagedError, LedgerError, MessageError, SiloError
from ringfence.protocol import Answer, Refusal, RefusalReason, RoundRequest, SignedHead
from ringfence.protocol.documents.messages import MOST_HEADS, SIZE_LIMIT
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.monitor import Monitor
from ringfence.storage.decision_log import DecisionLog
from ringfence.transport import serving

SMALL_REQUEST = 2**20
"""Requests up to this many bytes are always read; longer ones only if an approved plan needs them."""

HEAD_HEADER = "ringfence-head"
"""The header in which a courier shows the latest head that it carried (`deployment.door`)."""

_FRAME = 1024 * (1 + MOST_HEADS)  # more than a request has around its weights
_LOOPBACK = "127.0.0.1"

_SENTENCES = {
    400: "This is not a request for a round.",
    401: "Show the door's token.",
    404: "There is nothing here.",
    405: "The door does not support this request.",
    408: "The request came too slowly.",
    413: "The request is longer than any approved plan needs.",
    421: "The door answers to localhost only.",
    503: "The agent cannot answer now; ask again later.",
}


class Agent(serving.Service):
    """The ASGI application. Callers must show the `token`, if there is one; all replies close the connection."""

    def __init__(self, gate: Gate, ledger: Ledger, token: str | None, monitor: Monitor) -> None:
        """Make the silo's agent around its gate; couriers must show the token, if there is one."""
        routes = Route("/answer", self._take, methods=["POST"]), Route("/metrics", self._metrics)
        super().__init__(_SENTENCES, self._is_stranger, *routes)
        self._gate = gate
        self._ledger = ledger
        self._monitor = monitor
        self._token = None if token is None else token.encode()
        self._rollback_reported = False

    def _is_stranger(self, scope: Scope) -> int | None:
        """Return the HTTP status for a caller of the agent who is not its courier; None for the courier."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        # A browser that was led here under another name (DNS rebinding) says so in this header.
        if [value.rsplit(b":", 1)[0] for value in hosts] not in ([b"localhost"], [_LOOPBACK.encode()]):
            return 421
        return 401 if self._token is not None and not serving.shows_token(scope, self._token) else None

    async def _take(self, request: Request) -> Response:
        """Answer a courier's request at the agent's door with a noisy update or a refusal."""
        content = await serving.read_body(request, small=SMALL_REQUEST, longest=self._longest_request)
        if isinstance(content, int):
            return self.fixed(content)
        return await run_in_threadpool(self._decide, content, request.headers.get(HEAD_HEADER, ""))

    async def _metrics(self, _: Request) -> Response:
        """Return the agent's metrics in Prometheus' format."""
        try:
            metrics = await run_in_threadpool(self._monitor.metrics)
        except LedgerError:
            return self.fixed(503)
        return Response(metrics, 200, {"connection": "close"}, "text/plain; version=0.0.4")

    def _longest_request(self) -> int:
        """Return the longest body that the agent reads, from the arguments of the silo's running plans."""

        def longest(account: Account) -> int:
            """Return the length of the longest argument that a running plan of the silo asks with."""
            running = [approved.plan for approved in account.plans.values() if not approved.ended]
            lengths = (stage.query.argument_length(plan) for plan in running for stage in plan.stages)
            return max(lengths, default=0)

        try:
            numbers = self._ledger.look(longest)
        except LedgerError:
            return SMALL_REQUEST
        return min(SIZE_LIMIT, max(SMALL_REQUEST, _FRAME + 4 * -(-8 * numbers // 3)))

    def _decide(self, content: bytes, carried: str = "") -> Response:
        """Return the agent's response to a request's body: what the gate answers, or an HTTP error."""
        try:
            request = _with_head(RoundRequest.from_bytes(content), carried)
        except MessageError:
            return self.fixed(400)
        try:
            given = self._gate.answer(request)
            self._report_rollback(given)
            answer = given.to_bytes()
        except Exception as problem:
            serving.report_problem(problem)
            refusal = Refusal(
                plan=request.plan, round=request.round, silo=self._gate.silo, reason=RefusalReason.UNAVAILABLE
            )
            answer = refusal.to_bytes()
            self._monitor.note("refused", plan=request.plan, round=request.round, reason=refusal.reason.value)
        return serving.json_reply(200, answer)

    def _report_rollback(self, answer: Answer) -> None:
        """Have the agent tell its operator, once, that the ledger was rolled back: the ledger cannot record it."""
        if isinstance(answer, Refusal) and answer.reason is RefusalReason.FORGOTTEN and not self._rollback_reported:
            self._rollback_reported = True
            serving.report_problem(
                LedgerDamagedError(
                    "This silo was shown its own signature under an entry that its ledger lacks: the ledger was "
                    "rolled back to an older copy, or another one is in use. Nothing more is released from it. Stop "
                    "the agent, and restore the newest copy (`ringfence silo restore`)."
                )
            )


def _with_head(request: RoundRequest, carried: str) -> RoundRequest:
    """Return the agent's request with the head that the courier showed, if that is a valid one."""
    try:
        head = SignedHead.parse(carried.encode(), error=MessageError, quote=False)
    except MessageError:
        return request
    heads = request.heads or ()
    return request if head in heads else request.model_copy(update={"heads": (*heads, head)})


def serve(folder: SiloFolder, *, port: int | None = None, ready: Callable[[str], None] = lambda where: None) -> None:
    """Run the silo's agent until SIGTERM or SIGINT; `ready` is called with its address once requests are accepted.

    Raises, before anything is served, if the ledger cannot be trusted, the records cannot be read, another agent serves
    the folder, or its couriers may read what they must not.
    """
    port = folder.settings.port if port is None else port
    with folder.alone(), folder.ledger() as ledger, closing(DecisionLog(folder.path)) as log:
        folder.require_closed(*folder.data_files(), folder.ledger_path, folder.key_path)
        monitor = Monitor(ledger, log)
        gate = Gate(folder.current_records(ledger), ledger, folder.key(), note=monitor.note)
        token = None if port is None else folder.token()
        listening = _listen_on_socket(folder) if port is None else serving.open_port(_LOOPBACK, port, "door", SiloError)
        with closing(listening):
            address = listening.getsockname()
            folder.tell_couriers(None if port is None else address[1])
            where = f"unix:{folder.socket_path}" if port is None else f"{_LOOPBACK}:{address[1]}"
            try:
                serving.serve_application(Agent(gate, ledger, token, monitor), listening, lambda: ready(where))
            finally:
                if port is None:
                    folder.socket_path.unlink(missing_ok=True)


def _listen_on_socket(folder: SiloFolder) -> socket.socket:
    """Open the agent's Unix socket in the silo's folder, for its couriers' group."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened = os.open(folder.path, os.O_PATH)  # a socket's address is short; the folder's path need not be
    previous = os.umask(0o177)
    try:
        folder.socket_path.unlink(missing_ok=True)  # left by an agent that was killed: `alone` says there is no other
        listening.bind(f"/proc/self/fd/{opened}/{folder.socket_path.name}")
        listening.listen()
        folder.open_to_couriers(folder.socket_path, 0o660)
    except OSError as problem:
        listening.close()
        raise SiloError(f"The door cannot be opened at {folder.socket_path}: {problem.strerror}.") from None
    finally:
        os.umask(previous)
        os.close(opened)
    return listening
