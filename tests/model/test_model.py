"""A model's file holds its plan's bytes, and says what its silos were promised."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import MessageError, OutputError
from ringfence.model.model import Model
from ringfence.model.statement import SiloGuarantee
from ringfence.protocol import Guarantee, unpack
from ringfence.protocol.public import canonical_json
from tests.model.test_export import model as made
from tests.support import MakePlan


def written(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "model.json").write_bytes(canonical_json(content))
    return folder / "model.json"


@pytest.fixture
def model(plan_of: MakePlan) -> Model:
    """A model of today, with its silo's guarantee."""
    cost = (Guarantee(epsilon=1.0, delta=1e-6),)
    promised = SiloGuarantee(records=40, rounds=5, this_run=cost, all_runs=cost, used=cost)
    return Model.of(plan_of(), np.arange(4.0), {"clinic": 5}, guarantees={"clinic": promised})


def test_a_model_holds_its_plan_by_the_plan_s_own_bytes(model: Model, tmp_path: Path) -> None:
    plan = model.plan
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_bytes())
    assert (content["format"], content["plan"].encode()) == (1, plan.content)
    loaded = Model.load(tmp_path / "model.json")
    assert loaded == model
    assert loaded.plan.digest() == plan.digest()
    assert unpack(loaded.weights).tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(OutputError, match="could not be written"):
        model.save(tmp_path / "nowhere" / "model.json")


def test_a_saved_model_keeps_its_statement_in_the_plan_s_order(tmp_path: Path) -> None:
    made("logistic", "ill").save(tmp_path / "model.json")
    statement = Model.load(tmp_path / "model.json").statement
    assert statement is not None
    assert list(statement.silos) == ["north", "a"]
    assert "delta = 1e-05 (all runs on this data, whenever you stop: epsilon = 1.5" in str(statement)


def test_a_model_whose_maker_saw_no_ledger_has_no_statement(model: Model, tmp_path: Path) -> None:
    bare = model.model_copy(update={"guarantees": {}})
    assert bare.statement is None
    content = json.loads(bare.canonical())
    del content["guarantees"]  # as models were written before
    assert Model.load(written(tmp_path, content)) == bare


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
