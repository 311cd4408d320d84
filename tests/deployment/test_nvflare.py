"""A federation of real processes over TLS: NVFlare carries, the silos' agents answer, processes get killed."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.deployment.nvflare import policy
from ringfence.deployment.nvflare.kit import user_of
from ringfence.deployment.tour import SIZES, TARGET, Ground
from ringfence.protocol import load_plan
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.operator.decisions import approve_plan
from tests.deployment.agents import Federation, server, until
from tests.deployment.kits import make_kits, run_script
from tests.processes import ForkingFamily

PRESENT = """
import sys
from nvflare.fuel.flare_api.flare_api import new_secure_session
session = new_secure_session(sys.argv[1], sys.argv[2], timeout=60)
print("present", *sorted(client.name for client in session.get_system_info().client_info))
session.close()
"""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A federation that runs: the engine's server, three agents, three couriers."""
    folder = tmp_path_factory.mktemp("federation")
    with ForkingFamily(folder) as family:
        made = Ground(folder, family)
        made.prepare(rounds=12, epsilon=1.0)
        made.start_server()
        for site in made.sites:
            made.start_site(site)
        yield made
        family.end()
        assert family.members() == []


def new_run(ground: Ground, name: str, *, rounds: int, options: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
    """Make a plan of its own, let every silo approve it, and start its run."""
    ground.plan = ground.folder / f"{name}.json"
    sizes = [option for silo, size in SIZES.items() for option in ("--silo", f"{silo}={size}")]
    ground.family.run(["plan", "--schema", ground.schema, "--target", TARGET, *sizes, "--epsilon", "0.25",
                       "--delta", "1e-7", "--rounds", str(rounds), "--out", ground.plan, "--anyway"])  # fmt: skip
    for site in ground.sites:
        approve_plan(SiloFolder.open(site.folder), load_plan(ground.plan))
    command: list[str | Path] = ["server", "run", ground.plan, "--folder", ground.folder / name, "--engine", "nvflare"]
    return ground.family.start(name, [*command, "--kit", ground.admin, *options])


def charged(ground: Ground, silo: str, plan: Path) -> int:
    """Return how many rounds of the plan the silo's own ledger shows."""
    digest = load_plan(plan).digest()
    summary = summarise(ground.folder / "silos" / silo / f"{silo}.ledger")
    return int(next(p["charged"] for p in summary["plans"] if p["plan"] == digest))


def report_of(ground: Ground, name: str, child: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Wait for a run's end and return its report."""
    status = child.wait(timeout=300)
    assert status == 0, (ground.folder / f"{name}.log").read_text()
    report: dict[str, Any] = json.loads((ground.folder / name / "report.json").read_text())
    return report


def test_a_client_that_is_killed_comes_back_into_a_run_of_fifty_rounds(ground: Ground) -> None:
    run = new_run(ground, "fifty", rounds=50, options=("--quorum", "all", "--seconds", "5", "--patience", "20"))
    until(lambda: charged(ground, "north", ground.plan) >= 10)
    ground.family.kill("courier of north")
    ground.start_courier(ground.sites[0])
    report = report_of(ground, "fifty", run)
    rounds = load_plan(ground.plan).rounds
    assert rounds >= 50
    assert {name: silo["answered"] for name, silo in report["silos"].items()} == dict.fromkeys(SIZES, rounds)
    assert [charged(ground, silo, ground.plan) for silo in SIZES] == [rounds] * 3


def test_an_agent_that_is_gone_when_a_round_begins_is_asked_until_it_is_back(ground: Ground) -> None:
    ground.family.kill("agent of north")
    run = new_run(ground, "late", rounds=2, options=("--quorum", "all", "--patience", "0"))
    log = ground.folder / "courier of north.log"
    until(lambda: "the silo agent did not answer" in log.read_text())
    ground.family.start("agent of north", ["silo", "serve", ground.sites[0].folder])
    report = report_of(ground, "late", run)
    assert report["silos"]["north"]["answered"] == load_plan(ground.plan).rounds


def test_a_run_survives_the_death_of_the_engines_server(ground: Ground) -> None:
    run = new_run(ground, "survivor", rounds=30, options=("--quorum", "all"))
    until(lambda: charged(ground, "north", ground.plan) >= 5)
    ground.family.kill("engine server")
    ground.start_server()
    report = report_of(ground, "survivor", run)
    rounds = load_plan(ground.plan).rounds
    assert {name: silo["answered"] for name, silo in report["silos"].items()} == dict.fromkeys(SIZES, rounds)
    assert "submitting it again" in (ground.folder / "survivor.log").read_text()


def test_a_site_with_another_federations_certificate_cannot_join(ground: Ground, tmp_path: Path) -> None:
    target = json.loads((ground.sites[0].kit / "startup" / "fed_client.json").read_text())["servers"][0]["service"]
    kits = make_kits(tmp_path / "foreign", target["target"], ["east"])
    (tmp_path / "east").mkdir()
    policy.join_kit(tmp_path / "east", kits.silos["east"], kits.responses["east"], same_user=True)
    stranger = ground.family.start("stranger", ["silo", "courier", tmp_path / "east", kits.silos["east"]])
    log = ground.folder / "stranger.log"
    until(lambda: stranger.poll() is not None or "certificate" in log.read_text().lower(), 40)
    present = run_script(PRESENT, user_of(ground.admin), ground.admin)
    assert "present north south west" in present
    assert "verify failed" in log.read_text().lower()
    if stranger.poll() is None:
        ground.family.kill("stranger")


def test_without_the_engines_server_the_run_stops_with_a_sentence(ground: Ground) -> None:
    ground.family.kill("engine server")
    done = subprocess.run(
        [sys.executable, "-c", f"""
from pathlib import Path
from ringfence.deployment.nvflare.exchange import NvflareExchange
from ringfence.deployment.processes import leave
from ringfence.errors import DeploymentError
try:
    with NvflareExchange(Path({str(ground.admin)!r}), ["north"], tell=print, patience=3) as exchange:
        exchange(b"hello", ["north"], print, 1.0)
except DeploymentError as problem:
    print("sentence:", problem)
leave(0)
"""],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "sentence: The engine's server could not be reached for 3 seconds" in done.stdout, done.stdout + done.stderr


def test_a_run_that_ends_leaves_though_the_engines_library_waits_for_a_server_that_never_answers(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stuck:
        kits = make_kits(tmp_path / "kits", f"localhost:{stuck.getsockname()[1]}", ["north"])
        silos = Federation(tmp_path, ["north"])
        run = server(
            silos, silos.plan(1, approved=False), tmp_path / "run", [], "--engine", "nvflare", "--kit", str(kits.admin)
        )
        try:
            connection, _ = stuck.accept()  # from a thread of NVFlare's, which no signal ends
            with connection:
                run.send_signal(signal.SIGTERM)
                _, errors = run.communicate(timeout=60)
        finally:
            run.kill()
            run.communicate()
    assert run.returncode == 130, errors
    assert b"repeat the command to resume it" in errors
    assert b"ledgers show what was released so far" in errors
