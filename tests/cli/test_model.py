"""`ringfence model`: what a model file holds, for people and for other software."""

import csv
import io
import json
from pathlib import Path

import numpy as np

from ringfence.model import Model
from tests.cli.conftest import Federation, Ringfence


def trained(federation: Federation, ringfence: Ringfence) -> Path:
    out = federation.folder / "model.json"
    assert ringfence(*federation.train("--max-rounds", "5", "--out", str(out), target="cost")).returncode == 0
    return out


def test_coefficients_are_exported_as_csv_and_json(federation: Federation, ringfence: Ringfence) -> None:
    path = trained(federation, ringfence)
    linear = Model.load(path).linear()
    printed = ringfence("model", "export", str(path))
    rows = list(csv.reader(io.StringIO(printed.stdout)))
    assert rows[0] == ["feature", "cost"]
    assert [float(value) for _, value in rows[1:]] == [*linear.coefficients[0], *linear.intercepts]
    out = federation.folder / "coefficients.json"
    assert ringfence("model", "export", str(path), "--to", "json", "--out", str(out)).stdout == ""
    assert np.array_equal(json.loads(out.read_text())["coefficients"], linear.coefficients)


def test_a_model_s_statement_is_that_of_its_run(federation: Federation, ringfence: Ringfence) -> None:
    path = trained(federation, ringfence)
    printed = ringfence("model", "statement", str(path)).stdout
    assert "north: each of 240 records, over" in printed
    bare = Model.load(path).model_copy(update={"guarantees": {}})
    bare.save(path)
    assert "no silo's ledger" in ringfence("model", "statement", str(path)).stdout


def test_what_cannot_be_exported_is_one_sentence(federation: Federation, ringfence: Ringfence) -> None:
    path = trained(federation, ringfence)
    for command, says in [
        (["model", "export", str(path), "--to", "pickle"], "csv or json"),
        (["model", "export", str(path), "--out", str(path / "here")], "cannot be written"),
        (["model", "export", str(federation.schema)], "not a valid Model"),
    ]:
        done = ringfence(*command)
        assert done.returncode == 1
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1
