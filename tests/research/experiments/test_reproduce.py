"""`ringfence reproduce` runs from the data to the page, and resumes."""

from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.research.experiments import insurance, mnist, obesity
from ringfence.research.experiments.reproduce import reproduce
from tests.research.rehearsals import DATA, cells, needs_data, rehearse


@needs_data
def test_a_rehearsal_writes_every_cell_the_figures_and_the_page_and_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    rehearse("insurance", tmp_path, "error", "training-loss", data_dir=DATA)
    assert cells(tmp_path) == 2 * (4 * 2 + 3)  # two trials of four private curves at two epsilons and three others


@needs_data
def test_no_image_is_in_two_silos_or_in_training_and_test() -> None:
    trial = mnist.build("M = 25", 0, DATA)
    assert trial.ours.sizes == [1238] * 25
    images = np.concatenate([*(features for features, _ in trial.paper.silos), trial.paper.test[0]])
    assert len(np.unique(images, axis=0)) == len(images) == 25 * (1238 + 310)


@needs_data
@pytest.mark.parametrize(
    ("module", "panel"), [(mnist, "M = 12"), (insurance, "N = 10, M = 5"), (obesity, "M = 3")], ids=str
)
def test_public_bounds_hold_for_every_record(module: object, panel: str) -> None:
    problem = module.build(panel, 1, DATA).ours  # type: ignore[attr-defined]
    for features, targets in [*problem.silos, problem.test]:
        assert np.linalg.norm(features, axis=1).max() <= problem.geometry.feature_norm * (1 + 1e-6)
        if problem.loss.name == "squared":
            assert np.abs(targets).max() <= problem.geometry.target_bound


@needs_data
def test_every_obesity_silo_holds_one_class() -> None:
    problem = obesity.build("M = 7", 0, DATA).ours
    assert [set(targets) for _, targets in problem.silos] == [{float(level)} for level in range(7)]


def test_an_unknown_experiment_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="choose one of mnist, insurance, obesity"):
        reproduce("titanic", tmp_path)
