"""`ringfence tour`: it ends by itself or is interrupted, and leaves nothing behind."""

import signal
from pathlib import Path

import pytest

from ringfence.deployment.processes import Family
from tests.deployment.agents import until


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_tour_leaves_no_process_and_no_file(tmp_path: Path, interrupted: bool) -> None:
    with Family(tmp_path) as family:
        family.environment["TMPDIR"] = str(tmp_path)
        tour = family.start("tour", ["tour", "--rounds", "12"])
        log = tmp_path / "tour.log"
        if interrupted:
            until(lambda: any("engine runs the job" in run.read_text() for run in tmp_path.glob("*/run.log")), 180)
            tour.send_signal(signal.SIGINT)
        status = tour.wait(timeout=150)
        assert status == (130 if interrupted else 0), log.read_text()
        if not interrupted:
            assert log.read_text().count("hash chain intact") == 3
        inner = [process for process in family.members() if process.pid != tour.pid]
        assert inner == []
        assert [file.name for file in tmp_path.iterdir()] == ["tour.log"]
