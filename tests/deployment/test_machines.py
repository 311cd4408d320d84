"""Five machines, each with a network of its own and users of their own, over links that delay, drop and part."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.errors import TranscriptError
from ringfence.server.transcript import Asked, read_transcript
from tests.deployment.agents import model_of, until
from tests.deployment.machines import switched
from tests.deployment.shuffled import SILOS, Shuffled
from tests.processes import ForkingFamily

USERS = {
    "server": "www-data", "shuffler": "backup",
    "north": "games", "south": "news", "west": "uucp",
    "north-courier": "lp", "south-courier": "mail", "west-courier": "list",
}  # fmt: skip
"""Users that every Debian has, and that own nothing."""
ROUNDS = 10


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users may pass; pytest's own are closed."""
    made = Path(tempfile.mkdtemp(prefix="ringfence-machines-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_training_over_links_that_delay_drop_and_part_ends_as_if_nothing_had_happened(folder: Path) -> None:
    """Silos over NVFlare's mTLS, the shuffler over TLS; the links of two silos and the shuffler part in turn."""
    names = ["server", "shuffler", *SILOS]
    with switched(folder, names, delay=(0.01, 0.04), loss=0.02) as (switch, machines), ForkingFamily(folder) as family:
        group = {name: USERS[f"{name}-courier"] for name in SILOS}
        programs = {
            party: machines[party.removesuffix("-courier")].program(user, group.get(party))
            for party, user in USERS.items()
        }
        parties = Shuffled(folder, family, programs=programs, users=USERS)
        parties.prepare(rounds=ROUNDS, server="server:8002", shuffler="shuffler")
        parties.serve_shuffler(switch.addresses["shuffler"], 8790)
        parties.start("server", "server", "start", folder / "server" / "engine", name="engine")
        for name in SILOS:
            parties.start(name, "silo", "serve", parties.silo(name))
            parties.start(f"{name}-courier", "silo", "courier", parties.silo(name), parties.kit(name))
        run = folder / "server" / "run"
        conducting = parties.start(
            "server", "server", "run", parties.plan_file, "--folder", run, "--engine", "nvflare",
            "--kit", folder / "server" / "admin", "--quorum", "all", "--seconds", "10", "--patience", "100",
            *parties.through_shuffler("https://shuffler:8790"), name="run",
        )  # fmt: skip

        def asked() -> int:
            assert conducting.poll() is None, parties.log("run")
            try:
                _, entries = read_transcript(run)
            except TranscriptError:  # not begun, or begun without its first line
                return -1
            return max((entry.round for entry in entries if isinstance(entry, Asked)), default=-1)

        def cut_off(name: str) -> bool:
            """TCP sends again after ever longer pauses: so many packets take a minute, more or less."""
            return switch.in_vain[name] >= 6

        until(lambda: asked() >= 2)
        switch.part("north", "south")
        until(lambda: parties.charged("west") > max(parties.charged("north"), parties.charged("south")))
        until(lambda: cut_off("north") and cut_off("south"))
        switch.rejoin("north", "south")
        until(lambda: asked() >= 6)
        switch.part("shuffler")
        last = asked()
        until(lambda: all(parties.charged(name) > last for name in SILOS))
        until(lambda: cut_off("shuffler"))
        switch.rejoin("shuffler")
        assert conducting.wait(timeout=300) == 0, parties.log("run")
        parties.check_that_every_round_was_charged_once(run)
        model_of(run)
        assert all(switch.dropped.values()), "the links dropped nothing"
        report = json.loads((run / "report.json").read_text())
        assert not any(entry["refused"] or entry["unusable"] for entry in report["rounds"])
        family.end()
        assert family.members() == []
