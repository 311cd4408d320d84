"""Models without privacy that are not linear: they learn curves, and nothing from records that measure them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringfence.protocol import FloatArray, Logistic, Squared
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.floors import additive_splines, boosted_trees, spline_model
from ringfence.research.experiments.league.tables import LeagueTable, league_folder, load_table
from ringfence.silo.records.records import Records
from tests.research.experiments.league.made_up import write_league
from tests.research.rehearsals import DATA, needs_data


def curve(records: int) -> tuple[FloatArray, FloatArray]:
    """Return a feature, a flag and an intercept, and a wave of the feature."""
    random = np.random.default_rng(5)
    x = random.uniform(-1, 1, records)
    features = np.column_stack([x, random.integers(0, 2, records), np.ones(records)])
    return features, np.sin(4 * x) + 0.3 * features[:, 1]


def test_splines_learn_a_wave_that_no_line_can() -> None:
    features, targets = curve(400)
    scores = spline_model(Squared(), features, targets, 10, 0.1)(features)[:, 0]
    line = features @ not_private(Squared(), features, targets)[:, 0]
    assert np.std(scores - targets) < 0.05 < 0.3 < np.std(line - targets)


def test_splines_separate_labels_that_no_line_can() -> None:
    features, _ = curve(400)
    labels = np.where(np.abs(features[:, 0]) > 0.5, 1.0, -1.0)
    scores = spline_model(Logistic(), features, labels, 10, 0.1)(features)[:, 0]
    assert np.mean((scores > 0) == (labels > 0)) > 0.9


@pytest.mark.parametrize("name", ["cost", "ill"])
def test_the_setting_of_splines_and_the_trees_depend_on_no_held_out_record(name: str, tmp_path: Path) -> None:
    table = load_table(write_league(tmp_path), name)
    others = replace(table, tests={"upside-down": mirrored(table)})
    for floor in (additive_splines, boosted_trees):
        (own,), (other,) = floor(table, np.inf, [0]), floor(others, np.inf, [0])
        assert own.chosen == other.chosen
        assert np.array_equal(own.scores[::-1], other.scores)
        assert own.error(table) < 0.5 * table.guessing < other.error(others)


def mirrored(table: LeagueTable) -> Records:
    """Return the held-out features the other way round, with targets of the opposite sign."""
    features, targets = table.held_out
    return Records(table.schema, features[::-1], -targets[::-1])


@needs_data
def test_concrete_has_the_published_errors() -> None:
    table = load_table(league_folder(DATA), "concrete")
    # Trees and folds may differ a little between versions of scikit-learn.
    assert additive_splines(table, np.inf, [0])[0].error(table) == pytest.approx(0.290, abs=0.01)
    assert boosted_trees(table, np.inf, [0])[0].error(table) == pytest.approx(0.267, abs=0.01)
