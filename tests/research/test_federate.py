"""Splits: disjoint, complete and of the promised sizes; and measures of heterogeneity with known values."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2_contingency

from ringfence.errors import TrainingError
from ringfence.protocol import FloatArray, Huber, Logistic, Loss, Softmax, Squared
from ringfence.research.datasets import load_mnist, project, public_projection
from ringfence.research.federate import (
    Rows,
    Silos,
    by_label,
    by_pairs_of_classes,
    by_sizes,
    by_sorted_target,
    dirichlet,
    heterogeneity,
    heterogeneity_at_optimum,
    iid,
    optimum,
    silo_gradients,
    train_test,
)
from tests.research.rehearsals import DATA, needs_data

SEEDS = st.integers(0, 2**32 - 1)
LABELS = st.lists(st.integers(0, 6), min_size=25, max_size=80).map(np.array)
light = settings(max_examples=60, deadline=None)


def choices(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_disjoint_and_without_empty_silos(split: Sequence[Rows], silos: int, records: int) -> None:
    assert len(split) == silos
    assert all(len(rows) > 0 and rows.dtype == np.int64 for rows in split)
    everything = np.concatenate(split)
    assert len(np.unique(everything)) == len(everything)
    assert set(everything.tolist()) <= set(range(records))


def assert_partition(split: Sequence[Rows], silos: int, records: int) -> None:
    assert_disjoint_and_without_empty_silos(split, silos, records)
    assert sum(map(len, split)) == records


def assert_equal_splits(one: Sequence[Rows], other: Sequence[Rows]) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def silos_of(features: FloatArray, targets: FloatArray, split: Sequence[Rows]) -> Silos:
    return [(features[rows], targets[rows]) for rows in split]


# Splits


@light
@given(spare=st.integers(0, 200), silos=st.integers(1, 30), seed=SEEDS)
def test_iid_deals_everything_out_evenly(spare: int, silos: int, seed: int) -> None:
    records = silos + spare
    split = iid(records, silos, choices(seed))
    assert_partition(split, silos, records)
    sizes = [len(rows) for rows in split]
    assert max(sizes) - min(sizes) <= 1
    assert_equal_splits(split, iid(records, silos, choices(seed)))


@light
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=10), spare=st.integers(0, 30), seed=SEEDS)
def test_given_sizes_are_kept_and_the_rest_is_left_out(sizes: list[int], spare: int, seed: int) -> None:
    records = sum(sizes) + spare
    split = by_sizes(records, sizes, choices(seed))
    assert_disjoint_and_without_empty_silos(split, len(sizes), records)
    assert [len(rows) for rows in split] == sizes


@light
@given(labels=LABELS, wanted=st.integers(1, 7), seed=SEEDS)
def test_by_label_no_label_is_in_two_silos(labels: NDArray[np.int64], wanted: int, seed: int) -> None:
    found = len(set(labels.tolist()))
    silos = min(wanted, found)
    split = by_label(labels, silos, choices(seed))
    assert_partition(split, silos, len(labels))
    kinds = [set(labels[rows].tolist()) for rows in split]
    assert sum(map(len, kinds)) == found
    assert {len(kind) for kind in kinds} <= {found // silos, -(-found // silos)}
    if silos == found:
        assert [kind.pop() for kind in kinds] == np.unique(labels).tolist()


@light
@given(
    targets=st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=100).map(np.array),
    silos=st.integers(1, 12),
    seed=SEEDS,
)
def test_by_sorted_target_silos_are_slices_of_the_sorted_targets(targets: FloatArray, silos: int, seed: int) -> None:
    size = math.ceil(len(targets) / silos)
    if silos > len(targets) or size * (silos - 1) >= len(targets):
        with pytest.raises(TrainingError, match="silos"):
            by_sorted_target(targets, silos, choices(seed))
        return
    split = by_sorted_target(targets, silos, choices(seed))
    assert_partition(split, silos, len(targets))
    assert [len(rows) for rows in split[:-1]] == [size] * (silos - 1)
    np.testing.assert_array_equal(targets[np.concatenate(split)], np.sort(targets))


@light
@given(counts=st.lists(st.integers(5, 30), min_size=10, max_size=10), seed=SEEDS)
def test_pairs_of_classes_use_every_image_once(counts: list[int], seed: int) -> None:
    labels = choices(seed).permutation(np.repeat(np.arange(10), counts))
    split = by_pairs_of_classes(labels, choices(seed))
    assert_partition(split, 25, len(labels))
    for place, rows in enumerate(split):
        even, odd = 2 * (place // 5), 2 * (place % 5) + 1
        held = np.bincount(labels[rows], minlength=10)
        assert set(np.flatnonzero(held)) == {even, odd}
        for digit in (even, odd):
            assert held[digit] in {counts[digit] // 5, -(-counts[digit] // 5)}


@light
@given(labels=LABELS, silos=st.integers(1, 5), alpha=st.floats(1e-300, 1e300), seed=SEEDS)
def test_dirichlet_uses_every_row_once(labels: NDArray[np.int64], silos: int, alpha: float, seed: int) -> None:
    try:
        split = dirichlet(labels, silos, alpha, choices(seed), attempts=100)
    except TrainingError as refused:
        assert "empty" in str(refused)  # noqa: PT017 (a small alpha may leave a silo empty every time)
        return
    assert_partition(split, silos, len(labels))
    assert_equal_splits(split, dirichlet(labels, silos, alpha, choices(seed), attempts=100))


def association(split: Sequence[Rows], labels: NDArray[np.int64]) -> float:
    """Return the p-value of the chi-square test that a row's silo does not depend on its label."""
    table = np.array([np.bincount(labels[rows], minlength=10) for rows in split])
    return float(chi2_contingency(table).pvalue)


def test_dirichlet_becomes_iid_as_alpha_grows() -> None:
    """Of 20 splits with huge alpha, none may look dependent at 5e-8 each: false alarm of 1e-6 over fresh seeds.

    With alpha = 10⁹ shares differ from 1/5 by about 1e-5, far below what 5,000 rows can show.
    """
    labels = np.repeat(np.arange(10), 500)
    assert min(association(dirichlet(labels, 5, 1e9, choices(seed)), labels) for seed in range(20)) > 5e-8
    assert association(dirichlet(labels, 5, 0.1, choices(0)), labels) < 1e-100


@light
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    fraction=st.floats(0, 1, exclude_min=True, exclude_max=True),
    seed=SEEDS,
)
def test_train_and_test_rows_divide_every_silo(sizes: list[int], fraction: float, seed: int) -> None:
    split = by_sizes(sum(sizes), sizes, choices(seed))
    training, held_out = train_test(split, fraction, choices(seed))
    for rows, train, test in zip(split, training, held_out, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.sort(rows))
        assert len(train) >= 1
        assert len(test) >= min(1, len(rows) - 1)
        assert abs(len(test) - fraction * len(rows)) <= 1


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: iid(3, 4, choices(0)), "Ask for 1 to 3"),
        (lambda: iid(3, 0, choices(0)), "Ask for 1 to 3"),
        (lambda: by_sizes(5, [3, 3], choices(0)), "do not fit 5 records"),
        (lambda: by_sizes(5, [3, 0], choices(0)), "at least 1"),
        (lambda: by_label(np.array([0, 0, 1]), 3, choices(0)), "there are 2 labels"),
        (lambda: by_sorted_target(np.arange(10.0), 7, choices(0)), "leave nothing for the last of 7"),
        (lambda: by_pairs_of_classes(np.arange(11), choices(0)), "exactly one of the two lists"),
        (lambda: by_pairs_of_classes(np.arange(10), choices(0)), "too few records to be shared by 5"),
        (lambda: dirichlet(np.arange(10), 3, 0.0, choices(0)), "must be a positive number"),
        (lambda: dirichlet(np.zeros(9), 9, 0.01, choices(0), attempts=5), "larger alpha"),
        (lambda: train_test([np.arange(3)], 1.0, choices(0)), "between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(ask: object, words: str) -> None:
    assert callable(ask)
    with pytest.raises(TrainingError, match=words) as caught:
        ask()
    assert str(caught.value).endswith(".")


# Heterogeneity

FEATURES = np.concatenate([np.random.default_rng(1).normal(size=(400, 3)), np.ones((400, 1))], axis=1)
SIGNS = np.where(FEATURES[:, 0] + np.random.default_rng(2).normal(size=400) > 0, 1.0, -1.0)


def quadratic(center: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Return records whose mean squared loss is ½‖w − center‖², so that the gradient is w − center."""
    scale = math.sqrt(len(center))
    return scale * np.eye(len(center)), scale * np.array(center)


def test_quadratics_have_the_heterogeneity_of_their_centers() -> None:
    silos = [quadratic(center) for center in ([0.0, 0.0], [2.0, 0.0], [1.0, 3.0])]
    # The mean center is (1, 1); squared distances from it are 2, 2 and 4.
    np.testing.assert_allclose(optimum(Squared(), silos), [1.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(heterogeneity_at_optimum(Squared(), silos), 8 / 3)
    for weights in ([0.0, 0.0], [5.0, -7.0]):  # equal curvatures: the same at every w
        np.testing.assert_allclose(heterogeneity(Squared(), silos, np.array(weights)), 8 / 3)


def test_silos_count_alike_whatever_their_sizes() -> None:
    small, large = (np.ones((1, 1)), np.array([0.0])), (np.ones((99, 1)), np.full(99, 2.0))
    np.testing.assert_allclose(optimum(Squared(), [small, large]), [1.0])
    np.testing.assert_allclose(heterogeneity_at_optimum(Squared(), [small, large]), 1.0)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(threshold=0.3), Softmax(classes=2)])
def test_identical_silos_have_no_heterogeneity(loss: Loss) -> None:
    targets = (SIGNS + 1) / 2 if loss.name == "softmax" else SIGNS
    silos = [(FEATURES, targets)] * 3
    weights = np.linspace(-1, 1, 4 * loss.outputs)
    assert heterogeneity(loss, silos, weights) < 1e-25
    assert heterogeneity_at_optimum(loss, silos) < 1e-16  # the square of the tolerance
    assert np.linalg.norm(silo_gradients(loss, silos, optimum(loss, silos)).mean(axis=0)) < 1e-8


def test_classes_in_separate_silos_differ_more_than_shuffled_ones() -> None:
    apart = silos_of(FEATURES, SIGNS, by_label(SIGNS, 2, choices(0)))
    mixed = silos_of(FEATURES, SIGNS, iid(len(SIGNS), 2, choices(0)))
    assert heterogeneity_at_optimum(Logistic(), apart) > 20 * heterogeneity_at_optimum(Logistic(), mixed)
    assert heterogeneity(Logistic(), apart, np.zeros(4)) > 20 * heterogeneity(Logistic(), mixed, np.zeros(4))


def test_an_optimum_out_of_reach_is_refused() -> None:
    huge = [(np.array([[1e12], [1.0]]), np.array([1e12, -3e11]))]
    with pytest.raises(TrainingError, match="was not reached"):
        optimum(Squared(), huge)


@needs_data
def test_the_papers_split_of_mnist_has_the_papers_heterogeneity() -> None:
    """The paper reports υ*² of about 0.17 for pairs of digits in 50 principal components."""
    digits = load_mnist(DATA)
    rows = np.arange(25_000)
    features = project(digits.training.images[rows], public_projection(digits.test.images, 50))
    labels = digits.training.labels[rows]
    parity = np.where(labels % 2 == 1, 1.0, -1.0)
    paired = heterogeneity_at_optimum(Logistic(), silos_of(features, parity, by_pairs_of_classes(labels, choices(0))))
    assert 0.14 < paired < 0.20
    shuffled = heterogeneity_at_optimum(Logistic(), silos_of(features, parity, iid(len(rows), 25, choices(0))))
    assert shuffled < 0.01
