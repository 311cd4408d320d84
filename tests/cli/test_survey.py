"""`ringfence survey`: the features' means and deviations, privately, on the ledger's account."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Federation, Json, Ringfence, epsilon

HALF_WIDTHS = {"age": 50.0, "dose": 5.0, "cost": 50.0}
"""How many of its own units one scaled unit of a number is."""


def truth(federation: Federation, target: str) -> dict[str, tuple[float, float]]:
    """Mean and deviation of every number in its own units, a numeric target's too, and of every category."""
    values = {name: np.array(federation.column(name), dtype=float) for name in HALF_WIDTHS}
    for name, categories in (("ward", "abc"), ("ill", ["no", "yes"])):
        for category in categories if name != target else []:
            values[f"{name}={category}"] = np.array(federation.column(name)) == category
    return {name: (float(np.mean(column)), float(np.std(column))) for name, column in values.items()}


@pytest.mark.parametrize("target", ["ill", "cost"])
def test_a_survey_finds_means_and_deviations_up_to_its_noise(
    federation: Federation, ringfence_json: Json, target: str
) -> None:
    report = ringfence_json(*federation.survey(target=target, epsilon="1000"))
    expected = truth(federation, target)
    assert set(report["features"]) == set(expected)
    # Each number has Gaussian noise of at most this deviation; beyond 7 of them in any of 18 numbers: chance < 1e-10.
    beyond = 7 * report["noise"]
    for name, (mean, deviation) in expected.items():
        unit = HALF_WIDTHS.get(name, 1.0)
        found = report["features"][name]
        assert found["mean"] == pytest.approx(mean, abs=beyond * unit)
        # s² = square − mean²: the square's noise is X times as large, the mean's counts 2|mean| ≤ 2 times.
        slack = math.sqrt(5) * beyond + 2 * beyond + beyond**2
        assert found["deviation"] ** 2 == pytest.approx(deviation**2, abs=slack * unit**2)
    assert report["noise"] < 0.001


def test_a_numeric_target_is_surveyed_and_a_category_is_not(federation: Federation, ringfence_json: Json) -> None:
    assert "cost" in ringfence_json(*federation.survey(target="cost"))["features"]
    features = ringfence_json(*federation.survey(target="ill"))["features"]
    assert not any(name.startswith("ill") for name in features)


def test_the_ledger_is_charged_what_the_survey_may_cost(
    federation: Federation, ringfence_json: Json, check_ledgers: Callable[[dict[str, Any]], None]
) -> None:
    report = ringfence_json(*federation.survey(epsilon="0.5"))
    for silo in report["silos"].values():
        assert silo["records"] == 300  # all records answer; there is nothing to test on
        assert silo["rounds"] == 1
        assert epsilon(silo["this_run"]) == pytest.approx(0.5, rel=1e-3)
        assert epsilon(silo["this_run"]) <= 0.5
    check_ledgers(report)


def test_training_afterwards_composes_with_the_survey(
    federation: Federation, ringfence_json: Json, check_ledgers: Callable[[dict[str, Any]], None]
) -> None:
    surveyed = ringfence_json(*federation.survey(epsilon="1"))
    trained = ringfence_json(*federation.train("--max-rounds", "4", epsilon="1"))
    for name, silo in trained["silos"].items():
        # Two Gaussian mechanisms of equal cost compose to √2 times the shift: more than one, less than both.
        assert epsilon(surveyed["silos"][name]["all_runs"]) == pytest.approx(1.0, rel=1e-3)
        assert epsilon(silo["this_run"]) == pytest.approx(1.0, rel=1e-3)
        assert 1.3 < epsilon(silo["all_runs"]) < 1.7
    check_ledgers(trained)
    check_ledgers({**surveyed, "silos": {
        name: {**silo, "all_runs": trained["silos"][name]["all_runs"]}
        for name, silo in surveyed["silos"].items()
    }})  # fmt: skip


def test_a_cap_counts_the_survey(federation: Federation, ringfence: Ringfence, ringfence_json: Json) -> None:
    ringfence_json(*federation.survey(epsilon="1"))
    before = federation.ledgers()
    refused = ringfence(*federation.train("--max-rounds", "4", "--cap", "1.2,1e-6", epsilon="1"))
    assert refused.returncode == 1
    assert "more than its budget of 1.2" in refused.stderr
    assert set(federation.ledgers()) == set(before)
    for name in ("north", "south", "west"):
        (only,) = ringfence_json("ledger", str(federation.folder / f"{name}.ledger"))["plans"]
        assert only["charged"] == 1


def test_the_table_names_its_units_its_noise_and_who_is_protected(federation: Federation, ringfence: Ringfence) -> None:
    done = ringfence(*federation.survey())
    assert done.returncode == 0
    title, header, *_ = done.stdout.splitlines()
    assert title.startswith("Numbers in their own units, categories as scaled; the noise in a scaled mean is ")
    assert header.split() == ["feature", "mean", "standard", "deviation"]
    assert "ward=b" in done.stdout
    assert "north: each of 300 records, over 1 round" in done.stdout
    assert "What is not protected" in done.stdout


def test_more_privacy_is_more_noise(federation: Federation, ringfence_json: Json) -> None:
    noise = [ringfence_json(*federation.survey(epsilon=epsilon))["noise"] for epsilon in ("0.1", "1", "10")]
    assert noise[0] > noise[1] > noise[2] > 0
