"""The one job that Ringfence submits: names of installed classes, and no code. A site knows it by its content."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

COURIER = "ringfence.deployment.nvflare.site.Courier"
RELAY = "ringfence.deployment.nvflare.controller.Relay"
TASK, CONTENT, SECONDS = "round", "content", "seconds"
"""The job's one task, and what it carries."""

_POLL = 1.0
"""Seconds between a client's requests for tasks. There are none: the relay pushes its requests."""

_SERVER, _CLIENT = "config/config_fed_server.json", "config/config_fed_client.json"
_SIGNATURES = {
    f"{folder}{name}" for folder in ("", "config/") for name in (".__nvfl_sig.json", ".__nvfl_submitter.crt")
}
"""What NVFlare adds to every folder of a signed job."""


def job_files(wire: str, sites: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the job's files; `wire` is the socket on which its relay calls `ringfence server run`.

    It goes to the sites named, or to all: a site that is no silo, in a federation that others use, makes the job fail.
    """
    places = ["@ALL"] if sites is None else ["server", *sites]
    return {
        "meta.json": {"name": "ringfence", "resource_spec": {}, "deploy_map": {"app": places}, "min_clients": 1},
        f"app/{_SERVER}": {
            "format_version": 2,
            "server": {"heart_beat_timeout": 600, "task_request_interval": _POLL},
            "workflows": [{"id": "relay", "path": RELAY, "args": {"wire": wire}}],
        },
        f"app/{_CLIENT}": {
            "format_version": 2,
            "default_task_fetch_interval": _POLL,
            "executors": [{"tasks": [TASK], "executor": {"path": COURIER, "args": {}}}],
        },
    }


def job_file_bytes(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of one of the job's files: a site compares them."""
    return json.dumps(content).encode()


def fault_of_job(app: Mapping[str, bytes]) -> str | None:
    """Return the reason why an application's files are not those of our job, or None.

    They must be the same files, byte for byte, since NVFlare's parsers are not ours; only the wire, a word to the
    engine's server, may differ.
    """
    if set(app) - {_SERVER, _CLIENT} - _SIGNATURES:
        return "it has files that do not belong to our job"
    try:
        wire = json.loads(app[_SERVER])["workflows"][0]["args"]["wire"]
    except (KeyError, IndexError, TypeError, ValueError, RecursionError):
        return "its settings are not those of our job"
    expected = job_files(wire if isinstance(wire, str) else "")
    if any(app.get(file) != job_file_bytes(expected[f"app/{file}"]) for file in (_CLIENT, _SERVER)):
        return "its settings are not those of our job"
    return None
