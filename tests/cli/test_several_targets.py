"""Several targets, a lasso and a model's weights on the command line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from ringfence.model.model import Model
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json

TARGETS = ["--target", "cost", "--target", "dose"]


@pytest.fixture
def trained(federation: Federation) -> Path:
    return federation.model(*TARGETS, epsilon="50")


def test_two_targets_are_trained_evaluated_predicted_and_exported(federation: Federation, trained: Path) -> None:
    model = Model.load(trained)
    assert model.plan.data.targets == ("cost", "dose")
    assert "dose" not in model.plan.data.features
    assert model.plan.aim == "to predict “cost and dose”"
    assert model.evaluation is not None
    text = {figure.name.removesuffix(" of clipped errors"): figure for figure in model.evaluation.together.metrics}
    # Costs have a deviation of 18, and doses, which age and ward say little of, one of 2.9, at this little noise.
    for name, most in (("cost", 18.0), ("dose", 3.5)):
        error = text[f"{name}: RMSE"].low  # without its name: nothing need be clipped
        assert error is not None
        assert error < most
    done = ringfence("predict", trained, federation.files[0], "--id", "age")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert list(rows[0]) == ["age", "cost", "dose"]
    assert len(rows) == 300
    expected = np.array(model.predict_csv(federation.files[0]), dtype=np.float64)
    np.testing.assert_allclose([[float(row["cost"]), float(row["dose"])] for row in rows], expected)
    exported = json.loads(ringfence("model", "export", trained, "--to", "json").stdout)
    assert exported["outputs"] == ["cost", "dose"]
    assert np.shape(exported["coefficients"]) == (2, len(exported["features"]))
    assert "The first 2 columns are predicted" in ringfence("model", "card", trained).stdout
    shown = ringfence_json("model", "show", trained)["weights"]
    sizes = [abs(row["weight"]) for row in shown]
    assert sizes == sorted(sizes, reverse=True)
    assert {row["of"] for row in shown} == {"cost", "dose"}


def test_what_is_of_one_target_alone_is_refused_with_the_remedy(federation: Federation, trained: Path) -> None:
    refuses("Intervals are for a single target", "predict", trained, federation.files[0], "--interval", "0.9")
    before = federation.ledgers()
    for options, says in (
        ([*TARGETS, "--loss", "huber"], "need the multi-squared loss"),
        ([*TARGETS, "--algorithm", "preconditioned"], "ask for accelerated"),
        (["--target", "cost", "--target", "ward"], "each must be a number with bounds: 'ward' is not"),
        (["--target", "cost", "--target", "cost"], "the column 'cost' is named as a target and as something else"),
    ):
        refuses(says, *federation.train(*options))
    assert federation.ledgers() == before


def test_a_lasso_shrinks_weights_to_zero_and_the_explanation_names_it(federation: Federation) -> None:
    out = federation.folder / "model.json"
    report = ringfence_json(
        *federation.train("--anyway", "--lasso", "0.08", "--average", "last", "--out", out, target="cost", epsilon="50")
    )
    model = Model.load(out)
    assert model.plan.lasso == 0.08
    assert "lasso" in report["explanation"][1]
    assert report["explanation"][0].startswith("accelerated")
    weights = {name: weight for name, _, weight in model.by_size()}
    # No slope at 0 is more than half of the lasso, and the noise's deviation is a thirtieth of it: none leaves 0.
    assert weights.pop("intercept") != 0.0
    assert set(weights.values()) == {0.0}
