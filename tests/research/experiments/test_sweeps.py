"""What experiments make of a sweep's rows."""

import itertools
import math

import pytest

from ringfence.errors import SweepError
from ringfence.research.experiments.sweeps import summarise
from ringfence.simulation.cells import Row


def test_a_summary_has_mean_percentiles_and_count_per_group_in_order() -> None:
    rows: list[Row] = [
        {"loss": loss, "epsilon": epsilon, "trial": trial, "error": trial * epsilon}
        for loss, epsilon, trial in itertools.product(["logistic", "hinge"], [2.0, 1], range(21))
    ]
    summary = summarise(iter(rows), by=["epsilon", "loss"], value="error")
    assert [(group["epsilon"], group["loss"]) for group in summary] == [
        (1, "hinge"),
        (1, "logistic"),
        (2.0, "hinge"),
        (2.0, "logistic"),
    ]
    expected = {"mean": 20.0, "percentile_5": 2.0, "percentile_95": 38.0, "count": 21}
    assert summary[3] == {"epsilon": 2.0, "loss": "logistic", **expected}
    assert summarise(rows, by=[], value="trial")[0]["count"] == 84
    assert summarise([], by=["a"], value="b") == []


def test_a_summary_shows_a_diverged_run_and_refuses_what_has_no_mean() -> None:
    rows: list[Row] = [{"a": 1, "text": "x", "error": error} for error in (0.5, math.inf, math.inf)]
    (group,) = summarise(rows, by=["a"], value="error")
    assert group["mean"] == math.inf
    with pytest.raises(SweepError, match="holds text"):
        summarise(rows, by=["a"], value="text")
    with pytest.raises(SweepError, match="no column 'b'"):
        summarise(rows, by=["b"], value="error")
