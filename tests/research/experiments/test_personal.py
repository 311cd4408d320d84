"""`ringfence reproduce personal` runs from the gates to the page."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.research.experiments import personal
from tests.research.rehearsals import DATA, cells, needs_data, rehearse


@needs_data
def test_a_rehearsal_writes_page_figure_and_cells_and_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    page = rehearse("personal", tmp_path, "personal", data_dir=DATA)
    assert "| 6 | 6.0000 |" in page  # the ledgers charged what was promised
    assert cells(tmp_path) == len(personal.wanted("obesity", quick=True))


@needs_data
def test_every_school_is_a_silo_and_errors_are_of_scores_from_0_to_1() -> None:
    problem = personal.build_school(0, DATA)
    assert len(problem.training) == len(problem.held_out) == 139
    assert sum(len(part[1]) for part in (*problem.training, *problem.held_out)) == 15_362
    assert problem.delta == 1e-3
    worst = problem.error(np.array([[1.0]]), np.array([-1.0]))  # 70 for 1
    assert worst == 1.0


@needs_data
@pytest.mark.parametrize("name", ["mnist", "obesity"])
def test_no_record_is_both_fitted_and_measured(name: str) -> None:
    problem = personal.DATA[name].build(0, DATA)
    for (features, _), (unseen, _) in zip(problem.training, problem.held_out, strict=True):
        assert len(unseen) > 0
        assert features.shape[1] == unseen.shape[1] == problem.schema.width
    if name == "mnist":  # no two images are alike
        rows = np.concatenate([part[0] for part in (*problem.training, *problem.held_out)])
        assert len(np.unique(rows, axis=0)) == len(rows)
