"""Regret lies between no privacy, 0, and guessing, 1; a rule is reported on the table that did not choose it."""

import pytest

from ringfence.research.experiments.league.results import (
    LeagueResults,
    Reference,
    agreements,
    leave_one_table_out,
    points_of,
)
from ringfence.simulation.cells import Row

REFERENCES = [
    Reference("a", "ill", 100, 2, 3, guessing=0.5, not_private=0.1),
    Reference("b", "cost", 100, 2, 3, guessing=1.0, not_private=0.6),
]


def cells(errors: dict[str, list[float]], epsilon: float = 1.0) -> list[Row]:
    return [
        {"table": table, "epsilon": epsilon, "trial": trial, "error": error, "rounds": 12}
        for table, own in errors.items()
        for trial, error in enumerate(own)
    ]


def test_regret_is_0_without_privacy_and_1_for_guessing() -> None:
    assert [REFERENCES[0].regret(error) for error in (0.1, 0.3, 0.5)] == pytest.approx([0.0, 0.5, 1.0])


def test_the_mean_regret_has_the_error_that_its_tables_noise_leaves() -> None:
    points = points_of(cells({"a": [0.1, 0.3], "b": [0.8, 0.8]}), "ours", REFERENCES)
    results = LeagueResults(REFERENCES, points)
    assert points["ours", "a", 1.0].spread == pytest.approx(0.1)  # half of their distance
    assert results.mean_regret("ours", 1.0) == pytest.approx(((0.25 + 0.5) / 2, 0.25 / 2))
    assert results.median_rounds("ours") == 12
    assert (results.methods, results.epsilons, results.trials) == (["ours"], [1.0], 2)


def test_regret_against_the_best_model_counts_what_the_linear_one_cannot_learn() -> None:
    points = points_of(cells({"a": [0.1, 0.1], "b": [0.5, 0.7]}), "ours", REFERENCES)
    floors = {("splines", "a"): 0.2, ("trees", "a"): 0.05, ("splines", "b"): 0.7, ("trees", "b"): 0.8}
    results = LeagueResults(REFERENCES, points, floors=floors)
    best = results.against_best
    assert [own.not_private for own in best.references] == [0.05, 0.6], (
        "trees on one table, the linear model on the other"
    )
    assert results.mean_regret("ours", 1.0)[0] == pytest.approx(0.0)
    assert best.mean_regret("ours", 1.0) == pytest.approx(((0.05 / 0.45 + 0.0) / 2, (0.1 / 0.4) / 2))
    assert best.at("ours", "a", 1.0).error == points["ours", "a", 1.0].error  # type: ignore[union-attr]


def test_a_rule_is_chosen_on_the_other_tables_and_reported_on_this_one() -> None:
    rules = {"bold": cells({"a": [0.1], "b": [1.0]}), "careful": cells({"a": [0.5], "b": [0.6]})}
    first, second = leave_one_table_out(rules, REFERENCES)
    # Each rule is perfect on one table, and would be chosen on the other by a look at both.
    assert (first.table, first.rule, first.regrets, first.least) == ("a", "careful", {1.0: 1.0}, {1.0: 0.0})
    assert (second.table, second.rule, second.regrets, second.least) == ("b", "bold", {1.0: 1.0}, {1.0: 0.0})


def test_gates_that_err_as_the_simulator_does_agree_with_it_and_others_do_not() -> None:
    drawn = [0.20, 0.21, 0.22, 0.23]
    (alike,) = agreements(cells({"a": [0.21, 0.22]}), cells({"a": drawn, "b": drawn}), "nobody")
    assert (alike.table, alike.runs) == ("a", 2)
    assert alike.chance == pytest.approx(1.0)
    (apart,) = agreements(cells({"a": [0.41, 0.42, 0.43]}), cells({"a": drawn}), "nobody")
    assert apart.chance < 1e-4
    (same,) = agreements(cells({"a": [0.2, 0.2]}), cells({"a": [0.2, 0.2]}), "nobody")
    assert same.chance == 1.0
    (steady,) = agreements(cells({"a": [0.05, 0.05]}), cells({"a": [0.05, 0.05, 0.06]}), "nobody")
    assert steady.chance > 0.1
    (other,) = agreements(cells({"a": [0.3, 0.3]}), cells({"a": drawn}), "nobody")
    assert other.chance < 1e-2
