"""The two apps that a Flower run consists of: the courier at each site (`client`), the relay at the server (`server`).

A SuperNode runs whatever app its SuperLink sends, so at such a site this code protects nothing: it is the agent, in
another process and best under another user, that does. The node's own settings (`--node-config`) name the silo and
its `courier.toml`.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ringfence.deployment.door import Door
from ringfence.errors import DoorError
from ringfence.transport.relay import Errand, run_relay

_RECORD, _CONTENT, _SILO = "ringfence", "content", "silo"
_PATIENCE = 10.0
_POLL = 0.25
_HELLO = 30.0

client = ClientApp()
server = ServerApp()


@client.query()
def say_silo(message: Message, context: Context) -> Message:
    """Answer, in Flower's client app, which silo this site is."""
    return Message(_record({_SILO: str(context.node_config[_SILO])}), reply_to=message)


@client.train()
def carry(message: Message, context: Context) -> Message:
    """Carry one Flower message to the silo's agent; the answer is empty, without a reason, if there is none."""
    request = message.content.config_records[_RECORD][_CONTENT]
    try:
        answer = Door.read(Path(str(context.node_config["courier"])), patience=_PATIENCE).ask(bytes(request))  # type: ignore[arg-type]
    except DoorError:
        answer = b""
    return Message(_record({_CONTENT: answer}), reply_to=message)


@server.main()
def relay_requests(grid: Grid, context: Context) -> None:
    """Run errands, in Flower's server app, until `ringfence server run` hangs up."""
    names: dict[int, str] = {}
    _ask_names(grid, names)
    run_relay(str(context.run_config["wire"]), names.values(), lambda errand: _run(grid, names, errand))


def _run(grid: Grid, names: dict[int, str], errand: Errand) -> None:
    """Run one errand through Flower: ask the live nodes of its silos, and pass their answers on."""
    wanted = set(errand.sites)
    deadline = time.monotonic() + errand.seconds
    if not wanted.issubset(names.values()):
        _ask_names(grid, names)
    alive = set(grid.get_node_ids())
    targets = [node for node, name in names.items() if name in wanted and node in alive]
    for node, content in _answers(grid, targets, MessageType.TRAIN, errand.request, deadline):
        if isinstance(content.get(_CONTENT), bytes) and content[_CONTENT]:
            errand.answer(names[node], content[_CONTENT])


def _ask_names(grid: Grid, names: dict[int, str]) -> None:
    """Ask Flower nodes that are new which silo they are."""
    new = [node for node in grid.get_node_ids() if node not in names]
    for node, content in _answers(grid, new, MessageType.QUERY, b"", time.monotonic() + _HELLO):
        if isinstance(content.get(_SILO), str):
            names[node] = content[_SILO]


def _answers(
    grid: Grid, nodes: list[int], kind: str, content: bytes, deadline: float
) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """Send the content to the nodes, and yield their replies. (`send_and_receive` would poll every three seconds.)"""
    messages = [Message(_record({_CONTENT: content}), message_type=kind, dst_node_id=node) for node in nodes]
    sent = set(grid.push_messages(messages)) if messages else set()
    while sent and time.monotonic() < deadline:
        for reply in grid.pull_messages(sent):
            sent.discard(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                yield reply.metadata.src_node_id, reply.content.config_records.get(_RECORD, {})
        time.sleep(_POLL)


def _record(content: dict[str, str | bytes]) -> RecordDict:
    """Return the content of a Flower message."""
    return RecordDict({_RECORD: ConfigRecord(content)})  # type: ignore[arg-type]
