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
_POLL = 0.1
"""Seconds between two looks for replies."""
_LOOK = 1.0
"""Seconds between two looks for nodes, and for those to ask again."""
_HELLO = 30.0
"""Seconds for which the first nodes are waited for to say which silo they are."""

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
    fleet, deadline = _Fleet(grid), time.monotonic() + _HELLO
    fleet.look()
    while not fleet.is_known() and time.monotonic() < deadline:
        time.sleep(_POLL)
    run_relay(str(context.run_config["wire"]), filter(None, fleet.names.values()), fleet.run)


class _Fleet:
    """Flower's nodes, and which silo each is."""

    def __init__(self, grid: Grid) -> None:
        """Begin to know the nodes of Flower's grid."""
        self._grid = grid
        self.names: dict[int, str] = {}
        """The silo of each node; "" if it is none."""
        self._hellos: dict[str, int] = {}

    def look(self) -> set[int]:
        """Return Flower's live nodes, and ask those that are new which silo they are."""
        alive = set(self._grid.get_node_ids())
        self._hellos = _at(alive, self._hellos)
        new = alive.difference(self.names, self._hellos.values())
        self._hellos |= self._push(sorted(new), MessageType.QUERY, b"")
        return alive

    def is_known(self) -> bool:
        """Take the names that Flower's nodes said, and tell whether all have."""
        for node, content in self._pull(self._hellos):
            name = content.get(_SILO)
            self.names[node] = name if isinstance(name, str) else ""
        return not self._hellos

    def run(self, errand: Errand) -> None:
        """Run one errand through Flower: ask the nodes of its silos until they answer, and pass answers on."""
        missing, sent, look = set(errand.sites), dict[str, int](), 0.0
        deadline = time.monotonic() + errand.seconds
        while missing and time.monotonic() < deadline and not errand.lost():
            self.is_known()
            if time.monotonic() >= look:
                look = time.monotonic() + _LOOK
                alive = self.look()
                sent = _at(alive, sent)
                wanted = {node for node, name in self.names.items() if name in missing}
                nodes = wanted.intersection(alive).difference(sent.values())
                sent |= self._push(sorted(nodes), MessageType.TRAIN, errand.request)
            time.sleep(_POLL)
            for node, content in self._pull(sent):
                if isinstance(content.get(_CONTENT), bytes) and content[_CONTENT]:
                    missing.discard(self.names[node])
                    errand.answer(self.names[node], content[_CONTENT])

    def _push(self, nodes: list[int], kind: str, content: bytes) -> dict[str, int]:
        """Send the content to Flower's nodes; return each message's id and node."""
        messages = [Message(_record({_CONTENT: content}), message_type=kind, dst_node_id=node) for node in nodes]
        return dict(zip(self._grid.push_messages(messages), nodes, strict=True)) if messages else {}

    def _pull(self, sent: dict[str, int]) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """Yield the replies that came to Flower's server since, and forget what they reply to.

        (`send_and_receive` would look every three seconds.)
        """
        for reply in self._grid.pull_messages(set(sent)) if sent else ():
            node = sent.pop(reply.metadata.reply_to_message_id)
            yield node, {} if reply.has_error() else reply.content.config_records.get(_RECORD, {})


def _at(nodes: set[int], sent: dict[str, int]) -> dict[str, int]:
    """Return those of the messages that were sent to these Flower nodes."""
    return {message: node for message, node in sent.items() if node in nodes}


def _record(content: dict[str, str | bytes]) -> RecordDict:
    """Return the content of a Flower message."""
    return RecordDict({_RECORD: ConfigRecord(content)})  # type: ignore[arg-type]
