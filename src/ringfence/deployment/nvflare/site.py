"""What stands at a site between NVFlare's client and whatever reaches it: one job may come in, and a few commands.

NVFlare asks its own policy who may do what, and lets a certificate with the role `super` pass every rule; whoever holds
the federation's authority can issue one. And it asks only where its server says that a command must be asked about. So
what is decided here does not depend on who asks: `ringfence silo join` names these two in the site's settings, NVFlare
makes them when the client starts, before it connects, and a client that cannot make them does not start. They are
imported from the installation; nothing that a job brings is on Python's path by then, or later (`launch.environment`).
"""

import io
import logging
import re
import zipfile
from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.utils.app_deployer import AppDeployer

from ringfence.deployment.nvflare.job import fault_of

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
"""What a run needs of the client. Without: showing and listing files, deleting folders, reporting about the machine,
changing logs, calling components, restarting and shutting down."""
_JOB_COMMANDS = frozenset({"abort", "abort_task", "check_status", "shutdown"})
"""What a run needs of a job's process. Without: statistics, errors, changing logs."""


class OnlyOurJob(AppValidator):  # type: ignore[misc]  # nvflare ships no types
    """Admits the one job that Ringfence submits, whoever signed it, and no other."""

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        """Return a reason to refuse the unpacked application, or an empty one."""
        root = Path(app_folder)
        try:
            files = {
                str(file.relative_to(root)): file.read_bytes() if file.stat().st_size <= _LARGEST else b""
                for file in root.rglob("*")
                if not file.is_dir() or file.is_symlink()
            }
        except OSError:
            return _refused("it cannot be read"), {}
        empty = [folder for folder in root.rglob("*") if folder.is_dir() and folder != root / "config"]
        fault = "it has folders that do not belong to our job" if empty else fault_of(files)
        return (_refused(fault), {}) if fault else ("", {})


class Doorkeeper(AppDeployer):  # type: ignore[misc]
    """Unpacks the one job that Ringfence submits, and nothing else; takes away the commands that no run needs.

    The commands are taken away when it is made: an exception there stops the client, where one in a handler of
    NVFlare's events would only be logged.
    """

    def __init__(self) -> None:
        super().__init__()
        known = ClientRequestProcessors.request_processors
        known[:] = [processor for processor in known if _COMMANDS.issuperset(processor.get_topics())]
        commands = AdminCommands.commands
        commands[:] = [command for command in commands if command.get_command_name() in _JOB_COMMANDS]

    def deploy(self, workspace: Any, job_id: str, job_meta: Any, app_name: str, app_data: bytes, fl_ctx: Any) -> str:
        """Return a reason to refuse the job, or deploy it as NVFlare does; nothing is unpacked before."""
        fault = _fault_of_archive(app_data)
        if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id) or job_meta.get("job_id") != job_id:
            # NVFlare first deletes the folder of this name in the kit, and `local` is one.
            fault = "its id is not one that NVFlare assigns"
        if fault:
            return _refused(fault)
        return str(super().deploy(workspace, job_id, job_meta, app_name, app_data, fl_ctx) or "")


def _refused(fault: str) -> str:
    """Tell the site's operator, and return what the engine's server is told; both are our words."""
    _log.warning("a job was refused: %s", fault)
    return f"refused by the silo: {fault}"


def _fault_of_archive(content: bytes) -> str | None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(set(names)) < len(names) or any(member.file_size > _LARGEST for member in members):
                return "it is not packed the way our job is"
            if any(member.is_dir() and member.filename != "config/" for member in members):
                return "it has folders that do not belong to our job"
            return fault_of({m.filename: archive.read(m) for m in members if not m.is_dir()})
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError):
        return "it cannot be read"
