"""Errors and coverage of statistics are measured on what a real plan answers."""

from ringfence.research.experiments.looking_statistics import statistics_rows


def test_every_statistic_is_measured_of_one_silo_and_of_all_with_its_interval() -> None:
    rows = statistics_rows(runs=1)
    kinds = ("deviation", "mean", "median", "missing share", "share")
    assert [(row.statistic, row.of) for row in rows] == [
        (kind, of) for kind in kinds for of in ("all silos", "one silo")
    ]
    for row in rows:
        assert 0 < row.half_length < 50
        assert 0 <= row.covers_records <= 1
