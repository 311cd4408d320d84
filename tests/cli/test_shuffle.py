"""Plans that trust a shuffler, on the command line: trained, planned, keyed, and refused in words."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import PlanError
from ringfence.protocol import Plan, ShufflerChannel
from ringfence.shuffler import sealing
from tests.cli.conftest import Federation, epsilon, refuses, ringfence, ringfence_json, spent

SHUFFLED = ("--trust", "shuffler", "--algorithm", "bounded", "--rounds", "5")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The public keys of server, shuffler, north and south."""
    path = tmp_path / "keys.toml"
    path.write_text(
        f'server = "{"5e" * 32}"\nshuffler = "{"5f" * 32}"\n[silos]\nnorth = "{"a0" * 32}"\nsouth = "{"a1" * 32}"\n'
    )
    return path


def parsed(content: Any) -> Plan:
    return Plan.parse(json.dumps(content).encode(), error=PlanError)


def test_training_through_a_shuffler_gives_a_model_and_says_what_both_views_cost(federation: Federation) -> None:
    report = ringfence_json(*federation.train(*SHUFFLED))
    assert report["test"]["accuracy"] > 0.8
    for name, silo in report["silos"].items():
        assert silo["rounds"] == 5 + 2  # of the evaluation
        assert [cost["against"] for cost in silo["this_run"]] == ["server", "anyone"]
        assert epsilon(silo["this_run"], "server") <= 2.0 < epsilon(silo["this_run"], "anyone")
        shown = ringfence_json("ledger", federation.folder / f"{name}.ledger")
        assert spent(shown) == silo["used"]
        assert silo["all_runs"] == silo["this_run"]


def test_a_cap_limits_both_views_and_may_allow_more_without_the_shuffler(federation: Federation) -> None:
    refused = refuses(
        "against the server, the shuffler and all other silos together",
        *federation.train(*SHUFFLED, "--cap", "2.5,1e-6"),
    )
    assert "more than its budget of 2.5" in refused.stderr
    report = ringfence_json(*federation.train(*SHUFFLED, "--cap", "2.5,1e-6,20"))
    assert 2.5 < epsilon(report["silos"]["north"]["this_run"], "anyone") < 20


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_a_plan_pins_everybody_s_keys_and_survives_its_file(
    federation: Federation, keys: Path, tmp_path: Path, sampling: str
) -> None:
    out = tmp_path / "plan.json"
    options = ["--trust", "shuffler", "--colluders", "0", "--keys", str(keys), "--sampling", sampling]
    options += ["--algorithm", "bounded"]
    shown = ringfence_json(*federation.plan(*options, "--max-rounds", "10", "--bits", "2000", "--out", out))
    plan = parsed(shown["plan"])
    assert plan == Plan.parse(out.read_bytes(), error=PlanError)
    stage, _ = plan.stages
    channel = stage.channel
    assert isinstance(channel, ShufflerChannel)
    assert (plan.trust, channel.quorum, stage.sampling.name) == ("shuffler", 2, sampling)
    assert (channel.server_key, channel.shuffler_key) == ("5e" * 32, "5f" * 32)
    assert [terms.key for terms in plan.silos] == ["a0" * 32, "a1" * 32]
    assert plan.dimension * (channel.levels + channel.coins) <= 2000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--trust", "shuffler"], "must name everyone's public keys"),
        (["--trust", "shuffler", "--keys", "nowhere.toml"], "could not be read"),
        (["--trust", "shuffler", "--keys", "KEYS"], "a shuffler would gain nothing"),
        (["--trust", "shuffler", "--keys", "KEYS", "--colluders", "0", "--bits", "7"], "bits per vector are too few"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_plan_that_cannot_be_made_is_refused_in_a_sentence(
    federation: Federation, keys: Path, options: list[str], says: str
) -> None:
    given = [str(keys) if option == "KEYS" else option for option in options]
    refuses(says, *federation.plan(*given))


def test_training_alone_or_with_keys_of_others_is_refused(federation: Federation, keys: Path) -> None:
    refuses("remove --keys", *federation.train(*SHUFFLED, "--keys", keys))
    refuses("needs a shuffler and a server", *federation.train(*SHUFFLED, "--peer-to-peer"))
    federation.files = federation.files[:1]
    refuses("between 2 and the 1 silos", *federation.train(*SHUFFLED))
    assert federation.ledgers() == {}, "nothing was approved"


def test_the_server_s_key_is_made_once_for_its_owner_s_eyes_only(tmp_path: Path) -> None:
    path = tmp_path / "server.key"
    made = ringfence_json("server", "key", "--out", path)
    private = bytes.fromhex(path.read_text())
    assert made["public_key"] == sealing.public_key(private)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ringfence_json("server", "key", "--out", path)["public_key"] == made["public_key"]
    assert bytes.fromhex(path.read_text()) == private
    spoken = ringfence("server", "key", "--out", tmp_path / "second.key")
    assert sealing.public_key(bytes.fromhex((tmp_path / "second.key").read_text())) in spoken.stdout
    assert private.hex() not in spoken.stdout
