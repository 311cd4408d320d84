"""The scattering transform of images: a function of one image alone, of known averages, waves and angles."""

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.protocol import FloatArray
from ringfence.sources.features import Scattering

RANDOM = np.random.default_rng(1)
SMALL = Scattering(side=16, scales=2, angles=4)


def channels(images: FloatArray) -> FloatArray:
    """Each image's channels, averaged over its pixels: one, then scales and angles, then pairs of these."""
    found: FloatArray = SMALL(images).reshape(len(images), 1 + 8 + 16, -1).mean(axis=2).astype(np.float64)
    return found


def test_digits_have_as_many_numbers_as_channels_and_pixels_of_the_coarsest_scale() -> None:
    assert Scattering().length == 81 * 7 * 7
    assert Scattering()(np.zeros((2, 28, 28))).shape == (2, 3969)
    assert Scattering()(np.zeros((0, 28, 28))).shape == (0, 3969)
    assert not Scattering(side=16, angles=4, groups=25)(np.zeros((1, 16, 16))).any(), "an empty image has zeros"


def test_an_image_s_numbers_do_not_depend_on_what_is_beside_it() -> None:
    images = RANDOM.uniform(size=(300, 16, 16))
    np.testing.assert_allclose(SMALL(images[270:271])[0], SMALL(images)[270], rtol=1e-5, atol=1e-6)


def test_a_flat_image_is_its_level_and_has_no_waves() -> None:
    """Wavelets have mean 0, and single precision leaves about 1e-7 of the level."""
    found = channels(np.full((1, 16, 16), 3.0))[0]
    assert found[0] == pytest.approx(3.0, rel=1e-3)
    assert np.all(np.abs(found[1:]) < 1e-4)


def test_a_wave_is_strongest_in_the_channel_of_its_own_direction_and_scale() -> None:
    down, right = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
    for angle, along in ((0, down), (2, right)):  # the first angle points down, the third, of four, to the right
        first = channels(np.cos(0.75 * np.pi * along)[None])[0][1:9]
        assert np.argmax(first) == angle  # the finer scale's come first


def test_groups_of_channels_have_mean_0_and_variance_1_in_every_image() -> None:
    images = RANDOM.uniform(size=(3, 16, 16))
    plain, evened = SMALL(images), Scattering(side=16, scales=2, angles=4, groups=5)(images)
    grouped = evened.reshape(3, 5, -1)
    np.testing.assert_allclose(grouped.mean(axis=2), 0.0, atol=1e-5)
    np.testing.assert_allclose(grouped.std(axis=2), 1.0, rtol=1e-2)
    for image, group in np.ndindex(3, 5):  # a shift and a scale of each group's own numbers
        assert np.corrcoef(plain.reshape(3, 5, -1)[image, group], grouped[image, group])[0, 1] == pytest.approx(1.0)


def test_the_digest_tells_extractors_apart() -> None:
    assert SMALL.digest == Scattering(side=16, scales=2, angles=4).digest
    others = [Scattering(side=16, scales=1, angles=4), Scattering(), Scattering(groups=27), Scattering(groups=81)]
    assert len({own.digest for own in (SMALL, *others)}) == 5
    assert Scattering().name == "scattering-28-2-8"


def test_what_is_no_image_of_that_size_is_refused_with_the_remedy() -> None:
    for images in (np.zeros((16, 16)), np.zeros((2, 8, 8)), np.zeros((2, 16, 16, 3))):
        with pytest.raises(RecordsError, match="reshape or resize"):
            SMALL(images)
    with pytest.raises(RecordsError, match="not a finite number"):
        SMALL(np.full((1, 16, 16), np.nan))
    with pytest.raises(ValueError, match="do not fit"):
        Scattering(side=10, scales=2)
    with pytest.raises(ValueError, match="81 channels cannot be divided into 10 groups"):
        Scattering(groups=10)
