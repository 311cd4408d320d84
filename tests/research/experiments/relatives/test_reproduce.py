"""`ringfence reproduce relatives` runs from the tables to the page."""

from pathlib import Path

import pytest

from ringfence.research.experiments.league.methods import OURS, OURS_POOLED
from ringfence.research.experiments.league.results import LeaguePoint, LeagueResults, Reference
from ringfence.research.experiments.league.tables import load_table
from ringfence.research.experiments.relatives import federation, methods, page
from ringfence.research.experiments.relatives.methods import PUBLISHED, RACED, RELATIVES
from tests.research.experiments.league.made_up import write_league
from tests.research.rehearsals import rehearse


def test_a_rehearsal_writes_page_figure_and_cells_and_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    write_league(tmp_path)
    out = tmp_path / "relatives-page"
    written = rehearse("relatives", out, "regret", data_dir=tmp_path)
    for name, method in RELATIVES.items():
        assert f"| {method.name} | {method.trusted} | {'chosen' if method.tuned else page.settings_of(name)}" in written


def test_a_curator_has_all_records_and_a_silo_its_own(tmp_path: Path) -> None:
    table = load_table(write_league(tmp_path), "ill")
    apart, together = federation.silos(table, 1.0), federation.curator(table, 1.0)
    assert [party.records for party in apart.parties] == list(table.sizes.values())
    assert [party.records for party in together.parties] == [sum(table.sizes.values())]
    assert together.parties[0].delta == max(party.delta for party in apart.parties)


def test_settings_are_chosen_with_other_noise_than_is_shown(tmp_path: Path) -> None:
    table = load_table(write_league(tmp_path), "cost")
    relative, trusted = RACED["fedfc"]
    first, again, other = (
        methods.run(relative, trusted, True, table, 1.0, seeds) for seeds in ([0, 1], [0, 1], [2, 3])
    )
    assert [run.chosen for run in first] == [run.chosen for run in other] == [first[0].chosen] * 2
    assert all((one.weights == two.weights).all() for one, two in zip(first, again, strict=True))
    assert not (first[0].weights == first[1].weights).all()
    assert not (first[0].weights == other[0].weights).all()


@pytest.mark.parametrize(("error", "wins"), [(0.15, True), (0.19, False)])
def test_a_relative_wins_where_it_errs_less_by_more_than_two_standard_errors(error: float, wins: bool) -> None:
    def point(mean: float) -> LeaguePoint:
        return LeaguePoint(mean, 0.01, mean, 0.01, 15, 10)

    points = {(name, "a", 1.0): point(0.3) for name in RELATIVES}
    points |= {(name, "a", 1.0): point(0.2) for name in (OURS, OURS_POOLED)}
    points["fedsofim" + PUBLISHED, "a", 1.0] = point(error)
    results = LeagueResults([Reference("a", "ill", 100, 2, 3, guessing=1.0, not_private=0.0)], points)
    written = "\n\n".join(page.parts_of(results, "ringfence reproduce relatives --out here"))
    assert ("| a | nobody | 1 | DP-FedSOFIM | published |" in written) is wins
    assert f"In {int(wins)} of 2 cells" in written
