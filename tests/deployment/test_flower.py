"""Flower carries rounds to silos: a SuperLink, our couriers and a SuperNode over TLS with registered keys."""

import json
from pathlib import Path

import pytest

from ringfence.deployment.flower.courier import join_kit, run_courier
from ringfence.errors import DeploymentError
from ringfence.protocol import load_plan
from tests.deployment.agents import Federation, model_of, until
from tests.deployment.fleet import Fleet, write_key
from tests.deployment.shuffled import SILOS, Shuffled
from tests.processes import ForkingFamily


def test_a_shuffled_plan_is_trained_through_couriers_and_a_supernode_and_a_node_that_is_no_silo_is_left_alone(
    tmp_path: Path,
) -> None:
    """The shuffler is behind TLS; whether answers are sealed makes no difference to what carries them."""
    with ForkingFamily(tmp_path) as family:
        parties = Shuffled(tmp_path, family)
        parties.prepare(rounds=3)
        fleet = Fleet(tmp_path, family)
        for name in SILOS:
            parties.start(name, "silo", "serve", parties.silo(name))
            kit = fleet.kit(name)
            if name == "west":
                door = parties.silo(name) / "courier.toml"
                fleet.start_supernode(name, "--node-config", f'silo="{name}" courier="{door}"')
            else:
                parties.run(name, "silo", "join", parties.silo(name), kit, "--same-user")
                fleet.start_courier(name, parties.silo(name))
        fleet.kit("other")
        fleet.start_supernode("other")
        fleet.wait_for(len(SILOS) + 1)
        run, way = tmp_path / "server" / "run", parties.through_shuffler(parties.serve_shuffler())
        family.run(["server", "run", parties.plan_file, "--folder", run, "--engine", "flower", "--superlink", "here",
                    "--quorum", "all", *way])  # fmt: skip
        parties.check_that_every_round_was_charged_once(run)
        model_of(run)
        family.end()
        assert family.members() == []


def test_a_run_survives_the_death_of_a_courier_an_agent_and_the_superlink(tmp_path: Path) -> None:
    federation = Federation(tmp_path, ["north", "south"])
    plan = federation.plan(rounds=20)
    with ForkingFamily(tmp_path) as family:
        fleet = Fleet(tmp_path, family)
        federation.start()
        for name, silo in federation.silos.items():
            family.run(["silo", "join", silo.silo_folder.path, fleet.kit(name), "--same-user"])
            fleet.start_courier(name, silo.silo_folder.path)
        fleet.wait_for(2)
        run = tmp_path / "run"
        command: list[str | Path] = ["server", "run", tmp_path / f"{plan.run}.json", "--folder", run]
        waiting = ["--quorum", "all", "--seconds", "5", "--patience", "40"]
        server = family.start("server", [*command, "--engine", "flower", "--superlink", "here", *waiting])
        north = federation.silos["north"]

        def reached(round: int) -> bool:
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            return max(north.released(plan), default=-1) >= round

        until(lambda: reached(2))
        family.kill("courier of north")
        courier = fleet.start_courier("north", north.silo_folder.path)

        def restarted() -> bool:
            """Do as a service would: for a minute, the SuperLink takes the courier that was killed for alive."""
            nonlocal courier
            if courier.poll() is not None:
                courier = fleet.start_courier("north", north.silo_folder.path)
            return reached(6)

        until(restarted)
        north.kill()
        north.start()
        north.wait()
        until(lambda: reached(10))
        family.kill("superlink")
        fleet.start_link()
        assert server.wait(timeout=240) == 0, (tmp_path / "server.log").read_text()
        assert "submitting it again" in (tmp_path / "server.log").read_text()
        report = json.loads((run / "report.json").read_text())
        answered = {name: silo["answered"] for name, silo in report["silos"].items()}
        assert answered == dict.fromkeys(federation.silos, load_plan(tmp_path / f"{plan.run}.json").rounds)
        assert model_of(run) == federation.from_ledgers(plan).weights.tobytes()
        federation.stop()


def test_a_courier_with_a_key_that_is_not_registered_ends_and_says_so(tmp_path: Path) -> None:
    federation = Federation(tmp_path, ["north"])
    with ForkingFamily(tmp_path) as family:
        fleet = Fleet(tmp_path, family)
        folder, kit = federation.silos["north"].silo_folder.path, fleet.kit("north")
        write_key(kit / "node.key")
        family.run(["silo", "join", folder, kit, "--same-user"])
        fleet.start_courier("north", folder)
        log = tmp_path / "courier of north.log"
        until(lambda: "SuperLink" in log.read_text())
        until(lambda: not any(str(kit) in process.cmdline() for process in family.members()))


def test_a_courier_that_can_read_the_records_is_refused_until_the_ledger_says_so(tmp_path: Path) -> None:
    folder, kit = Federation(tmp_path, ["north"]).silos["north"].silo_folder.path, tmp_path / "kit"
    kit.mkdir()
    write_key(kit / "node.key")
    (kit / "flower.toml").write_text('silo = "north"\naddress = "localhost:1"\n')
    join_kit(kit, same_user=False)
    with pytest.raises(DeploymentError, match="must not be able to read the silo's private files, but this user can"):
        run_courier(folder, kit)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("flower.toml", 'silo = "north"', r"must hold silo = \"NAME\" and address"),
        ("flower.toml", "silo =", "cannot be read"),
        ("node.key", "key", "ssh-keygen"),
    ],
)
def test_a_kit_that_lacks_something_is_refused_with_a_sentence(
    tmp_path: Path, file: str, content: str, sentence: str
) -> None:
    write_key(tmp_path / "node.key")
    (tmp_path / "flower.toml").write_text('silo = "north"\naddress = "localhost:1"\n')
    (tmp_path / file).write_text(content)
    with pytest.raises(DeploymentError, match=sentence):
        join_kit(tmp_path, same_user=False)
