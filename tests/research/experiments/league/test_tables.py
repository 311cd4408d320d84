"""A league is any folder of tables in one layout; errors are shares of wrong labels, or relative to the mean."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import DatasetError
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.tables import league_folder, load_table, table_names
from tests.research.experiments.league.made_up import write_league
from tests.research.rehearsals import DATA, needs_data


def test_the_tables_lie_below_the_data_folder_or_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    league = write_league(tmp_path)
    assert league_folder(tmp_path) == league_folder(league) == league
    monkeypatch.setenv("RINGFENCE_DATA", str(tmp_path))
    assert league_folder(None) == league
    assert table_names(league) == ["cost", "ill"]


def test_without_tables_it_is_said_what_a_table_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetError, match=r"A table is a folder with target\.txt"):
        league_folder(tmp_path)
    monkeypatch.delenv("RINGFENCE_DATA", raising=False)
    with pytest.raises(DatasetError, match="with --data or RINGFENCE_DATA"):
        league_folder(None)


def test_guessing_the_training_mean_is_the_unit_of_a_numbers_error(tmp_path: Path) -> None:
    table = load_table(write_league(tmp_path), "cost")
    assert table.guessing == 1.0
    constant = np.zeros(table.shape)
    constant[-1] = table.pooled[1].mean() / table.pooled[0][0, -1]  # the intercept is the last feature
    assert table.error(constant) == pytest.approx(1.0, abs=1e-12)


def test_the_error_of_labels_is_the_share_of_wrong_ones(tmp_path: Path) -> None:
    table = load_table(write_league(tmp_path), "ill")
    assert table.error(np.zeros(table.shape)) == np.mean(table.held_out[1] > 0)  # a score of 0 says "no"
    assert table.error(not_private(table.loss, *table.pooled)) < table.guessing


@needs_data
@pytest.mark.parametrize(
    ("name", "guessing", "error"), [("concrete", 1.0, 0.585), ("digits", 0.914, 0.039), ("oj", 0.404, 0.188)]
)
def test_public_tables_have_the_published_errors_without_privacy(name: str, guessing: float, error: float) -> None:
    table = load_table(league_folder(DATA), name)
    assert round(table.guessing, 3) == guessing
    assert round(table.error(not_private(table.loss, *table.pooled)), 3) == error
