"""What a run through an engine takes, from `ringfence server run` to the model: three silos, which wait for it.

Twelve rounds, and four of the survey. Beside NVFlare's is a bare echo of as many bytes by its own tasks, in the same
federation: the sites' allow lists are opened here, so that the echo may run at all.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path

from benchmarks.echo_job import Echo, Rounds
from benchmarks.waiting import Row
from ringfence.deployment.nvflare.job import job_files
from ringfence.deployment.nvflare.kit import user_of, write_settings
from ringfence.deployment.nvflare.launch import prepare_server
from ringfence.deployment.processes import Family
from ringfence.deployment.tour import Ground
from tests.deployment.agents import until
from tests.deployment.fleet import Fleet

ROUNDS = 12
ECHOED = 700
"""Bytes of a message of the run."""
POLL = 0.1
"""Seconds between two looks of the echo's sites for tasks."""


def rows() -> Iterator[Row]:
    """Measure a run through NVFlare, and one through Flower."""
    with waiting() as ground:
        connect_nvflare(ground)
        whole, first, each = run(ground, ground.server_run())
        echo = echoed(ground)
    yield Row("run through NVFlare", whole, "s", 8, f"its first round is over after {first:.1f} s")
    yield Row("round through NVFlare", each, "s", 0.2, f"{each / echo:.2f} of a bare echo by tasks")
    with waiting() as ground:
        connect_flower(ground)
        command: list[str | Path] = [
            "server",
            "run",
            ground.plan,
            "--folder",
            ground.folder / "run",
            "--engine",
            "flower",
        ]
        whole, first, each = run(ground, [*command, "--superlink", "here"])
    yield Row("run through Flower", whole, "s", 25, f"its first round is over after {first:.1f} s")
    yield Row("round through Flower", each, "s", 1)


@contextmanager
def waiting() -> Iterator[Ground]:
    """Set up three silos that have approved a plan, and their agents, in a folder that remembers nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-", ignore_cleanup_errors=True) as place,
        Family(Path(place)) as family,
    ):
        family.environment["XDG_STATE_HOME"] = place
        ground = Ground(Path(place), family)
        ground.prepare(rounds=ROUNDS)
        for site in ground.sites:
            family.start(f"agent of {site.name}", ["silo", "serve", site.folder])
        yield ground


def run(ground: Ground, command: Sequence[str | Path]) -> tuple[float, float, float]:
    """Return the seconds of the run, those to the end of its first round, and those of a later round (median)."""
    begun = time.time()
    ground.family.run(command)
    whole = time.time() - begun
    rounds = json.loads((ground.folder / "run" / "report.json").read_text())["rounds"]
    closed = [datetime.fromisoformat(entry["closed"]).timestamp() for entry in rounds]
    return whole, closed[0] - begun, statistics.median(after - before for before, after in itertools.pairwise(closed))


def connect_nvflare(ground: Ground) -> None:
    """Start NVFlare's server and a client for each silo; return when all are registered."""
    prepare_server(ground.kits / "server")
    for kit in (ground.kits / "server", *(site.kit for site in ground.sites)):
        file = kit / "local" / "resources.json"
        settings = {**json.loads(file.read_text()), "class_allow_list": ["*"]}
        settings.pop("app_validator", None)
        settings["components"] = [part for part in settings["components"] if part["id"] != "app_deployer"]
        write_settings(file, settings)
    start_nvflare(ground.kits / "server", ground.family)
    for site in ground.sites:
        start_nvflare(site.kit, ground.family, f"uid={site.name}")
    logs = [site.kit / "out.txt" for site in ground.sites]
    until(lambda: all("Successfully registered client" in log.read_text() for log in logs))


def start_nvflare(kit: Path, family: Family, *variables: str) -> None:
    """Start NVFlare's own client or server from a kit, with this repository on Python's path."""
    part = "client" if variables else "server"
    program = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{part}.{part}_train", "-m", str(kit)]
    program += ["-s", f"fed_{part}.json", "--set", "secure_train=true", "org=ringfence", "config_folder=config"]
    with (kit / "out.txt").open("wb") as out:
        settings = {**family.environment, "PYTHONPATH": os.getcwd()}
        subprocess.Popen([*program, *variables], env=settings, stdout=out)


def echoed(ground: Ground) -> float:
    """Return the seconds of a round (median) of a job that only echoes."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    job, out = ground.folder / "echo", ground.folder / "echo.json"
    for file, content in job_files("").items():
        (job / file).parent.mkdir(parents=True, exist_ok=True)
        if file.endswith("server.json"):
            path = f"benchmarks.echo_job.{Rounds.__name__}"
            arguments = {"rounds": ROUNDS, "length": ECHOED, "out": str(out)}
            content["workflows"] = [{"id": "r", "path": path, "args": arguments}]
            content["server"]["task_request_interval"] = POLL
        if file.endswith("client.json"):
            content["executors"][0]["executor"]["path"] = f"benchmarks.echo_job.{Echo.__name__}"
        (job / file).write_text(json.dumps(content))
    with redirect_stdout(sys.stderr):
        session = new_secure_session(user_of(ground.admin), str(ground.admin))
    session.submit_job(str(job))
    until(out.exists)
    session.close()
    return float(statistics.median(json.loads(out.read_text())[1:]))


def connect_flower(ground: Ground) -> None:
    """Start a SuperLink and a courier for each silo; return when all are online."""
    fleet = Fleet(ground.folder, ground.family)
    for site in ground.sites:
        ground.family.run(["silo", "join", site.folder, fleet.kit(site.name), "--same-user"])
        fleet.start_courier(site.name, site.folder)
    fleet.wait_for(len(ground.sites))
