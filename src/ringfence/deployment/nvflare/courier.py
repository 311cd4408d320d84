"""The courier: what NVFlare runs at a site. It carries bytes to the silo agent's door and back, and knows nothing else.

Which door is the site's own business: the kit's `local/ringfence.toml`, written by `ringfence silo join`, names the
silo's `courier.toml`. Nothing in a job can point it elsewhere.
"""

from pathlib import Path
from typing import Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from ringfence.deployment.door import Door
from ringfence.deployment.nvflare.names import CONTENT, POINTER, SECONDS, TASK
from ringfence.errors import DoorError
from ringfence.storage.toml_files import read_toml

PATIENCE = 10.0
"""Seconds for which an agent that is being restarted is waited for."""


class Courier(Executor):  # type: ignore[misc]  # nvflare ships no types
    """Hands a task's bytes to the silo agent, and returns the agent's bytes.

    An agent that cannot be reached costs the round an answer, never the job: the reply is empty, without a reason.
    """

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer one task."""
        request, seconds = shareable.get(CONTENT), shareable.get(SECONDS)
        if task_name != TASK or not isinstance(request, bytes) or not isinstance(seconds, float):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        pointer = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / POINTER
        try:
            # Read anew for every task: the agent may have come back behind another door.
            door = Path(read_toml(pointer)["courier"])
            answer = Door.read(door, patience=min(PATIENCE, max(0.0, seconds))).ask(request)
        except (OSError, ValueError, KeyError, DoorError) as problem:
            self.logger.warning("the silo agent did not answer: %s", problem)
            return make_reply(ReturnCode.EXECUTION_RESULT_ERROR)
        reply = Shareable()
        reply[CONTENT] = answer
        return reply
