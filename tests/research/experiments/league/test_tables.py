"""A league is any folder of tables in one layout; errors are shares of wrong labels, or relative to the mean."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import DatasetError
from ringfence.protocol import parse_schema
from ringfence.protocol.schema.columns.numeric import Numeric
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.tables import league_folder, load_table, table_names, widened
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


def test_wide_bounds_shrink_numbers_and_change_neither_targets_nor_the_linear_model(tmp_path: Path) -> None:
    league = write_league(tmp_path)
    given, wide = load_table(league, "cost"), load_table(league, "cost", wide=True)
    dose = wide.schema.features["dose"]
    assert isinstance(dose, Numeric)
    assert (dose.lower, dose.upper) == (0, 100), "a bound of 0 stays"
    assert wide.schema.target_column == given.schema.target_column
    # From 0 to 10 becomes from −1 to 1 by the given bounds, and from −1 to −0.8 by the wide ones.
    np.testing.assert_allclose(wide.pooled[0][:, 0], (given.pooled[0][:, 0] + 1) / 10 - 1)
    np.testing.assert_array_equal(wide.pooled[0][:, 1:], given.pooled[0][:, 1:])
    np.testing.assert_array_equal(wide.pooled[1], given.pooled[1])
    errors = [table.error(not_private(table.loss, *table.pooled)) for table in (given, wide)]
    assert errors[0] == pytest.approx(errors[1])


def test_an_interval_without_0_at_an_end_grows_around_its_middle() -> None:
    columns = {
        "age": {"type": "numeric", "lower": 20, "upper": 30},
        "ill": {"categories": ["no", "yes"], "type": "categorical"},
    }
    column = widened(parse_schema({"columns": columns}, target="ill")).features["age"]
    assert isinstance(column, Numeric)
    assert (column.lower, column.upper) == (-25, 75)


@needs_data
@pytest.mark.parametrize(
    ("name", "guessing", "error"), [("concrete", 1.0, 0.585), ("digits", 0.914, 0.039), ("oj", 0.404, 0.188)]
)
def test_public_tables_have_the_published_errors_without_privacy(name: str, guessing: float, error: float) -> None:
    table = load_table(league_folder(DATA), name)
    assert round(table.guessing, 3) == guessing
    assert round(table.error(not_private(table.loss, *table.pooled)), 3) == error
