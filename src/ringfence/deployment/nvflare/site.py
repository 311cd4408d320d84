"""What NVFlare's client runs at a silo's site: our courier, and two guards that let in one job and a few commands.

The courier carries bytes to the silo agent's door and back, and knows nothing else. Which door is the site's own
business: the kit's `local/ringfence.toml`, written by `ringfence silo join`, names the silo's `courier.toml`. Nothing
in a job can point it elsewhere.

NVFlare asks its own policy who may do what, and lets a certificate with the role `super` pass every rule; the holder of
the federation's authority can issue one. And it asks only where its server says that a command must be asked about. So
what is decided here does not depend on who asks: `ringfence silo join` names the two guards in the site's settings,
NVFlare makes them when the client starts, before it connects, and a client that cannot make them does not start. They
are imported from the installation; nothing that a job brings is on Python's path by then, or later
(`launch.environment`).
"""

import io
import logging
import re
import zipfile
from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.utils.app_deployer import AppDeployer

from ringfence.deployment.door import Door
from ringfence.deployment.nvflare.job import CONTENT, SECONDS, TASK, fault_of_job
from ringfence.deployment.nvflare.kit import POINTER
from ringfence.errors import DoorError
from ringfence.storage.files import read_regular
from ringfence.storage.toml_files import read_toml

_PATIENCE = 10.0
"""Seconds for which an agent that is being restarted is waited for."""

_log = logging.getLogger("Ringfence")

_LARGEST = 2**20
"""Bytes of a job's file; ours have a few hundred."""
_JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_COMMANDS = frozenset(
    {
        "scheduler.cancel_resource",
        "scheduler.check_resource",
        "train.abort",
        "train.abort_task",
        "train.check_status",
        "train.deploy",
        "train.notify_job_status",
        "train.start_job",
    }
)
"""Commands to the client that a run needs. Not among them: showing and listing files, deleting folders, reporting
about the machine, changing logs, calling components, restarting and shutting down."""
_JOB_COMMANDS = frozenset({"abort", "abort_task", "check_status", "shutdown"})
"""Commands to a job's process that a run needs. Not among them: statistics, errors, changing logs."""


class Courier(Executor):  # type: ignore[misc]  # nvflare ships no types
    """Hands a request's bytes to the silo agent, and returns the agent's bytes.

    An agent that cannot be reached costs the round an answer, never the job: the reply is empty, without a reason.
    """

    def __init__(self) -> None:
        """Make NVFlare's executor, which tells the relay when it can be asked."""
        super().__init__()
        self.register_event_handler(EventType.START_RUN, self._call)

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer an NVFlare task, which every executor must, as what the relay pushes."""
        return self._carry(task_name, shareable, fl_ctx)

    def _call(self, event: str, fl_ctx: Any) -> None:
        """Take requests from the relay in NVFlare's server from now on, and tell it so."""
        engine = fl_ctx.get_engine()
        engine.register_aux_message_handler(TASK, self._carry)
        engine.send_aux_request([], TASK, Shareable(), _PATIENCE, fl_ctx, optional=True)

    def _carry(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        """Carry a request that came through NVFlare to the silo's door, and return the answer."""
        content, seconds = request.get(CONTENT), request.get(SECONDS)
        if topic != TASK or not isinstance(content, bytes) or not isinstance(seconds, float):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        pointer = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / POINTER
        try:
            # Read anew for every request: the agent may have come back behind another door.
            door = Path(read_toml(pointer)["courier"])
            answer = Door.read(door, patience=min(_PATIENCE, max(0.0, seconds))).ask(content)
        except (OSError, ValueError, KeyError, DoorError) as problem:
            self.logger.warning("the silo agent did not answer: %s", problem)
            return make_reply(ReturnCode.EXECUTION_RESULT_ERROR)
        reply = Shareable()
        reply[CONTENT] = answer
        return reply


class OnlyOurJob(AppValidator):  # type: ignore[misc]  # nvflare ships no types
    """Admits the one job that Ringfence submits, whichever certificate signed it, and no other."""

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        """Return a reason for the site to refuse NVFlare's unpacked application, or an empty one."""
        root = Path(app_folder)
        try:
            files = {
                str(file.relative_to(root)): read_regular(file, _LARGEST)
                for file in root.rglob("*")
                if not file.is_dir() or file.is_symlink()
            }
        except OSError:
            return _refused("it cannot be read"), {}
        empty = [folder for folder in root.rglob("*") if folder.is_dir() and folder != root / "config"]
        fault = "it has folders that do not belong to our job" if empty else fault_of_job(files)
        return (_refused(fault), {}) if fault else ("", {})


class Doorkeeper(AppDeployer):  # type: ignore[misc]
    """Unpacks the one job that Ringfence submits, and nothing else; takes away the commands that no run needs.

    The commands are taken away when it is made: an exception there stops the client, where one in a handler of
    NVFlare's events would only be logged.
    """

    def __init__(self) -> None:
        """Remove all of NVFlare's commands at the site but the few that our job needs."""
        super().__init__()
        known = ClientRequestProcessors.request_processors
        known[:] = [processor for processor in known if _COMMANDS.issuperset(processor.get_topics())]
        commands = AdminCommands.commands
        commands[:] = [command for command in commands if command.get_command_name() in _JOB_COMMANDS]

    def deploy(self, workspace: Any, job_id: str, job_meta: Any, app_name: str, app_data: bytes, fl_ctx: Any) -> str:
        """Return the site's reason to refuse the job, or deploy it as NVFlare does; nothing is unpacked before."""
        fault = _fault_of_archive(app_data)
        if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id) or job_meta.get("job_id") != job_id:
            # NVFlare first deletes the folder of this name in the kit, and `local` is one.
            fault = "its id is not one that NVFlare assigns"
        if fault:
            return _refused(fault)
        return str(super().deploy(workspace, job_id, job_meta, app_name, app_data, fl_ctx) or "")


def _refused(fault: str) -> str:
    """Log the reason for the site's operator, and return the refusal for the engine's server."""
    _log.warning("a job was refused: %s", fault)
    return f"refused by the silo: {fault}"


def _fault_of_archive(content: bytes) -> str | None:
    """Return why a job's archive sent to the site is not our job's, or None."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(set(names)) < len(names) or any(member.file_size > _LARGEST for member in members):
                return "it is not packed the way our job is"
            if any(member.is_dir() and member.filename != "config/" for member in members):
                return "it has folders that do not belong to our job"
            return fault_of_job({m.filename: archive.read(m) for m in members if not m.is_dir()})
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError):
        return "it cannot be read"
