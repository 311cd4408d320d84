"""`ringfence train --loss NAME`: every loss trains what it is for, in the target's own units."""

import numpy as np
import pytest

from ringfence.model import Model
from ringfence.protocol.losses import EpsilonInsensitive, Huber, Pinball
from tests.cli.conftest import Federation, Json, epsilon

# Of the costs, whose standard deviation is about 18. At epsilon 50 the noise is far too small to matter here.
GOOD = 6.0


def cost_model(federation: Federation, ringfence_json: Json, *options: str) -> tuple[float, Model]:
    out = federation.folder / "model.json"
    report = ringfence_json(
        *federation.train(*options, "--max-rounds", "25", "--out", str(out), "--overwrite", target="cost", epsilon="50")
    )
    assert all(epsilon(silo["this_run"]) == pytest.approx(50, rel=1e-3) for silo in report["silos"].values())
    return report["test"]["rmse"], Model.load(out)


@pytest.mark.parametrize("algorithm", [[], ["--algorithm", "minibatch-sgd"]])
def test_hinge_separates_labels(federation: Federation, ringfence_json: Json, algorithm: list[str]) -> None:
    report = ringfence_json(*federation.train("--loss", "hinge", "--max-rounds", "20", *algorithm, epsilon="50"))
    assert report["loss"] == "hinge"
    assert report["test"]["accuracy"] > 0.75
    assert "smoothing the loss's kink adds up to" in report["explanation"][1]


@pytest.mark.parametrize(
    "options", [["absolute"], ["pinball"], ["epsilon-insensitive"], ["epsilon-insensitive", "--margin", "0.05"]]
)
def test_losses_of_numbers_predict_them(federation: Federation, ringfence_json: Json, options: list[str]) -> None:
    rmse, model = cost_model(federation, ringfence_json, "--loss", *options)
    assert model.plan.loss.name == options[0]
    assert rmse < GOOD


@pytest.mark.parametrize("loss", ["huber", "epsilon-insensitive"])
def test_the_margin_is_the_loss_s_own(federation: Federation, ringfence_json: Json, loss: str) -> None:
    _, model = cost_model(federation, ringfence_json, "--loss", loss, "--margin", "0.25")
    found = model.plan.loss
    assert isinstance(found, Huber | EpsilonInsensitive)
    assert (found.threshold if isinstance(found, Huber) else found.margin) == 0.25


def test_a_quantile_lies_above_most_records_if_it_is_high_and_below_if_low(
    federation: Federation, ringfence_json: Json
) -> None:
    truth = np.array([float(cell) for cell in federation.column("cost")])
    above = {}
    for quantile in (0.1, 0.9):
        _, model = cost_model(federation, ringfence_json, "--loss", "pinball", "--quantile", str(quantile))
        assert isinstance(model.plan.loss, Pinball)
        assert model.plan.loss.quantile == quantile
        predicted = np.concatenate([model.predict_csv(file) for file in federation.files]).astype(float)
        above[quantile] = np.mean(predicted > truth)
    assert above[0.1] < 0.5 < above[0.9]
