"""The relay inside Flower's server: requests from the wire to the nodes, and answers back as they come."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from ringfence.deployment.flower.courier import CONTENT, RECORD, SILO
from ringfence.transport.relay import Errand, relay

_POLL = 0.25
_HELLO = 30.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve exchanges until whoever submitted the run hangs up."""
    names: dict[int, str] = {}
    _learn(grid, names)
    relay(str(context.run_config["wire"]), names.values(), lambda errand: _exchange(grid, names, errand))


def _learn(grid: Grid, names: dict[int, str]) -> None:
    """Ask nodes that are new which silo they are."""
    new = [node for node in grid.get_node_ids() if node not in names]
    sent = _send(grid, new, MessageType.QUERY, {CONTENT: b""})
    for node, content in _answers(grid, sent, time.monotonic() + _HELLO):
        if isinstance(content.get(SILO), str):
            names[node] = content[SILO]


def _exchange(grid: Grid, names: dict[int, str], errand: Errand) -> None:
    wanted = set(errand.sites)
    deadline = time.monotonic() + errand.seconds
    if not wanted.issubset(names.values()):
        _learn(grid, names)
    alive = set(grid.get_node_ids())
    targets = [node for node, name in names.items() if name in wanted and node in alive]
    sent = _send(grid, targets, MessageType.TRAIN, {CONTENT: errand.request})
    for node, content in _answers(grid, sent, deadline):
        if isinstance(content.get(CONTENT), bytes) and content[CONTENT]:
            errand.answer(names[node], content[CONTENT])


def _send(grid: Grid, nodes: list[int], kind: str, content: Mapping[str, Any]) -> set[str]:
    messages = [
        Message(content=RecordDict({RECORD: ConfigRecord(dict(content))}), message_type=kind, dst_node_id=node)
        for node in nodes
    ]
    return set(grid.push_messages(messages)) if messages else set()


def _answers(grid: Grid, sent: set[str], deadline: float) -> Iterable[tuple[int, Mapping[str, Any]]]:
    # `send_and_receive` would sleep three seconds between looks.
    while sent and time.monotonic() < deadline:
        for reply in grid.pull_messages(sent):
            sent.discard(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                yield reply.metadata.src_node_id, reply.content.config_records.get(RECORD, {})
        time.sleep(_POLL)
