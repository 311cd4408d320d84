"""A plan that trusts a shuffler, through NVFlare to the silos and over TLS to the shuffler: real processes."""

from pathlib import Path

from ringfence.deployment.processes import Family
from ringfence.deployment.tour import free_port
from ringfence.model import Model
from ringfence.protocol.messages import unpack
from ringfence.server.conduct import replay
from tests.deployment.shuffled import SILOS, Shuffled


def test_a_shuffled_plan_is_trained_through_nvflare_with_a_shuffler_behind_tls(tmp_path: Path) -> None:
    with Family(tmp_path) as family:
        parties = Shuffled(tmp_path, family)
        parties.prepare(rounds=6, server=f"localhost:{free_port()}")
        address = parties.serve_shuffler()
        assert address.startswith("https://127.0.0.1:")
        parties.start("server", "server", "start", tmp_path / "server" / "engine", name="engine")
        for name in SILOS:
            parties.start(name, "silo", "serve", parties.silo(name))
            parties.start(f"{name}-courier", "silo", "courier", parties.silo(name), parties.kit(name))
        run = tmp_path / "server" / "run"
        parties.run(
            "server", "server", "run", parties.plan_file, "--folder", run, "--engine", "nvflare",
            "--kit", tmp_path / "server" / "admin", "--quorum", "all", *parties.through_shuffler(address),
        )  # fmt: skip
        parties.check_that_every_round_was_charged_once(run)
        assert unpack(Model.load(run / "model.json").weights).tobytes() == replay(run).weights.tobytes()
        family.end()
        assert family.members() == []
