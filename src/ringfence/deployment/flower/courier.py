"""The courier at a Flower site: bytes to the silo agent's door, and back.

A SuperNode runs whatever app its SuperLink sends, so at such a site this code protects nothing: it is the agent, in
another process and best under another user, that does. The node's own settings (`--node-config`) name the silo and
its `courier.toml`.
"""

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ringfence.deployment.door import Door
from ringfence.errors import DoorError

PATIENCE = 10.0
RECORD, CONTENT, SILO = "ringfence", "content", "silo"

app = ClientApp()


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Say which silo this is."""
    return _reply(message, {SILO: str(context.node_config[SILO])})


@app.train()
def carry(message: Message, context: Context) -> Message:
    """Carry one request; an agent that cannot be reached is no answer, without a reason."""
    request = message.content.config_records[RECORD][CONTENT]
    try:
        answer = Door.read(Path(str(context.node_config["courier"])), patience=PATIENCE).ask(bytes(request))  # type: ignore[arg-type]
    except DoorError:
        answer = b""
    return _reply(message, {CONTENT: answer})


def _reply(message: Message, content: dict[str, str | bytes]) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord(content)}), reply_to=message)  # type: ignore[arg-type]
