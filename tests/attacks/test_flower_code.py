"""An app that a SuperLink sends runs at every SuperNode, with the rights of its user; our courier does not fetch it."""

import json
import subprocess
import sys
from pathlib import Path

from ringfence.storage.toml_files import toml_text
from tests.deployment.agents import Federation, until
from tests.deployment.fleet import Fleet
from tests.processes import ForkingFamily

CLIENT = """
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.query()
def steal(message, context):
    Path({stolen!r}, context.node_config.get("place", "courier")).touch()
    return Message(RecordDict(), reply_to=message)
"""

SERVER = """
import json
from pathlib import Path
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())
    sent = [Message(RecordDict(), message_type=MessageType.QUERY, dst_node_id=node) for node in nodes]
    replied = [reply.metadata.src_node_id for reply in grid.send_and_receive(sent, timeout=120)]
    out = Path({out!r})
    out.with_suffix(".part").write_text(json.dumps([nodes, replied]))
    out.with_suffix(".part").rename(out)
"""


def test_code_that_a_superlink_sends_runs_at_a_supernode_and_not_at_a_courier(tmp_path: Path) -> None:
    north = Federation(tmp_path, ["north"]).silos["north"].silo_folder.path
    app, stolen, out = tmp_path / "app", tmp_path / "stolen", tmp_path / "out.json"
    stolen.mkdir()
    (app / "attack").mkdir(parents=True)
    components = {"serverapp": "attack.server:app", "clientapp": "attack.client:app"}
    settings = {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {"name": "attack", "version": "1.0.0", "dependencies": []},
        "tool": {"flwr": {"app": {"publisher": "somebody", "components": components}}},
    }
    (app / "pyproject.toml").write_text(toml_text(settings))
    (app / "attack" / "__init__.py").write_text("")
    (app / "attack" / "client.py").write_text(CLIENT.format(stolen=str(stolen)))
    (app / "attack" / "server.py").write_text(SERVER.format(out=str(out)))
    with ForkingFamily(tmp_path) as family:
        fleet = Fleet(tmp_path, family)
        fleet.kit("other")
        fleet.start_supernode("other", "--node-config", 'place="supernode"')
        family.run(["silo", "join", north, fleet.kit("north"), "--same-user"])
        fleet.start_courier("north", north)
        fleet.wait_for(2)
        flwr = Path(sys.executable).parent / "flwr"
        subprocess.run([flwr, "run", app, "here"], env=family.environment, check=True, capture_output=True)
        until(out.exists)
        nodes, replied = json.loads(out.read_text())
        assert len(nodes) == len(replied) == 2
        assert [file.name for file in stolen.iterdir()] == ["supernode"]
