"""Components of public records: a frozen linear map of known sizes, which files carry to the last digit."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.sources.features import PublicComponents

RANDOM = np.random.default_rng(3)
PUBLIC = RANDOM.standard_normal((400, 12)) * np.geomspace(10.0, 0.1, 12) + 5.0
MINE = RANDOM.standard_normal((9000, 12)) + 5.0


def fitted(components: int = 5, power: float = 0.9) -> PublicComponents:
    return PublicComponents.fit(PUBLIC, components, of="lengths", power=power)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_components_do_not_go_together_and_vary_by_what_the_power_leaves(power: float) -> None:
    covariance = np.cov(fitted(power=power)(PUBLIC).T, bias=True)
    plain = np.linalg.eigvalsh(np.cov(PUBLIC.T, bias=True))[::-1][:5]
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-5 * covariance[0, 0])
    np.testing.assert_allclose(np.diag(covariance) / covariance[0, 0], (plain / plain[0]) ** (1 - power), rtol=1e-4)


def test_a_record_s_numbers_depend_on_it_and_the_map_alone_and_half_of_the_public_ones_are_longer_than_1() -> None:
    made = fitted()
    together = made(MINE)
    assert (together.shape, made(MINE[:0]).shape) == ((9000, 5), (0, 5))
    np.testing.assert_allclose(made(MINE[8000:8001])[0], together[8000], rtol=1e-4, atol=1e-6)
    assert np.median(np.linalg.norm(made(PUBLIC), axis=1)) == pytest.approx(1.0, rel=1e-5)


def test_one_more_component_changes_no_other_but_their_common_scale() -> None:
    few, more = fitted(4)(MINE), fitted(5)(MINE)[:, :4]
    np.testing.assert_allclose(more / np.linalg.norm(more), few / np.linalg.norm(few), rtol=1e-3, atol=1e-6)


def test_a_saved_map_is_the_same_to_the_last_digit_and_has_the_digest_of_its_file(tmp_path: Path) -> None:
    made = fitted()
    made.save(tmp_path / "map.npy")
    loaded = PublicComponents.load(tmp_path / "map.npy", of="lengths")
    assert (loaded.digest, loaded.name, loaded.length) == (made.digest, made.name, 5)
    np.testing.assert_array_equal(loaded(MINE), made(MINE))
    assert hashlib.sha256((tmp_path / "map.npy").read_bytes()).hexdigest() == made.digest == fitted().digest
    assert len({made.digest, fitted(4).digest, fitted(power=0.5).digest}) == 3


def test_what_cannot_be_fitted_is_refused_with_the_remedy() -> None:
    for components in (0, 13):
        with pytest.raises(RecordsError, match="ask for 1 to 12"):
            fitted(components)
    with pytest.raises(RecordsError, match="ask for fewer components"):
        PublicComponents.fit(np.repeat(PUBLIC[:, :2], 3, axis=1), 4, of="copies")
    for wrong in (PUBLIC[0], np.full((20, 3), np.nan)):
        with pytest.raises(RecordsError, match="one row per public record"):
            PublicComponents.fit(wrong, 1, of="lengths")


def test_what_is_no_such_record_or_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="make them with lengths first"):
        fitted()(MINE[:, :11])
    with pytest.raises(RecordsError, match="could not be read"):
        PublicComponents.load(tmp_path / "absent.npy", of="lengths")
    (tmp_path / "text.npy").write_text("not an array")
    np.save(tmp_path / "row.npy", np.zeros(3, np.float32))
    for name in ("text.npy", "row.npy"):
        with pytest.raises(RecordsError, match="get it again"):
            PublicComponents.load(tmp_path / name, of="lengths")
