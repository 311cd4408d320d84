"""Sums over records are exact: the same bytes in any order, and no record's term longer than the clip."""

import math
import os
import subprocess
import sys
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from ringfence.protocol import Logistic, Ordinal, Softmax, Squared, Survival
from ringfence.protocol.arrays import row_norms
from ringfence.silo.queries.gradient import clipped_mean, clipped_total
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import DOUBLE, SINGLE, Precision
from ringfence.silo.records.records import Records
from ringfence.silo.records.storage import Keeping
from tests.generated import examples

FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 5e-324, -2.3e-308, 2.0**-100, 2.0**-131, 1.0, -1.0, 1 + 2.0**-52, 1 - 2.0**-53, 3.0, 1e8, 1e300, -1.7e308]
)
ROW = st.lists(FLOATS, min_size=3, max_size=3)


def answer(loss: Any, clip: float, weights: Any, features: Any, targets: Any) -> Any:
    records = records_of(features, targets)
    total = clipped_total(loss, clip, weights, records, np.ones(len(targets)), records)
    return exact_sums.quotient(total, len(targets), clip)


def records_of(features: Any, targets: Any) -> Records:
    return Records(None, np.array(features), np.array(targets))  # type: ignore[arg-type]


def made(n: int, d: int = 7, outputs: int = 1, seed: int = 0) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    features = random.normal(size=(n, d)) * 10.0 ** random.uniform(-8, 3, (n, 1))
    targets = random.integers(outputs, size=n).astype(float) if outputs > 1 else random.choice([-1.0, 1.0], n)
    return features, targets, random.normal(size=(d, outputs))


@pytest.mark.parametrize(("loss", "outputs"), [(Logistic(), 1), (Softmax(classes=3), 3)], ids=["logistic", "softmax"])
def test_the_order_of_records_changes_no_byte(loss: Any, outputs: int) -> None:
    features, targets, weights = made(20_011, outputs=outputs)
    expected = answer(loss, 0.7, weights, features, targets).tobytes()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(targets))
        assert answer(loss, 0.7, weights, features[order], targets[order]).tobytes() == expected
    assert answer(loss, 0.7, weights, np.asfortranarray(features), targets).tobytes() == expected


def test_weights_of_any_size_are_cut_alike_so_that_a_hostile_request_makes_no_score_inexact() -> None:
    features, targets, weights = made(100)
    for size in (2.0**-300, 2.0**600, 2.0**1000):
        assert (exact_sums.limbs(weights * size) == exact_sums.limbs(weights) * size).all()
    assert np.isfinite(answer(Logistic(), 0.7, np.full((7, 1), 1.7e308), features, targets)).all()


@given(st.lists(st.tuples(*[st.floats(-2.0, 2.0)] * 2), min_size=1, max_size=70), st.integers(1, 100))
@examples(50)
def test_a_mean_is_that_of_rational_numbers_rounded_once(values: list[tuple[float, float]], divisor: int) -> None:
    columns = zip(*values, strict=True)
    exact = [Fraction(sum(math.trunc(value * 2.0**31) for value in column), divisor * 2**31) for column in columns]
    found = exact_sums.quotient(exact_sums.column_sums(np.array(values), np.ones(len(values))), divisor)
    assert found.tolist() == [float(value) for value in exact]


@pytest.mark.parametrize("width", [1, 2, 5, 7, 64, 101, 4095, 4096, 4097, 8192, 8193, 16385, 30001])
def test_a_row_has_one_norm_alone_beside_others_and_however_it_lies_in_memory(width: int) -> None:
    """NumPy adds up a long row otherwise if it is alone, and the rows of an array that lies by columns."""
    random = np.random.default_rng(width)
    row = random.normal(size=width) * np.exp(3 * random.normal(size=width))
    alone = row_norms(row[None])[0]
    for count in (2, 3, 17):
        for offset in range(4):
            room = np.empty(count * width + offset)[offset:].reshape(count, width)
            room[...] = random.normal(size=room.shape)
            room[count // 2] = row
            assert row_norms(room)[count // 2] == alone
            assert row_norms(np.asfortranarray(room))[count // 2] == alone
    assert alone == pytest.approx(math.sqrt(math.fsum(row * row)), rel=(width + 3) * 2.0**-53)


def test_no_partial_sum_loses_a_bit_at_the_largest_numbers_there_can_be() -> None:
    """All terms are as large as they may be, and one differs in its last bit; many more than 64 bits could add up."""
    n, most = 70_000, 1 - 2.0**-32
    left, right = np.full((n, 1), most), np.full((n, 1), 2 - 2.0**-31)
    right[0] -= 2.0**-31
    terms = ((left[part], right[part], 0) for part in exact_sums.parts(n, 1))
    assert exact_sums.outer_sum(terms)[0, 0] == (2**32 - 1) * (n * (2**32 - 1) - 1)


PROGRAM = """
import sys
import numpy as np
from tests.silo.records.test_exact_sums import Logistic, answer, made
features, targets, weights = made(30_000, d=60)
sys.stdout.buffer.write(answer(Logistic(), 0.7, weights, features, targets).tobytes())
"""


def test_one_thread_and_many_give_the_same_bytes() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "7")
    }
    assert len(answers) == 1
    assert len(answers.pop()) == 60 * 8


@pytest.mark.parametrize(
    ("stated", "threads"), [("1", 1), ("3", 3), ("100", 8), ("", None), ("0", None), ("2,1", None)]
)
def test_sums_go_on_as_many_threads_as_the_environment_says_or_there_are_processors(
    stated: str, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    assert exact_sums.sum_threads() == (threads or min(8, os.cpu_count() or 1))


def test_no_product_of_a_sum_is_divided_among_threads_and_later_ones_are_as_before() -> None:
    def threads() -> int:
        return max(int(library["num_threads"]) for library in threadpool_info() if library["user_api"] == "blas")

    def task() -> Any:
        return np.array([threads()], dtype=object)

    with threadpool_limits(2, "blas"):
        assert [exact_sums.sum_in_threads([task] * tasks).tolist() for tasks in (1, 3)] == [[1], [3]]
        assert threads() == 2


@given(
    ROW,
    st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3),
    FLOATS,
    st.floats(1e-40, 1e40) | st.sampled_from([1.0, 3.0, 1 + 2.0**-52, 2.0**-400]),
    st.booleans(),
)
@examples(400)
def test_a_record_s_term_is_never_longer_than_the_clip_in_exact_arithmetic(
    features: list[float], weights: list[float], target: float, clip: float, scaled: bool
) -> None:
    """Also of numbers that overflow or vanish, and of gradients that are as long as the clip to the last bit.

    In single precision too; sums are of the rows as they are kept.
    """
    if scaled and 0 < math.hypot(*features) < 1e100 and abs(target) < 1e100:
        clip = max(abs(target) * math.hypot(*features), 2.0**-400)  # any less is lost on the noise's grid
    with np.errstate(all="ignore"):
        single = Records(None, np.array([features]), np.array([target]), keeping=Keeping(SINGLE))  # type: ignore[arg-type]
        as_doubles = records_of(single.features.astype(np.float64), [target])
        assert (as_doubles.features == single.features).all(), "it is rounded no further"
        for loss, outputs in ((Squared(), 1), (Softmax(classes=3), 3)):
            matrix = np.outer(weights, np.arange(1, outputs + 1))
            totals = [
                clipped_total(loss, clip, matrix, kept, np.ones(1), kept)
                for kept in (records_of([features], [target]), single, as_doubles)
            ]
            assert (totals[1] == totals[2]).all()
            for total in totals:
                assert sum(int(number) ** 2 for number in total.ravel()) <= 2 ** (2 * exact_sums.UNIT)


@pytest.mark.parametrize(
    "loss", [Survival(cuts=tuple(np.arange(1, 40) / 20.0)), Ordinal(classes=7)], ids=["time", "class"]
)
def test_terms_with_shared_slopes_respect_the_clip_in_integers(loss: Any) -> None:
    """Whatever the constant's size beside the other features, residuals that cancel among them."""
    random, clip = np.random.default_rng(1), 0.3
    for constant in (0.0, 1e-9, 1e-3, 1.0, 1e3):
        features = np.column_stack([random.normal(size=(30, 5)) * 10.0 ** random.integers(-6, 4, (30, 1)), np.ones(30)])
        features[:, -1] *= constant
        beside = [random.uniform(0, 2, 30), random.integers(2, size=30), np.zeros(30), np.ones(30)]
        targets = np.column_stack(beside) if loss.target_kind == "time" else random.integers(7, size=30).astype(float)
        weights = loss.matrix(random.normal(size=loss.dimension(6)) * 3, 6)
        for row in range(30):
            records = Records(None, features[[row]], targets[[row]])  # type: ignore[arg-type]
            counts = clipped_total(loss, clip, weights, records, np.ones(1), records)
            squares = sum(int(count) ** 2 for count in counts.reshape(-1))
            assert squares * Fraction(loss.spare) ** 2 <= 2 ** (2 * exact_sums.UNIT)


def test_a_cut_gradient_is_as_long_as_the_clip_but_for_what_rounding_takes() -> None:
    for seed in range(20):
        features, _, weights = made(1, seed=seed)
        cut = answer(Squared(), 0.3, 0 * weights, features, np.array([1e12]))
        assert 0.3 * (1 - 2.0**-29) <= np.linalg.norm(cut) <= 0.3


def test_what_is_lost_is_less_than_a_thousandth_of_the_least_noise_that_a_plan_may_have() -> None:
    """Also where all errors point in one direction: all records are alike."""
    for seed in range(200):
        (row, target, weights), clip = made(1, d=4, seed=seed), 0.3
        features, targets = np.repeat(row, 50, axis=0), np.repeat(target, 50)
        plain = clipped_mean(
            Logistic(), clip, weights=0 * weights, features=features, norms=row_norms(features),
            targets=targets, shares=np.full(50, 1 / 50),
        )  # fmt: skip
        lost = np.abs(answer(Logistic(), clip, 0 * weights, features, targets) - plain)
        assert lost.max() <= 0.75 * 2.0**-30 * clip < clip * 2.0**-20 / 1000


@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
@given(rows=st.lists(ROW, min_size=1, max_size=5))
@examples(200)
def test_rounded_rows_lie_on_a_grid_of_their_own_and_are_rounded_no_further(
    precision: Precision, rows: list[list[float]]
) -> None:
    rounded = exact_sums.rounded_rows(np.array(rows), precision.row_bits)
    assert (rounded.astype(precision.dtype) == rounded).all()
    bits = precision.row_bits + 1
    units = np.ldexp(rounded, bits - exact_sums.exponents(row_norms(rounded))[:, None])
    assert (units == np.trunc(units)).all()
    assert np.abs(units).max() <= 2.0**bits
    for before, after in zip(np.clip(rows, -(2.0**100), 2.0**100), rounded, strict=True):
        largest = max(float(np.linalg.norm(before)), 2.0**-101)
        assert np.abs(after - before).max() <= 2.0**-precision.row_bits * largest
    assert (exact_sums.rounded_rows(rounded, precision.row_bits) == rounded).all()


def test_a_row_that_is_cut_takes_no_step_more_than_one_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server chooses axes of up to 2¹⁰⁰: a step more would tell it whether any record is long along them."""
    taken: list[str] = []

    def counting(name: str, own: Any) -> Any:
        def counted(argument: Any) -> Any:
            taken.append(name)
            return own(argument)

        return counted

    for name in ("row_norms", "exponents"):
        monkeypatch.setattr(exact_sums, name, counting(name, getattr(exact_sums, name)))
    exact_sums.rounded_rows(np.ones((3, 2)))
    steps, taken[:] = list(taken), []
    exact_sums.rounded_rows(np.array([[1.0, 1.0], [2.0**101, 1.0], [1.0, 1.0]]))
    assert taken == steps != []


@given(st.lists(ROW, min_size=1, max_size=5), st.floats(1e-5, 1e5))
@examples(200)
def test_bounded_features_have_norm_one_at_most_in_exact_arithmetic(rows: list[list[float]], largest: float) -> None:
    with np.errstate(all="ignore"):
        bounded = records_of(rows, np.zeros(len(rows))).bounded_features(largest)
    units = np.ldexp(bounded, 31)
    assert (units == np.trunc(units)).all()
    assert all(sum(int(unit) ** 2 for unit in row) <= 2**62 for row in units)


@pytest.mark.parametrize("width", [1, 7, 8192, 10_000, 2**19])
@pytest.mark.parametrize("count", [0, 1, 31, 33, 40_000])
def test_rows_of_any_width_are_divided_into_parts_that_cover_them_once(count: int, width: int) -> None:
    found = list(exact_sums.parts(count, width))
    assert [row for part in found for row in range(count)[part]] == list(range(count))
    sizes = {part.stop - part.start for part in found}
    assert all(size * width <= 2**18 or size == 32 for size in sizes)
    assert all(size % 32 == 0 and size <= 2**14 for size in sizes)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 300])
@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_product_of_whole_numbers_is_exact_whatever_its_shape(width: int, columns: int) -> None:
    random = np.random.default_rng(width)
    left = random.integers(-(2**31), 2**31, (3, 40, width))
    right = random.integers(-(2**22) // width, 2**22 // width, (3, width, columns))
    expected = left.astype(object) @ right.astype(object)
    assert np.max(np.abs(expected)) > 2**40
    np.testing.assert_array_equal(exact_sums.product(left.astype(float), right.astype(float)).astype(object), expected)
    one = exact_sums.product(left[0].astype(float), right[0].astype(float))
    np.testing.assert_array_equal(one.astype(object), expected[0])


def test_each_of_two_limbs_has_twenty_bits() -> None:
    for seed in range(5):
        weights = np.random.default_rng(seed).normal(size=(9, 1)) * 10.0 ** (3 * seed - 6)
        for limb in exact_sums.limbs(weights).T:
            numbers = [Fraction(float(each)) for each in limb if each]
            unit = Fraction(math.gcd(*(each.numerator for each in numbers)), max(each.denominator for each in numbers))
            assert math.sqrt(sum((each / unit) ** 2 for each in numbers)) <= 2**20


def test_a_bound_is_respected_by_a_margin_for_every_term_and_sixteen_more() -> None:
    assert [exact_sums.slack(terms) for terms in (0, 1, 100)] == [16 * 2.0**-52, 17 * 2.0**-52, 116 * 2.0**-52]


def test_tasks_are_summed_on_several_threads_and_products_meanwhile_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(number: int) -> Any:
        threads = [library["num_threads"] for library in exact_sums._blas().info()]
        return np.array([number, *threads], dtype=object)

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert exact_sums.sum_threads() == 2
    with exact_sums._blas().limit(limits=2):
        total, *threads = exact_sums.sum_in_threads([partial(task, number) for number in range(3)])
    assert total == 0 + 1 + 2
    assert threads == [3] * len(threads), "one thread in each of three tasks"
    assert len(threads) > 0
