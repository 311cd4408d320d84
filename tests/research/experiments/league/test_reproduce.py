"""`ringfence reproduce league` runs from the tables to the page, and through real gates too."""

import os
import re
from pathlib import Path

from ringfence.research.experiments.league import own
from ringfence.research.experiments.league.methods import METHODS, OURS_SHUFFLED
from ringfence.research.experiments.league.tables import load_table
from ringfence.research.experiments.reproduce import reproduce
from tests.research.experiments.league.made_up import write_league
from tests.research.rehearsals import rehearse


def test_a_rehearsal_writes_page_figure_and_cells_and_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    write_league(tmp_path)
    out = tmp_path / "league-page"
    page = rehearse("league", out, "regret", data_dir=tmp_path)
    for name, method in METHODS.items():
        tables = " (1 of 2 tables)" if name == OURS_SHUFFLED else ""
        assert f"| {method.name}{tables} | {method.trusted} |" in page or f"{method.name} is missing" in page
    assert "| table | guessing | linear | additive splines | boosted trees |" in page
    assert "| mean regret |" in page.partition("## Bounds 10 times too wide")[2]
    assert re.search(r"\| `wide-ringfence` \| 20\d\d-\d\d-\d\d \| `ringfence\[research\]` \|", page)
    assert "| ill | a shuffler | 1 |" in page  # through real gates
    assert "| cost | a shuffler | 1 |" not in page  # two silos are too few to hide among
    assert "Leaving one table out" not in page

    for rule in ("bold", "careful"):  # cells of two rules, here the same ones
        (out / f"rule-{rule}.jsonl").write_bytes((out / "cells-quick-ringfence.jsonl").read_bytes())
    assert "| cost | bold |" in reproduce("league", out, data_dir=tmp_path, quick=True).read_text()


def test_a_trial_through_gates_leaves_the_state_folder_as_it_was(tmp_path: Path) -> None:
    table, before = load_table(write_league(tmp_path), "ill"), os.environ.get("XDG_STATE_HOME")
    first, second = (own.through_gates(table, 3.0, "nobody") for _ in range(2))
    assert os.environ.get("XDG_STATE_HOME") == before
    assert not (first.weights == second.weights).all()
    assert first.rounds == own.simulated(table, 3.0, [0], "nobody")[0].rounds
