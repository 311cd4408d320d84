"""A model's file holds its plan's bytes, and says what its silos were promised."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import MessageError
from ringfence.model.model import Model
from ringfence.model.statement import SiloGuarantee
from ringfence.protocol import Guarantee, Plan, unpack
from ringfence.protocol.public import canonical_json
from tests.support import MakePlan


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
    return Model.of(plan, np.arange(4.0), {"clinic": 5}, guarantees={"clinic": promised})


def test_a_model_holds_its_plan_by_the_plan_s_own_bytes(model: Model, plan: Plan, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_bytes())
    assert (content["format"], content["plan"].encode()) == (1, plan.content)
    loaded = Model.load(tmp_path / "model.json")
    assert loaded == model
    assert loaded.plan.digest() == plan.digest()
    assert unpack(loaded.weights).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_model_of_a_newer_format_is_refused_with_what_to_install(model: Model, tmp_path: Path) -> None:
    content = json.loads(model.canonical())
    newer = "has format 2, and this version of Ringfence reads formats up to 1: install a newer version"
    with pytest.raises(MessageError, match=f"This Model {newer}"):
        Model.load(written(tmp_path, {**content, "format": 2, "layers": 12}))
    plan = {**json.loads(content["plan"]), "format": 2}
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
