"""A model's file is read whatever version wrote it, and says what its silos were promised."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import MessageError
from ringfence.model import Model
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.messages import unpack
from ringfence.protocol.plan import Plan
from ringfence.protocol.public import canonical_json
from ringfence.statement import SiloGuarantee
from tests.support import MakePlan

GOLDEN = Path(__file__).parent / "golden" / "v0_1_0" / "models"
FORMER = sorted(path.stem for path in GOLDEN.glob("*.json"))


def written(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "model.json").write_bytes(canonical_json(content))
    return folder / "model.json"


@pytest.fixture
def plan(plan_of: MakePlan) -> Plan:
    return plan_of()


@pytest.fixture
def model(plan: Plan) -> Model:
    """A model of today, with what its silo was promised."""
    cost = (Guarantee(epsilon=1.0, delta=1e-6),)
    promised = SiloGuarantee(records=40, rounds=5, this_run=cost, all_runs=cost, used=cost)
    return Model.of(plan, np.arange(4.0), {"clinic": 5}, {"clinic": promised})


# Of version 0.1.0


@pytest.mark.parametrize("name", FORMER)
def test_a_model_of_0_1_0_is_read_with_the_name_of_its_plan_its_weights_and_its_costs(name: str) -> None:
    content = json.loads((GOLDEN / f"{name}.json").read_bytes())
    model = Model.load(GOLDEN / f"{name}.json")
    assert model.plan.content == canonical_json(content["plan"])
    assert (model.weights, model.rounds) == (content["weights"], content["rounds"])
    for silo, stated in content["guarantees"].items():
        read = model.guarantees[silo]
        assert (read.records, read.rounds) == (stated["records"], stated["rounds"])
        assert (read.run.epsilon, read.run.delta) == (stated["epsilon"], stated["delta"])
        assert (read.total.epsilon, read.total.delta) == (stated["total_epsilon"], stated["total_delta"])
        assert read.this_run[-1].epsilon == stated["alone_epsilon"]
        assert read.all_runs[-1].epsilon == stated["total_alone_epsilon"]
        assert read.this_run[-1].against == read.all_runs[-1].against == "anyone"
        assert len(read.this_run) == len(model.plan.observers)
    assert (model.statement is None) == (not content["guarantees"])


def test_a_shuffled_model_of_0_1_0_states_both_views() -> None:
    statement = Model.load(GOLDEN / "shuffled.json").statement
    assert statement is not None
    for silo in statement.silos.values():
        assert [cost.against for cost in silo.this_run] == ["server", "anyone"]
        assert silo.this_run[0].epsilon < silo.this_run[1].epsilon
    assert "The shuffler does not collude with the server." in statement.text()


@pytest.mark.parametrize("name", FORMER)
def test_a_model_of_0_1_0_that_is_saved_again_is_the_same_model(name: str, tmp_path: Path) -> None:
    model = Model.load(GOLDEN / f"{name}.json")
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_bytes())["format"] == 2, "for its plan is a text now"
    assert again == model
    assert again.plan.digest() == model.plan.digest()
    assert str(again.statement) == str(model.statement)


def test_a_model_that_says_that_it_has_format_1_is_read_as_one_that_does_not_say(tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "trained.json").read_bytes())
    assert "format" not in content
    assert Model.load(written(tmp_path, {**content, "format": 1})) == Model.load(GOLDEN / "trained.json")
    for stated in (True, 0, "1", 1.5):
        with pytest.raises(MessageError, match="not a valid Model: format"):
            Model.load(written(tmp_path, {**content, "format": stated}))


def test_a_model_of_0_1_0_with_a_changed_plan_or_a_crooked_guarantee_is_refused(tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "trained.json").read_bytes())
    content["plan"]["rounds"] = -1
    with pytest.raises(MessageError, match=r"not a valid Model: plan"):
        Model.load(written(tmp_path, content))
    for change in ({"epsilon": "1"}, {"epsilon": None}, {"promise": 1.0}, {"total_delta": 2.0}):
        content = json.loads((GOLDEN / "trained.json").read_bytes())
        content["guarantees"]["north"].update(change)
        with pytest.raises(MessageError, match=r"not a valid Model: guarantees\.north"):
            Model.load(written(tmp_path, content))


# Of today, and of tomorrow


def test_a_model_holds_its_plan_by_the_plan_s_own_bytes(model: Model, plan: Plan, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_bytes())
    assert (content["format"], content["plan"].encode()) == (2, plan.content)
    loaded = Model.load(tmp_path / "model.json")
    assert loaded == model
    assert loaded.plan.digest() == plan.digest()
    assert unpack(loaded.weights).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_plan_that_is_not_written_in_canonical_form_keeps_its_name_in_a_model(plan: Plan, tmp_path: Path) -> None:
    spelled = json.dumps(json.loads(plan.content), indent=2).encode()
    named = Plan.parse(spelled, error=MessageError)
    assert named.digest() != plan.digest(), "it is another document"
    Model.of(named, np.zeros(4), {}).save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert (loaded.plan.content, loaded.plan.digest()) == (spelled, named.digest())


def test_a_model_of_a_newer_format_is_refused_with_what_to_install(model: Model, tmp_path: Path) -> None:
    content = json.loads(model.canonical())
    newer = "has format 3, and this version of Ringfence reads formats up to 2: install a newer version"
    with pytest.raises(MessageError, match=f"This Model {newer}"):
        Model.load(written(tmp_path, {**content, "format": 3, "layers": 12}))
    plan = {**json.loads(content["plan"]), "format": 3}
    with pytest.raises(MessageError, match=f"This Plan {newer}"):
        Model.load(written(tmp_path, {**content, "plan": json.dumps(plan)}))


@pytest.mark.parametrize(
    "change",
    [
        {"this_run": []},
        {"this_run": [{"epsilon": "1", "delta": 1e-6, "against": "anyone"}]},
        {"this_run": [{"epsilon": 1.0, "delta": 1e-6, "against": "nobody"}]},
        {"this_run": [{"epsilon": 1.0, "delta": 1e-6, "against": "server"}]},
        {"all_runs": [{"epsilon": None, "delta": 1e-6, "against": "anyone"}]},
        {"promise": 1.0},
        {"total_epsilon": 1.0},
    ],
    ids=str,
)
def test_a_model_file_with_a_crooked_guarantee_is_refused(model: Model, change: dict[str, Any], tmp_path: Path) -> None:
    content = json.loads(model.canonical())
    content["guarantees"]["clinic"].update(change)
    with pytest.raises(MessageError, match=r"guarantees\.clinic"):
        Model.load(written(tmp_path, content))
