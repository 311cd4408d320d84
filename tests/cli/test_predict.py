"""`ringfence predict`, `model card` and `model export --to onnx` as their users meet them."""

from pathlib import Path

import onnxruntime
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from ringfence.model.model import Model
from ringfence.sources import read_table
from ringfence.sources.cells import Table, as_cells
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json


@pytest.fixture
def model(federation: Federation) -> Path:
    return federation.model(epsilon="4")


@pytest.fixture
def new(federation: Federation) -> Path:
    path = federation.folder / "new.csv"
    path.write_text('patient,age,dose,ward,cost\n"p,1",90,1,b,90\np2,5,9,a,6\n')
    return path


def test_ids_probabilities_and_predictions_stand_side_by_side(model: Path, new: Path) -> None:
    done = ringfence("predict", model, new, "--id", "patient", "--probabilities")
    header, first, second = done.stdout.splitlines()
    assert header == "patient,ill,ill=no,ill=yes"
    assert first.startswith('"p,1",yes,')
    assert second.startswith("p2,no,")
    found = ringfence_json("predict", model, new, "--id", "patient", "--probabilities")
    assert found["predictions"] == ["yes", "no"]
    assert list(found["columns"]) == ["patient", "ill=no", "ill=yes"]


def texts(table: Table) -> dict[str, list[str]]:
    return {name: as_cells(cells).texts() for name, cells in table.items()}


def test_parquet_goes_in_and_out_as_csv_does(model: Path, new: Path) -> None:
    other, out = new.with_suffix(".parquet"), new.with_name("out.parquet")
    parquet.write_table(
        arrow.table(
            {"patient": ["p,1", "p2"], "age": [90, 5], "dose": [1.0, 9.0], "ward": ["b", "a"], "cost": [90, 6]}
        ),
        other,
    )
    done = ringfence("predict", model, other, "--id", "patient", "--probabilities", "--out", out)
    assert done.stdout == f"Wrote 2 predictions to {out}.\n"
    text = new.with_name("out.csv")
    ringfence("predict", model, new, "--id", "patient", "--probabilities", "--out", text)
    assert texts(read_table(out)) == texts(read_table(text))


def test_what_cannot_be_predicted_is_one_sentence(model: Path, new: Path) -> None:
    for changes, says in [
        (["--id", "name"], "has no column 'name' to copy"),
        (["--interval", "0.9"], "train two models with --loss pinball"),
        (["--upper", str(model)], "two with the pinball loss"),
        (["--out", str(new / "here.csv")], "cannot be written"),
    ]:
        refuses(says, "predict", model, new, *changes)


def test_a_card_is_printed_or_written(model: Path) -> None:
    out = model.with_suffix(".md")
    ringfence("model", "card", model, "--out", out)
    assert ringfence("model", "card", model).stdout == out.read_text()
    assert "held-out records of all silos" in out.read_text()
    refuses("cannot be written", "model", "card", model, "--out", out / "x")


def test_an_exported_graph_predicts_what_the_command_predicts(model: Path, new: Path) -> None:
    out = model.with_suffix(".onnx")
    refuses("name a file with --out", "model", "export", model, "--to", "onnx")
    ringfence("model", "export", model, "--to", "onnx", "--out", out)
    session = onnxruntime.InferenceSession(out.read_bytes(), providers=["CPUExecutionProvider"])
    matrix = Model.load(model).linear().matrix(read_table(new), mapped=False)
    (predicted,) = session.run(["prediction"], {"features": matrix})
    assert predicted.tolist() == ["yes", "no"]
