"""A federation whose plan trusts a shuffler, set up by the commands of the documentation, each as its own party."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.deployment.processes import Family
from ringfence.protocol import Plan, load_plan
from ringfence.storage.toml_files import toml_text
from tests.certificates import write_certificate
from tests.deployment.agents import until
from tests.deployment.kits import make_kits
from tests.processes import RINGFENCE, ringfence

SILOS = {"north": 500, "south": 800, "west": 300}
"""What `ringfence example` invents."""


class Shuffled:
    """Folders of all parties: `server`, `shuffler`, and for each silo its name and its name with `-courier`.

    `programs` says how a party runs `ringfence`; `users` who it is, if it is not who runs the tests.
    """

    def __init__(
        self,
        folder: Path,
        family: Family,
        *,
        programs: Mapping[str, Sequence[str]] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.family = folder, family
        self._programs, self._users = programs or {}, users or {}
        self.plan_file = folder / "public" / "plan.json"
        self.certificate = folder / "public" / "tls.pem"

    def program(self, party: str) -> Sequence[str]:
        return self._programs.get(party, RINGFENCE)

    def run(self, party: str, *arguments: str | Path) -> str:
        """Run `ringfence ARGUMENTS` as the party, to its end."""
        program, environment = self.program(party), self.family.environment
        if program is RINGFENCE:
            done = ringfence(*arguments, env=environment)
        else:
            command = [*program, *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"{party}: {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def asked(self, party: str, *arguments: str | Path) -> Any:
        return json.loads(self.run(party, *arguments, "--json"))

    def start(self, party: str, *arguments: str | Path, name: str | None = None) -> "subprocess.Popen[bytes]":
        """Start `ringfence ARGUMENTS` as the party; what it prints goes into a log of that name."""
        return self.family.start(name or party, arguments, self.program(party))

    def own(self, party: str, *paths: Path) -> None:
        """Give these paths, and what is in them, to the party."""
        if party in self._users:
            subprocess.run(["chown", "-R", f"{self._users[party]}:", *paths], check=True)

    @property
    def plan(self) -> Plan:
        return load_plan(self.plan_file)

    def silo(self, name: str) -> Path:
        return self.folder / name / "silo"

    def kit(self, name: str) -> Path:
        return self.folder / name / "kit"

    def prepare(self, *, rounds: int, server: str = "localhost:8002", shuffler: str = "127.0.0.1") -> None:
        """Make records, keys, kits and a plan; every silo approves and joins, the shuffler adds the plan."""
        public = self.plan_file.parent
        for party in ("server", "shuffler", *SILOS):
            (self.folder / party).mkdir(exist_ok=True)
            (self.folder / party).chmod(0o755)
            self.own(party, self.folder / party)
        ringfence("example", self.folder / "invented", check=True)
        public.mkdir(mode=0o755)
        (self.folder / "invented" / "schema.toml").rename(public / "schema.toml")
        write_certificate(self.folder, shuffler, "127.0.0.1")
        (self.folder / "tls.pem").rename(self.certificate)
        (self.folder / "tls.key").rename(self.folder / "shuffler" / "tls.key")
        self.own("shuffler", self.folder / "shuffler" / "tls.key")
        kits = make_kits(self.folder / "federation", server, list(SILOS))
        for role, kit in (("engine", kits.server), ("admin", kits.admin)):
            kit.rename(self.folder / "server" / role)
            self.own("server", self.folder / "server" / role)
        keys = {
            "server": self.asked("server", "server", "key", "--out", self.folder / "server" / "key")["public_key"],
            "shuffler": self.asked("shuffler", "shuffler", "init", self.folder / "shuffler" / "mixer")["public_key"],
            "silos": {name: self._make_silo(name, public) for name in SILOS},
        }
        (self.folder / "keys.toml").write_text(toml_text(keys))
        sizes = [option for name, size in SILOS.items() for option in ("--silo", f"{name}={size}")]
        options = [*sizes, "--epsilon", "1", "--rounds", str(rounds), "--algorithm", "bounded", "--trust", "shuffler"]
        files = ["--schema", public / "schema.toml", "--keys", self.folder / "keys.toml", "--out", self.plan_file]
        ringfence("plan", "--anyway", "--target", "ill", *options, *files, check=True)
        self.plan_file.chmod(0o644)
        for name in SILOS:
            self.run(name, "silo", "approve", self.silo(name), self.plan_file, "--digest", self.plan.digest())
            kits.silos[name].rename(self.kit(name))
            self.own(name, self.kit(name))
            response = public / f"{name}.response"
            (self.folder / "federation" / response.name).rename(response)
            response.chmod(0o644)
            insisting = [] if f"{name}-courier" in self._users else ["--same-user"]
            self.run(name, "silo", "join", self.silo(name), self.kit(name), response, *insisting)
            self.own(f"{name}-courier", self.kit(name))
        self.run("shuffler", "shuffler", "add", self.folder / "shuffler" / "mixer", self.plan_file)

    def _make_silo(self, name: str, public: Path) -> str:
        data = self.folder / name / "records.csv"
        (self.folder / "invented" / f"{name}.csv").rename(data)
        data.chmod(0o600)
        self.own(name, data)
        group = self._users.get(f"{name}-courier")
        self.run(
            name, "silo", "init", self.silo(name), "--name", name, "--data", data, "--schema", public / "schema.toml",
            "--epsilon", "10", "--delta", "1e-5", *(["--courier-group", group] if group else []),
        )  # fmt: skip
        return str(self.asked(name, "silo", "status", self.silo(name))["public_key"])

    def serve_shuffler(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the shuffler with TLS, and return its address when it serves."""
        options: list[str | Path] = ["--host", host, "--port", str(port), "--certificate", self.certificate,
                   "--private-key", self.folder / "shuffler" / "tls.key"]  # fmt: skip
        self.start("shuffler", "shuffler", "serve", self.folder / "shuffler" / "mixer", *options)
        until(lambda: "is served at" in self.log("shuffler"))
        return self.log("shuffler").split()[-1]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def through_shuffler(self, address: str) -> list[str | Path]:
        """Return the options with which `server run` finds the shuffler; its operator has handed its token over."""
        token = self.folder / "server" / "token"
        token.write_bytes((self.folder / "shuffler" / "mixer" / "shuffler.token").read_bytes())
        token.chmod(0o600)
        self.own("server", token)
        return ["--shuffler", address, "--shuffler-token", token, "--shuffler-certificate", self.certificate,
                "--key", self.folder / "server" / "key"]  # fmt: skip

    def charged(self, name: str) -> int:
        """Return how many rounds the silo's own ledger shows."""
        return int(self.asked(name, "silo", "status", self.silo(name))["plans"][0]["charged"])

    def check_that_every_round_was_charged_once(self, run: Path) -> None:
        """The report has all silos in all rounds; each ledger one charge and one answer for each, and no refusal."""
        report = json.loads((run / "report.json").read_text())
        rounds = self.plan.rounds
        assert [sorted(entry["answered"]) for entry in report["rounds"]] == [sorted(SILOS)] * rounds
        for name in SILOS:
            entries = self.asked(name, "silo", "ledger", self.silo(name))["entries"]
            for kind in ("charged", "released"):
                assert [entry["round"] for entry in entries if entry["kind"] == kind] == list(range(rounds)), name
        [plan] = self.asked("shuffler", "shuffler", "status", self.folder / "shuffler" / "mixer")["plans"]
        released = [(entry["round"], entry["silos"], entry["state"]) for entry in plan["rounds"]]
        mixed = [round for round in range(rounds) if self.plan.place(round).stage.channel.is_collected]
        assert released == [(round, len(SILOS), "released") for round in mixed]
