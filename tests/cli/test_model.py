"""`ringfence model`: what a model file holds, for people and for other software."""

import csv
import io
import json
from pathlib import Path

import numpy as np

from ringfence.federation.training import Silo, train
from ringfence.model.curves import column_curves
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.schema.maps.curves import Spline
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import export
from ringfence.silo.records.records import Records
from tests.cli.conftest import Federation, refuses, ringfence
from tests.silo.agents import make_silo_folder
from tests.support import MakePlan


def test_coefficients_are_exported_as_csv_and_json(federation: Federation) -> None:
    path = federation.model("--max-rounds", "5", target="cost")
    linear = Model.load(path).linear()
    printed = ringfence("model", "export", path)
    rows = list(csv.reader(io.StringIO(printed.stdout)))
    assert rows[0] == ["feature", "cost"]
    assert [float(value) for _, value in rows[1:]] == [*linear.coefficients[0], *linear.intercepts]
    out = federation.folder / "coefficients.json"
    assert ringfence("model", "export", path, "--to", "json", "--out", out).stdout == ""
    assert np.array_equal(json.loads(out.read_text())["coefficients"], linear.coefficients)


def test_a_model_with_maps_shows_what_values_of_its_columns_add(federation: Federation) -> None:
    path = federation.model("--max-rounds", "5", target="cost")
    plain = Model.load(path)
    maps = (Spline(columns=(next(iter(plain.plan.data.features)),)),)
    schema = plain.plan.data.model_validate(plain.plan.data.model_dump(exclude_none=True) | {"maps": maps})
    plan = make_plan(schema, [Member("north", 300, 1.0)], PlanRequest(rounds=2))
    curved = Model.of(plan, np.arange(plan.dimension) / 10, {})
    curved.save(path)
    printed = ringfence("model", "show", path).stdout
    for curve in column_curves(plan, curved.coefficients):
        assert f"{curve.name} " in printed
        assert all(f"{score:.4g}" in printed for _, score in curve.table()[1])
    assert "spline 1" not in printed


def test_a_model_s_statement_is_that_of_its_run(federation: Federation) -> None:
    path = federation.model("--max-rounds", "5", target="cost")
    printed = ringfence("model", "statement", path).stdout
    assert "north: each of 300 records, over" in printed
    assert "Not verified: this is what the model's maker wrote into the file." in printed
    bare = Model.load(path).model_copy(update={"guarantees": {}})
    bare.save(path)
    assert "without access to any silo's ledger" in ringfence("model", "statement", path).stdout


def test_a_statement_is_verified_against_certificates_and_only_then(tmp_path: Path, plan_of: MakePlan) -> None:
    silo_folder, plan = make_silo_folder(tmp_path), plan_of(rounds=3)
    records = silo_folder.records().encoded(plan.data)
    assert isinstance(records, Records)
    silo = Silo(records, silo_folder.ledger_path, Budget(2.0, 1e-6))
    model = train(plan, {"clinic": silo}).model
    path, certificate, other = tmp_path / "model.json", tmp_path / "certificate.json", tmp_path / "other.json"
    model.save(path)
    export(silo_folder, certificate)
    printed = ringfence("model", "statement", path, "--certificate", certificate).stdout
    assert "clinic: verified." in printed
    assert "Not verified" not in printed
    stated = model.guarantees["clinic"]
    lies = {
        "fewer rounds": stated.model_copy(update={"rounds": 2}),
        "more records": stated.model_copy(update={"records": 41}),
        "a smaller epsilon": stated.model_copy(
            update={"this_run": tuple(each.model_copy(update={"epsilon": 0.5}) for each in stated.this_run)}
        ),
    }
    for lie in lies.values():
        model.model_copy(update={"guarantees": {"clinic": lie}}).save(path)
        refuses("The statement is not true of silo 'clinic'", "model", "statement", path, "--certificate", certificate)
    model.save(path)
    (tmp_path / "another").mkdir()
    export(make_silo_folder(tmp_path / "another", seed=8), other)
    refuses("shows no release for this model", "model", "statement", path, "--certificate", other)
    certificate.write_bytes(certificate.read_bytes().replace(b"charged", b"refused", 1))
    ringfence("model", "statement", path, "--certificate", certificate, status=1)


def test_what_cannot_be_exported_is_one_sentence(federation: Federation) -> None:
    path = federation.model("--max-rounds", "5", target="cost")
    for command, says in [
        (["model", "export", str(path), "--to", "pickle"], "csv, json or onnx"),
        (["model", "export", str(path), "--out", str(path / "here")], "cannot be written"),
        (["model", "export", str(federation.schema)], f"{federation.schema} is not a valid Model"),
    ]:
        refuses(says, *command)
