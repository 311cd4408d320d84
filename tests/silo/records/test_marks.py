"""By what a data set is recognised again."""

import copy
import itertools
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

from ringfence.errors import RecordsError
from ringfence.silo.records.column_sets import ColumnSets
from ringfence.silo.records.marks import FALSE_ALARM, SKETCH, Fingerprint, RowMarks, _too_many_for_chance, row_words
from ringfence.sources.cells import ArrayCells, Cells, ListCells, TextCells

KEY = b"k" * 32
Table = dict[str, list[str]]


def table(rows: int, *, seed: int = 1, first: int = 0) -> Table:
    """Rows of a number of their own and two values."""
    random = np.random.default_rng(seed)
    return {
        "id": [str(first + row) for row in range(rows)],
        "x": [f"{value:.6f}" for value in random.uniform(size=rows)],
        "y": list(random.choice(["no", "yes"], rows)),
    }


def part(content: Table, rows: list[int]) -> Table:
    return {name: [cells[row] for row in rows] for name, cells in content.items()}


def joined(*tables: Table) -> Table:
    return {name: [cell for one in tables for cell in one[name]] for name in tables[0]}


def is_mostly(new: Table, known: Table) -> bool:
    return print_of(new).is_mostly(print_of(known))


def words_of(content: dict[str, Cells]) -> NDArray[np.uint64]:
    return row_words(len(next(iter(content.values()))), content)


def marks_of(content: Table) -> RowMarks:
    return RowMarks(words_of({name: TextCells(cells) for name, cells in content.items()}))


def print_of(content: Table) -> Fingerprint:
    return marks_of(content).fingerprint(KEY)


def print_by_columns(content: Table, *, ignored: str = "") -> Fingerprint:
    """Return the fingerprint of a table read from a file in two chunks, of which a schema reads all but one column."""
    sets = ColumnSets([name for name in content if name != ignored])
    half = len(next(iter(content.values()))) // 2
    chunks = ({name: cells[rows] for name, cells in content.items()} for rows in (slice(half), slice(half, None)))
    words = [row_words(len(chunk[next(iter(chunk))]), cells_of(chunk), sets) for chunk in chunks]
    return RowMarks(np.concatenate(words), samples=sets.samples()).fingerprint(KEY)


def cells_of(content: Table) -> dict[str, Cells]:
    return {name: TextCells(cells) for name, cells in content.items()}


def test_marks_tell_order_and_rows_apart_and_do_not_see_the_order_of_columns() -> None:
    known = table(50)
    same = print_of({name: known[name] for name in reversed(known)})
    assert (same.ordered, same.rows) == (print_of(known).ordered, print_of(known).rows)
    turned = print_of(part(known, list(range(49, -1, -1))))
    assert turned.ordered != same.ordered
    assert turned.rows == same.rows
    other = print_of({**known, "x": [*known["x"][:-1], "0.5"]})
    assert other.rows != same.rows


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"id": t["id"], "x": [f"{x},{y}" for x, y in zip(t["x"], t["y"], strict=True)]},
        lambda t: {"id": t["id"], "x": t["y"], "y": t["x"]},
        lambda t: {"id": t["id"], "x": t["x"], "z": t["y"]},
    ],
)
def test_cells_that_run_together_or_swap_columns_are_other_rows(change: Callable[[Table], Table]) -> None:
    assert not is_mostly(change(table(300)), table(300))


def repeat(content: Table, times: int) -> Table:
    return {name: cells * times for name, cells in content.items()}


@pytest.mark.parametrize("rows", [30, 300, 3000])
@pytest.mark.parametrize("times", [2, 3])
def test_a_table_in_which_every_row_stands_several_times_is_the_same_data(rows: int, times: int) -> None:
    known, copies = table(rows), repeat(table(rows), times)
    edited = joined(part(copies, list(range(rows // 20, rows * times))), table(rows // 20, seed=2, first=rows))
    few = {"x": ["yes", "no", "no"] * (rows // 3)}
    for one, other in ((copies, known), (edited, known), (repeat(few, times), few)):
        assert is_mostly(one, other)
        assert is_mostly(other, one)


def test_a_bootstrap_sample_of_the_rows_is_the_same_data() -> None:
    drawn = np.random.default_rng(3).integers(0, 1000, 1000).tolist()
    assert is_mostly(part(table(1000), drawn), table(1000))


def wide(rows: int, columns: int, *, seed: int = 1) -> Table:
    values = np.random.default_rng(seed).integers(0, 1000, (columns, rows))
    return {f"c{place}": list(map(str, own)) for place, own in enumerate(values)}


def without(content: Table, *names: str) -> Table:
    return {name: cells for name, cells in content.items() if name not in names}


@pytest.mark.parametrize("columns", [4, 12, 40])
@pytest.mark.parametrize("rows", [60, 3000, 20_000])
def test_one_column_more_or_fewer_or_other_cells_in_it_leave_most_rows_recognisable(rows: int, columns: int) -> None:
    """In either direction, for each column, and where a tenth of the rows was left out or stands twice."""
    known = wide(rows, columns)
    whole = print_by_columns(known)
    for name in list(known)[:: columns // 4]:
        for change in (
            without(known, name),
            {**known, name: wide(rows, 1, seed=2)["c0"]},
            part(without(known, name), list(range(rows // 10, rows))),
            joined(without(known, name), part(without(known, name), list(range(rows // 10)))),
        ):
            changed = print_by_columns(change)
            assert not changed.is_mostly(whole)
            assert changed.resembles(whole)
            assert whole.resembles(changed)


def test_two_changed_columns_are_seen_through_where_they_share_a_class_as_two_pairs_in_three_do() -> None:
    """Which pairs do is decided by the columns' names alone: it is as likely as 1 − 1/2 · 2/3 · 6/7 = 5/7."""
    known, places = print_by_columns(wide(300, 12)), ColumnSets(list(wide(1, 12))).places
    seen, alike = [], []
    for one, other in itertools.combinations(places, 2):
        seen.append(print_by_columns(without(wide(300, 12), one, other)).resembles(known))
        alike.append(len(set(places[one]) & set(places[other])) > 1)
    assert seen == alike
    assert sum(seen) >= 2 * len(seen) / 3


def test_columns_that_no_model_reads_do_not_matter() -> None:
    known = {**table(300), "serial": [str(row) for row in range(300)]}
    again = {**table(300), "serial": [str(7 * row + 5000) for row in range(300)]}
    grown = print_by_columns(joined(again, {**table(200, seed=2, first=300), "serial": ["0"] * 200}), ignored="serial")
    assert grown.is_mostly(print_by_columns(known, ignored="serial"))
    assert not grown.is_mostly(print_by_columns(known))


@pytest.mark.parametrize("rows", [40, 300, 30_000])
@pytest.mark.parametrize("values", [2, 30, 10**9])
def test_other_records_of_the_same_population_resemble_none_in_any_columns(rows: int, values: int) -> None:
    """Also if every row stands twice; a false alarm has a probability of at most 10⁻⁶ in each case."""

    def drawn(seed: int) -> Table:
        own = np.random.default_rng([rows, values, seed]).integers(0, values, (4, rows))
        return {name: list(map(str, cells)) for name, cells in zip("abcd", own, strict=True)}

    one, other = drawn(1), drawn(2)
    for changed in (other, without(other, "a"), repeat(other, 2)):
        found = print_by_columns(changed)
        assert not found.is_mostly(print_by_columns(one))
        assert not found.resembles(print_by_columns(one))


def test_samples_of_columns_are_found_again_in_data_thirty_times_as_large() -> None:
    known, more = wide(9000, 4), wide(261_000, 4, seed=2)
    assert print_by_columns(without(joined(more, known), "c1")).resembles(print_by_columns(known))


def test_of_the_samples_of_columns_a_registry_gets_as_much_as_it_needs_and_nothing_without_the_key() -> None:
    sets = ColumnSets(["id", "x", "y"])
    row_words(3000, cells_of(table(3000)), sets)
    marks = RowMarks(words_of(cells_of(table(3000))), samples=sets.samples())
    one, other = marks.fingerprint(KEY), marks.fingerprint(b"o" * 32)
    for name, own in one.parts.items():
        hashes = sets.samples()[name].hashes
        assert len(own.least) == SKETCH
        assert not np.isin(own.least, hashes).any()
        assert not np.isin(own.least, other.parts[name].least).any()


def test_without_the_key_a_fingerprint_says_nothing_about_rows() -> None:
    marks = marks_of(table(300))
    one, other = marks.fingerprint(KEY), marks.fingerprint(b"o" * 32)
    assert one.ordered != other.ordered
    assert not set(one.once.tolist()) & set(other.once.tolist())


@pytest.mark.parametrize("rows", [40, 256, 3000])
@pytest.mark.parametrize(
    "change",
    [
        lambda t, n: joined(t, table(5 * n, seed=2, first=n)),
        lambda t, n: part(t, list(range(n // 5, n))),
        lambda t, n: joined(part(t, list(range(n // 10, n))), table(n // 10, seed=2, first=n)),
    ],
    ids=["six times as large", "a fifth left out", "a tenth replaced"],
)
def test_data_that_kept_most_of_its_rows_is_recognised(change: Callable[[Table, int], Table], rows: int) -> None:
    known = table(rows)
    assert is_mostly(change(known, rows), known)


def test_a_tenth_of_a_large_data_set_is_recognised_as_part_of_it() -> None:
    known = table(20_000)
    assert is_mostly(part(known, list(range(0, 20_000, 10))), known)


@pytest.mark.parametrize("rows", [40, 300, 3000, 30_000])
@pytest.mark.parametrize("values", [2, 30, 300, 3000, 10**9])
def test_other_records_of_the_same_population_are_not(rows: int, values: int) -> None:
    """However often rows are equal by chance: a false alarm has a probability of at most 10⁻⁶ in each case."""
    one, other = (np.random.default_rng([rows, values, turn]).integers(0, values, rows) for turn in range(2))
    assert not is_mostly({"x": list(map(str, one))}, {"x": list(map(str, other))})


@pytest.mark.parametrize(("sample", "records"), [(20, 40), (40, 40), (256, 1000), (256, 10**9), (10**5, 10**6)])
def test_what_counts_as_the_same_is_the_least_that_chance_does_not_explain(sample: int, records: int) -> None:
    least = _too_many_for_chance(sample, records)

    def chance(number: float) -> float:
        return float(math.e * np.sqrt(records) * binom.sf(number - 1, sample, 1 / math.e))

    assert chance(least) <= FALSE_ALARM < chance(least - 1)


def test_data_with_three_quarters_of_its_rows_is_missed_less_than_once_in_ten_thousand_million_times() -> None:
    for records in (1000, 10**6):
        kept = hypergeom(records, 3 * records // 4, SKETCH)
        assert kept.cdf(_too_many_for_chance(SKETCH, records) - 1) < 1e-10


def test_few_rows_are_recognised_as_a_whole_or_not_at_all() -> None:
    known = table(10)
    assert is_mostly(part(known, list(range(9, -1, -1))), known)
    assert not is_mostly(part(known, list(range(9))), known)


def test_marks_and_fingerprints_stay_in_the_process_and_show_nothing() -> None:
    marks = marks_of(table(3))
    for kept in (marks, marks.fingerprint(KEY)):
        with pytest.raises(RecordsError, match="cannot be pickled"):
            pickle.dumps(kept)
        with pytest.raises(RecordsError, match="cannot be pickled"):
            copy.copy(kept)
    assert repr(marks) == "<marks of 3 rows, hidden>"
    assert marks.fingerprint(KEY).ordered not in repr(marks.fingerprint(KEY))


def test_a_cell_has_the_same_word_as_a_text_and_as_a_number() -> None:
    texts = TextCells(["1", "2.50", "-0", "", "1e3", "x"])
    numbers = ArrayCells(np.array([1.0, 2.5, 0.0, np.nan, 1000.0, 7.0]))
    assert texts.words()[:5].tolist() == numbers.words()[:5].tolist()
    assert len(set(texts.words().tolist())) == 6


def test_swapping_signs_between_columns_gives_another_mark() -> None:
    rows = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    words = words_of({"a": ArrayCells(rows[:, 0]), "b": ArrayCells(rows[:, 1])})
    assert len({tuple(word) for word in words.tolist()}) == 4


def test_a_vector_is_marked_alike_whatever_other_records_have() -> None:
    vectors = [[0.5, 1.0], [-0.0, 2.0], [3.0, 4.0]]
    alone = ArrayCells(np.array(vectors)).words()
    beside = ListCells([*vectors, None, [1.0], ["a", "b"]])
    assert beside.words()[:3].tolist() == alone.tolist()
    assert len(set(beside.words().tolist())) == 6
    assert np.isnan(beside.vectors(2)[3:]).all()
