"""A whole federation on one machine, of real processes: the engine's server, three silos, and a run.

Everything is done by the commands that a real federation uses, in a temporary folder that is removed afterwards. The
three silos' records are those of `ringfence example`.
"""

import hashlib
import socket
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ringfence.deployment.processes import Family, interruptible
from ringfence.errors import DeploymentError
from ringfence.protocol import load_plan, rounds_words

SIZES = {"north": 500, "south": 800, "west": 300}
"""How many records `ringfence example` invents for each silo."""
TARGET = "ill"


@dataclass(frozen=True)
class Site:
    """Where one silo's things are."""

    name: str
    folder: Path
    kit: Path

    def beside_kit(self, what: str) -> Path:
        """Return where the kit's request or its response is, for a site of the tour."""
        return self.kit.with_name(f"{self.name}.{what}")


class Ground:
    """A federation in a folder: what the commands need, and the processes that they start."""

    def __init__(self, folder: Path, family: Family, say: Callable[[str], None] = lambda sentence: None) -> None:
        """Lay out the folders of the tour's federation: kits, silos and sites."""
        self.folder, self.family, self.say = folder, family, say
        self.kits = folder / "kits"
        self.admin = self.kits / "admin"
        self.plan = folder / "plan.json"
        self.schema = folder / "schema.toml"
        self.sites = [Site(name, folder / "silos" / name, folder / "sites" / name) for name in SIZES]

    def prepare(self, *, rounds: int, epsilon: float = 2.0) -> None:
        """Make the tour's records, kits, silos' folders and plan; every silo joins and approves."""
        run, silos = self.family.run, [option for name in SIZES for option in ("--silo", name)]
        run(["example", self.folder])
        self.say("ringfence federation init: an authority, and the kits of the engine's server.")
        run(["federation", "init", self.kits, "--server", f"localhost:{free_port()}", *silos, "--here"])
        sizes = [option for name, size in SIZES.items() for option in ("--silo", f"{name}={size}")]
        run(["plan", "--schema", self.schema, "--target", TARGET, *sizes, "--epsilon", str(epsilon),
             "--delta", "1e-6", "--rounds", str(rounds), "--out", self.plan])  # fmt: skip
        self.say(f"ringfence plan: epsilon {epsilon:g} at every silo, {rounds_words(load_plan(self.plan))}.")
        self.say(
            "ringfence silo init, request, join, approve: each operator sets a budget, makes a key and approves the "
            "plan."
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda site: run(["silo", "request", site.kit, "--name", site.name]), self.sites))
            run(["federation", "sign", self.kits, *(site.beside_kit("request") for site in self.sites)])
            list(pool.map(lambda site: self._set_up(site, 2 * epsilon), self.sites))

    def _set_up(self, site: Site, epsilon: float) -> None:
        """Set up a silo of the tour: its folder, its kit, and its approval of the plan."""
        run = self.family.run
        run(["silo", "init", site.folder, "--name", site.name, "--data", self.folder / f"{site.name}.csv",
             "--schema", self.schema, "--epsilon", str(epsilon), "--delta", "2e-6"])  # fmt: skip
        # One user runs everything here, so that a courier could read the records: the ledgers say so.
        run(["silo", "join", site.folder, site.kit, site.beside_kit("response"), "--same-user"])
        digest = hashlib.sha256(self.plan.read_bytes()).hexdigest()
        run(["silo", "approve", site.folder, self.plan, "--digest", digest])

    def start_server(self) -> None:
        """Start the engine's server for the tour."""
        self.family.start("engine server", ["server", "start", self.kits / "server"])

    def start_site(self, site: Site) -> None:
        """Start the agent and the courier of a silo of the tour."""
        self.family.start(f"agent of {site.name}", ["silo", "serve", site.folder])
        self.start_courier(site)

    def start_courier(self, site: Site) -> None:
        """Start the courier of a silo of the tour: the engine's client."""
        self.family.start(f"courier of {site.name}", ["silo", "courier", site.folder, site.kit])

    def server_run(self) -> list[str | Path]:
        """Return the command that conducts the tour's run."""
        return ["server", "run", self.plan, "--folder", self.folder / "run", "--engine", "nvflare",
                "--kit", self.admin]  # fmt: skip


def tour(say: Callable[[str], None], *, rounds: int = 12) -> None:
    """Run the tour; `say` gets every line. Whatever happens, no process and no file is left behind."""
    with (
        interruptible(),
        tempfile.TemporaryDirectory(prefix="ringfence-tour-", ignore_cleanup_errors=True) as folder,
        Family(Path(folder)) as family,
    ):
        # The same invented records at every tour: which ledger they had in the last one matters to nobody.
        family.environment["XDG_STATE_HOME"] = folder
        ground = Ground(Path(folder), family, say)
        ground.prepare(rounds=rounds)
        say("ringfence server start, silo serve, silo courier: seven processes.")
        ground.start_server()
        for site in ground.sites:
            ground.start_site(site)
        say("ringfence server run: the job is submitted, and the rounds begin.")
        begun = time.monotonic()
        run = family.start("run", ground.server_run())
        run.wait()
        printed = (Path(folder) / "run.log").read_text(errors="replace")
        if run.returncode:
            raise DeploymentError(f"The run did not finish: {' '.join(printed.split())[-1000:]}")
        took = time.monotonic() - begun
        took_words = f"{load_plan(ground.plan).rounds} rounds in {took:.1f} seconds, start of the job included."
        say(f"\n{printed.strip()}\n\n{took_words}")
        for site in ground.sites:
            say("\n" + family.run(["silo", "status", site.folder]).strip())


def free_port() -> int:
    """Return a port that nobody listens on now, for the tour's server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
