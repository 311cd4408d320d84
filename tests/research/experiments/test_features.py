"""`ringfence reproduce features` runs from images to the page, with public images that nobody holds."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence.research import datasets
from ringfence.research.experiments import features
from ringfence.research.experiments.features_page import ALIKE, SKEWED
from tests.research.rehearsals import DATA, cells, needs_data, rehearse

pytestmark = needs_data


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    features.build.cache_clear()
    yield home
    features.build.cache_clear()


def test_a_rehearsal_writes_page_figure_and_cells_and_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    page = rehearse("features", tmp_path, "features", data_dir=DATA)
    assert "| nobody, through real gates | 3 | 3.0000 |" in page  # the ledgers charged what was promised
    assert cells(tmp_path) == len(features.wanted(quick=True))


def test_images_are_encoded_as_the_schema_says_and_kept_in_the_cache(own_cache: Path) -> None:
    problem = features.build(features.QUICK, DATA)
    (kept,) = (own_cache / "ringfence" / "features").iterdir()
    assert problem.private[0].shape == (features.QUICK.private, features.QUICK.components + 1)
    assert problem.test[0].shape == (features.QUICK.tested, features.QUICK.components + 1)
    assert np.all(np.linalg.norm(problem.private[0], axis=1) <= problem.schema.feature_norm * (1 + 1e-12))
    with np.load(kept) as found:
        assert f'"digest":"{found["digest"]}"' in problem.schema.model_dump_json()
    written = kept.stat().st_mtime_ns
    features.build.cache_clear()
    again = features.build(features.QUICK, DATA)
    np.testing.assert_array_equal(again.private[0], problem.private[0])
    assert kept.stat().st_mtime_ns == written


def test_the_map_comes_from_public_images_alone_and_these_are_in_no_silo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes one private image, and every image that is in no part, changes that one's features alone."""
    size, mnist = features.QUICK, datasets.load_mnist(DATA)
    problem = features.problem_of(size, mnist)
    order = np.random.default_rng(0).permutation(len(mnist.training.images))
    used, moved = order[: size.public + size.private], order[size.public]
    images = np.zeros_like(mnist.training.images)
    images[used] = mnist.training.images[used]
    images[moved] = 255 - images[moved]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # the other one remembers the published images
    again = features.problem_of(size, datasets.Mnist(datasets.Digits(images, mnist.training.labels), mnist.test))
    rows = np.flatnonzero(np.any(again.private[0] != problem.private[0], axis=1))
    assert rows.tolist() == np.flatnonzero(np.sort(used[size.public :]) == moved).tolist()
    np.testing.assert_array_equal(again.test[0], problem.test[0])


def test_silos_hold_every_private_image_once_and_skewed_ones_two_digits_each() -> None:
    private = features.build(features.QUICK, DATA).private
    for panel in (ALIKE, SKEWED):
        silos = features.divided(private, panel)
        assert len(silos) == 10
        together = np.concatenate([own for own, _ in silos])
        assert len(np.unique(together, axis=0)) == len(together) == len(private[1])
        digits = [np.unique(own) for _, own in silos]
        assert all(len(own) == (2 if panel == SKEWED else 10) for own in digits)
