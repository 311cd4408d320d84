"""Seconds per round through NVFlare: a training run against a bare echo job, in one federation, one after the other.

    python -m benchmarks.nvflare_rounds [ROUNDS]

Prints one JSON object. The sites' allow list is opened here, so that the echo job may run at all.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from benchmarks.echo_job import Echo, Rounds
from ringfence.deployment.nvflare.job import job_files
from ringfence.deployment.nvflare.kit import user_of, write_settings
from ringfence.deployment.nvflare.launch import prepare_server
from ringfence.deployment.processes import Family
from ringfence.deployment.tour import Ground


def open_allow_list(kit: Path) -> None:
    file = kit / "local" / "resources.json"
    settings = {**json.loads(file.read_text()), "class_allow_list": ["*"]}
    settings.pop("app_validator", None)
    settings["components"] = [part for part in settings["components"] if part["id"] != "app_deployer"]
    write_settings(file, settings)


def start(kit: Path, family: Family, *variables: str) -> "subprocess.Popen[bytes]":
    part = "client" if variables else "server"
    program = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{part}.{part}_train", "-m", str(kit)]
    program += ["-s", f"fed_{part}.json", "--set", "secure_train=true", "org=ringfence", "config_folder=config"]
    with (kit / "out.txt").open("wb") as out:
        settings = {**family.environment, "PYTHONPATH": os.getcwd()}
        return subprocess.Popen([*program, *variables], env=settings, stdout=out)


def echo_job(folder: Path, rounds: int, out: Path) -> Path:
    for file, content in job_files("").items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if file.endswith("server.json"):
            path = f"benchmarks.echo_job.{Rounds.__name__}"
            content["workflows"] = [
                {"id": "r", "path": path, "args": {"rounds": rounds, "length": 700, "out": str(out)}}
            ]
        if file.endswith("client.json"):
            content["executors"][0]["executor"]["path"] = f"benchmarks.echo_job.{Echo.__name__}"
        (folder / file).write_text(json.dumps(content))
    return folder


def main(rounds: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-", ignore_cleanup_errors=True) as place,
        Family(Path(place)) as family,
    ):
        family.environment["XDG_STATE_HOME"] = place  # the same records at every run
        ground = Ground(Path(place), family)
        ground.prepare(rounds=rounds)
        prepare_server(ground.kits / "server")
        open_allow_list(ground.kits / "server")
        start(ground.kits / "server", family)
        for site in ground.sites:
            open_allow_list(site.kit)
            start(site.kit, family, f"uid={site.name}")
            family.start(f"agent of {site.name}", ["silo", "serve", site.folder])
        begun = time.time()
        family.run(ground.server_run())
        whole = time.time() - begun
        report = json.loads((ground.folder / "run" / "report.json").read_text())
        starts = [datetime.fromisoformat(entry["begun"]).timestamp() for entry in report["rounds"]]
        ours = [after - before for before, after in itertools.pairwise(starts)][1:]

        from nvflare.fuel.flare_api.flare_api import new_secure_session

        out = ground.folder / "echo.json"
        session = new_secure_session(user_of(ground.admin), str(ground.admin))
        begun = time.time()
        session.submit_job(str(echo_job(ground.folder / "echo", rounds, out)))
        while not out.exists():
            time.sleep(0.1)
        echo_whole = time.time() - begun
        session.close()
        echo = json.loads(out.read_text())[1:]
    print(json.dumps({
        "rounds": len(starts), "load": os.getloadavg()[0],
        "training": {"seconds per round": statistics.median(ours), "from command to model": whole,
                     "from first request to last": starts[-1] - starts[0]},
        "bare echo": {"seconds per round": statistics.median(echo), "from submission to last": echo_whole},
    }, indent=2))  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
