"""Several targets through real gates, ledgers and noise: one ledger, one charge, and the same weights from peers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence import Member, PlanRequest, Silo, load_records, make_plan, train
from ringfence.cli.first_steps import write_example
from ringfence.errors import SchemaError
from ringfence.federation.unclamped import unclamped_targets
from ringfence.protocol import Plan, Schema, load_schema, parse_schema
from ringfence.silo.records.records import Records

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
WIDE = {"type": "numeric", "lower": 0.0, "upper": 10.0}


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    write_example(tmp_path)
    return load_schema(tmp_path / "schema.toml", target=["pressure", "age"])


def federation(folder: Path, schema: Schema, **wishes: Any) -> tuple[Plan, dict[str, Records]]:
    silos = {name: load_records(folder / f"{name}.csv", schema) for name in ("north", "south", "west")}
    members = [Member(name, len(records), epsilon=2.0) for name, records in silos.items()]
    return make_plan(schema, members, PlanRequest(**{"rounds": 4, **wishes})), silos


def test_two_targets_cost_what_one_costs(tmp_path: Path, schema: Schema) -> None:
    plan, silos = federation(tmp_path, schema, survey=False)
    alone = load_schema(tmp_path / "schema.toml", target="pressure")
    members = [Member(name, len(records), epsilon=2.0) for name, records in silos.items()]
    single = make_plan(alone, members, PlanRequest(rounds=4, algorithm="accelerated", survey=False))
    result = train(plan, {name: Silo(records, tmp_path / f"{name}.ledger") for name, records in silos.items()})
    for terms, other in zip(plan.silos, single.silos, strict=True):
        # The noise in units of the clip, which one record moves its mean by, is that of a single target.
        clips = [own.training_stages[0].query.largest(own) for own in (plan, single)]
        ratio = terms.stages[0].sigma / clips[0] / (other.stages[0].sigma / clips[1])
        assert ratio == pytest.approx(1.0, rel=1e-3)
        spent = result.statement.silos[terms.name].total
        assert spent.epsilon == pytest.approx(2.0, rel=1e-3)
    assert result.model.coefficients.shape == (schema.width, 2)


def test_peers_without_a_server_learn_them_too_and_with_a_lasso(tmp_path: Path, schema: Schema) -> None:
    plan, silos = federation(tmp_path, schema, lasso=0.01, ridge=0.01)
    gates = {name: Silo(records, tmp_path / f"{name}.ledger") for name, records in silos.items()}
    result = train(plan, gates, peer_to_peer=True)
    assert np.all(np.isfinite(result.model.coefficients))


def test_a_schema_of_several_targets_reads_each_in_its_own_scale() -> None:
    schema = parse_schema({"columns": {"a": NUMBER, "y": NUMBER, "z": WIDE}}, target=["y", "z"])
    assert schema.targets == ("y", "z")
    assert list(schema.features) == ["a"]
    assert schema.target_bound == pytest.approx(np.sqrt(2))
    assert schema.target_scalings == [(1.0, 0.0), (5.0, 5.0)]
    assert schema.for_target("z") == parse_schema({"columns": {"a": NUMBER, "z": WIDE}}, target="z")


def test_a_schema_of_one_target_has_the_bytes_that_it_had() -> None:
    one = parse_schema({"columns": {"a": NUMBER, "y": NUMBER}}, target="y")
    assert one == parse_schema({"columns": {"a": NUMBER, "y": NUMBER}}, target=["y"])
    assert b"more_targets" not in one.canonical()


@pytest.mark.parametrize(
    ("changes", "targets", "says"),
    [
        ({}, ["y", "missing"], "'missing' is not"),
        ({"z": {"type": "categorical", "categories": ["p", "q"]}}, ["y", "z"], "'z' is not"),
        ({}, ["y", "y"], "'y' is named as a target and as something else"),
        ({"weight": "z"}, ["y", "z"], "'z' is named as a target and as something else"),
        ({"offset": "a"}, ["y", "z"], "several targets cannot have an offset"),
        ({}, ["a", "y", "z"], "there is no feature column left"),
    ],
)
def test_what_cannot_be_several_targets_is_refused(changes: dict[str, Any], targets: list[str], says: str) -> None:
    columns = {"a": NUMBER, "y": NUMBER, "z": WIDE}
    roles = {name: value for name, value in changes.items() if name not in columns}
    columns |= {name: value for name, value in changes.items() if name in columns}
    with pytest.raises(SchemaError, match=says):
        parse_schema({"columns": columns, **roles}, target=targets)


def test_targets_beyond_their_bounds_are_clamped_for_training_and_kept_for_measuring(tmp_path: Path) -> None:
    schema = parse_schema({"columns": {"a": NUMBER, "y": NUMBER, "z": WIDE}}, target=["y", "z"])
    (tmp_path / "north.csv").write_text("a,y,z\n0,3,20\n1,0.5,5\n")
    records = load_records(tmp_path / "north.csv", schema)
    np.testing.assert_allclose(records.targets, np.array([[1, 1, 0, 1], [0.5, 0, 0, 1]]))
    np.testing.assert_allclose(unclamped_targets(records), np.array([[3, 3, 0, 1], [0.5, 0, 0, 1]]))
