"""From cells to numbers by the public schema alone; errors name row and column and show no value."""

import math
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import RecordsError
from ringfence.protocol import FloatArray, Schema, parse_schema
from ringfence.protocol.schema.encoding import encode_features, encode_target, read_cells
from ringfence.sources import read_table

SECRET = "ZX4711Quilliam"
"""A cell whose content must never show."""

AGE: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 100}
TOWN: dict[str, Any] = {"type": "categorical", "categories": ["b", "a", "c"]}
LABEL: dict[str, Any] = {"type": "categorical", "categories": ["no", "yes"]}


def schema(columns: dict[str, Any], target: str = "label", **settings: Any) -> Schema:
    return parse_schema({"columns": columns, **settings}, target=target)


def column(definition: dict[str, Any], cells: list[str], **settings: Any) -> FloatArray:
    """Encode one feature column without intercept."""
    plain = schema({"x": definition, "label": LABEL}, intercept=False, **settings)
    return encode_features(plain, {"x": cells}, source="data.csv")


def read_csv(file: Path) -> dict[str, list[str]]:
    return {name: cells.texts() for name, cells in read_table(file).items()}


def load(file: Path, of: Schema) -> tuple[FloatArray, FloatArray]:
    table = read_table(file)
    return encode_features(of, table, source=file.name), encode_target(of, table, source=file.name)


def refusal(directory: Path, content: str | bytes, of: Schema | None = None) -> str:
    """Read and encode a bad file; return the error's words, after checking that they give no cell away."""
    file = directory / "data.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    of = of or schema({"age": AGE, "town": TOWN, "label": LABEL})
    with pytest.raises(RecordsError) as caught:
        load(file, of)
    sentence = str(caught.value)
    assert "data.csv" in sentence
    assert sentence.endswith(".")
    assert SECRET not in sentence
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert "another exception" not in shown  # of a library that may quote what it could not read
    return sentence


# What the numbers are


def test_bounds_become_plus_and_minus_one_and_values_beyond_are_clamped() -> None:
    np.testing.assert_allclose(
        column(AGE, ["0", "100", "50", "75", "-3", "1e9", " 25 "])[:, 0], [-1, 1, 0, 0.5, -1, 1, -0.5]
    )


def test_numbers_so_small_that_they_would_slow_the_processor_down_are_zeros() -> None:
    near_zero = {**AGE, "center": 0, "scale": 1}
    assert column(near_zero, ["1e-310", "1e-200", "1e-140"])[:, 0].tolist() == [0.0, 0.0, 1e-140]


def test_center_and_scale_replace_the_middle_and_half_the_width() -> None:
    moved = {**AGE, "center": 30, "scale": 10}
    np.testing.assert_allclose(column(moved, ["30", "40", "0", "100", "200"])[:, 0], [0, 1, -3, 7, 7])


def test_an_encoded_row_does_not_depend_on_the_other_rows() -> None:
    both = schema({"age": AGE, "town": TOWN, "label": LABEL}, radius=0.8)
    alone = encode_features(both, {"age": ["30"], "town": ["c"]}, source="")
    among = encode_features(both, {"age": ["1", "30", "9e9"], "town": ["a", "c", "b"]}, source="")
    np.testing.assert_array_equal(alone[0], among[1])


def test_categories_become_one_hot_columns_in_the_order_of_the_schema() -> None:
    np.testing.assert_array_equal(column(TOWN, ["a", "b", "c"]), [[0, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_columns_are_taken_by_name_in_sorted_order_and_the_intercept_comes_last() -> None:
    both = schema({"town": TOWN, "age": AGE, "label": LABEL})
    features = encode_features(both, {"label": ["no"], "town": ["c"], "age": ["100"]}, source="")
    np.testing.assert_array_equal(features, [[1, 0, 0, 1, 1]])
    assert both.feature_names == ("age", "town=b", "town=a", "town=c", "intercept")


def test_long_vectors_are_scaled_down_to_the_radius_and_short_ones_left_alone() -> None:
    two = schema({"a": AGE, "b": AGE, "label": LABEL}, radius=0.5, intercept=True)
    features = encode_features(two, {"a": ["100", "60", "0"], "b": ["50", "50", "100"]}, source="")
    half = 0.5 / math.sqrt(2)
    np.testing.assert_allclose(features, [[0.5, 0, 1], [0.2, 0, 1], [-half, half, 1]])


def test_empty_cells_take_the_public_missing_value() -> None:
    np.testing.assert_allclose(column({**AGE, "missing": 75}, ["", "0", ""])[:, 0], [0.5, -1, 0.5])
    np.testing.assert_allclose(column({**AGE, "missing": 0}, ["", "50"])[:, 0], [-1, 0])
    np.testing.assert_array_equal(column({**TOWN, "missing": "c"}, ["", "b"]), [[0, 0, 1], [1, 0, 0]])


def test_numeric_categories_of_a_schema_match_the_cells_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("age,sick\n10,0\n20,1\n", encoding="utf-8")
    sick = schema({"age": AGE, "sick": {"type": "categorical", "categories": [0, 1]}}, "sick")
    np.testing.assert_array_equal(encode_target(sick, read_csv(file), source=""), [-1, 1])


@pytest.mark.parametrize(
    ("target", "cells", "expected"),
    [
        ("label", ["yes", "no"], [1, -1]),  # of two categories, the second is +1
        ("town", ["a", "c", "b"], [1, 2, 0]),  # of more, their index
        ("age", ["75", "999"], [0.5, 1.0]),  # numbers are scaled and clamped as features are
    ],
)
def test_targets_are_signs_indices_or_scaled_numbers(target: str, cells: list[str], expected: list[float]) -> None:
    of = schema({"age": AGE, "town": TOWN, "label": LABEL}, target)
    np.testing.assert_allclose(encode_target(of, {target: cells}, source=""), expected)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, dict[str, list[str]]]:
    """Draw a schema and cells that fit its types, whether or not they keep its bounds."""
    rows = draw(st.integers(1, 5))
    columns: dict[str, Any] = {}
    table: dict[str, list[str]] = {}
    for place in range(draw(st.integers(2, 5))):
        name = f"c{place}"
        missing = draw(st.booleans())
        if draw(st.booleans()):
            lower = draw(st.floats(-1e6, 1e6))
            upper = lower + draw(st.floats(1e-3, 1e6))
            inside = st.floats(lower, upper)
            columns[name] = {"type": "numeric", "lower": lower, "upper": upper}
            if draw(st.booleans()):
                columns[name]["center"] = draw(inside)
            if draw(st.booleans()):
                columns[name]["scale"] = (upper - lower) * draw(st.floats(0.01, 100.0))
            if missing:
                columns[name]["missing"] = draw(inside)
            cells = inside.map(repr) | st.floats(-1e300, 1e300).map(repr) | st.sampled_from(["0", "1e300"])
        else:
            categories = draw(st.lists(st.sampled_from("abcdefgh"), min_size=2, unique=True))
            columns[name] = {"type": "categorical", "categories": categories}
            if missing:
                columns[name]["missing"] = categories[0]
            cells = st.sampled_from(categories)
        table[name] = draw(st.lists(cells | st.just("") if missing else cells, min_size=rows, max_size=rows))
    radius = draw(st.none() | st.floats(1e-3, 10.0))
    return schema(columns, target="c0", intercept=draw(st.booleans()), radius=radius), table


@settings(max_examples=200, deadline=None)
@given(tables())
def test_no_encoded_row_is_longer_than_the_feature_norm(drawn: tuple[Schema, dict[str, list[str]]]) -> None:
    of, table = drawn
    features = encode_features(of, table, source="")
    assert features.shape == (len(table["c0"]), of.width)
    assert np.linalg.norm(features, axis=1).max() <= of.feature_norm * (1.0 + 1e-12)
    targets = encode_target(of, table, source="")
    if of.target_column.is_number or len(of.target_column.classes) == 2:
        assert np.abs(targets).max() <= of.target_bound * (1.0 + 1e-12)


def test_the_feature_norm_is_attained_so_noise_is_not_wasted_on_it() -> None:
    of = schema({"age": {**AGE, "center": 30, "scale": 10}, "b": AGE, "town": TOWN, "label": LABEL})
    corner = encode_features(of, {"age": ["100"], "b": ["0"], "town": ["a"]}, source="")
    assert np.linalg.norm(corner) == pytest.approx(of.feature_norm)


# What is refused, and in which words

HEADER = "age,town,label\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{HEADER}1,a,no\n{SECRET},a,no\n3,a,no\n", "row 3, column 'age': this is not a finite number"),
        (f"{HEADER}1,a,no\n,a,no\n{SECRET},a,no\n", "row 3, column 'age'"),  # the first bad row
        (f"{HEADER}1,{SECRET},no\n", "row 2, column 'town'"),
        (f"{HEADER}1,a,no\n1,a,{SECRET}\n", "row 3, column 'label'"),
        (f"{HEADER}1,A,no\n", "row 2, column 'town'"),
        (f"{HEADER}1,a,no\n  ,a,no\n", "row 3, column 'age': the cell is empty; give the column a public `missing`"),
        (f"{HEADER}1,,no\n", "row 2, column 'town': the cell is empty"),
        (f"{HEADER}1,a,\n", "row 2, column 'label': the cell is empty"),
        (f"{HEADER}1,a,no\n\n{SECRET},a,no\n", "line 3 is blank"),  # it may stand for a lost record
        *((f"{HEADER}1,a,no\n{row}\n", "line 3") for row in (f"{SECRET},a", f"1,a,no,{SECRET}", SECRET)),
        (f"age,{SECRET},{SECRET}\n1,a,no\n", "two columns of the same name"),
        *((first, "first line that names every column") for first in ("", "\n", f"\n{HEADER}", " , , \n", "age,,b\n")),
        (f"31,{SECRET},no\n32,a,no\n", "no column 'age'"),
        ("age,town\n1,a\n", "no column 'label'"),
        (HEADER.encode() + b"1,\0,no\n", "not a text file"),
        (f'{HEADER}1,"{SECRET},no\n', "not well-formed CSV"),
    ],
    ids=repr,
)
def test_a_file_that_does_not_fit_is_refused_by_row_and_column_without_a_cell(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    assert words in refusal(tmp_path, content)


@pytest.mark.parametrize("number", ["inf", "-Infinity", "nan", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_named_by_row_and_column(tmp_path: Path, number: str) -> None:
    sentence = refusal(tmp_path, f"age,town,label\n1,a,no\n2,b,yes\n{number},a,no\n")
    assert "row 4, column 'age': this is not a finite number" in sentence
    assert number not in sentence


def test_a_missing_column_is_named_by_the_schema_s_word_for_it_and_never_by_the_table_s(tmp_path: Path) -> None:
    absent = refusal(tmp_path, f"age,{SECRET},label\n1,a,no\n")
    assert absent.endswith("has no column 'town', which the schema names: add or rename it.")
    assert "differs only in capitals" in refusal(tmp_path, "age, To-Wn,label\n1,a,no\n")


def test_rows_are_counted_as_in_a_spreadsheet_when_a_cell_has_several_lines(tmp_path: Path) -> None:
    of = schema({"age": AGE, "note": {"type": "ignore"}, "label": LABEL})
    content = f'note,age,label\n"two\nlines",1,no\nplain,{SECRET},no\n'
    assert "row 3, column 'age'" in refusal(tmp_path, content, of)


def test_blank_lines_at_the_end_are_no_records(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("age,town\n1,a\n2,b\n\n\n", encoding="utf-8")
    assert read_csv(file) == {"age": ["1", "2"], "town": ["a", "b"]}


def test_a_file_of_latin_letters_or_with_a_byte_order_mark_is_read_as_it_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    for encoding in ("utf-8", "utf-8-sig", "latin-1", "utf-16"):
        file.write_bytes("åge,town\n1,é\n".encode(encoding))
        assert read_csv(file) == {"åge": ["1"], "town": ["é"]}


def test_a_file_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"absent\.csv could not be read"):
        read_csv(tmp_path / "absent.csv")


def test_white_space_around_names_and_cells_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text(" age , town\n 1 , a \n", encoding="utf-8")
    assert read_csv(file) == {"age": ["1"], "town": ["a"]}


def test_a_file_with_a_header_only_has_columns_without_cells(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("age,town,label\n", encoding="utf-8")
    table = read_csv(file)
    assert table == {"age": [], "town": [], "label": []}
    of = schema({"age": AGE, "town": TOWN, "label": LABEL})
    assert encode_features(of, table, source="").shape == (0, of.width)


def test_columns_that_the_schema_ignores_or_does_not_name_may_hold_anything(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text(f"age,note,extra,label\n1,{SECRET},,no\n", encoding="utf-8")
    of = schema({"age": AGE, "note": {"type": "ignore"}, "label": LABEL}, intercept=False)
    assert encode_features(of, read_csv(file), source="").shape == (1, 1)


def test_ordered_categories_become_one_evenly_spaced_column(tmp_path: Path) -> None:
    often = {"type": "categorical", "categories": ["no", "sometimes", "often"], "ordered": True, "scale": 0.5}
    of = schema({"age": AGE, "smokes": often, "label": LABEL})
    table = {"age": ["0", "0", "0"], "smokes": ["no", "sometimes", "often"]}
    assert encode_features(of, table, source="x")[:, 1].tolist() == [-0.5, 0.0, 0.5]
    assert of.feature_names == ("age", "smokes", "intercept")


def test_a_category_s_scale_and_the_intercept_are_as_large_as_the_schema_says(tmp_path: Path) -> None:
    town = {"type": "categorical", "categories": ["a", "b"], "scale": 0.25}
    columns = {"town": town, "label": LABEL}
    of = parse_schema({"columns": columns, "intercept": 0.5}, target="label")
    encoded = encode_features(of, {"town": ["b"]}, source="x")
    assert encoded.tolist() == [[0.0, 0.25, 0.5]]
    assert of.feature_norm == pytest.approx(np.linalg.norm(encoded))


def test_a_number_beyond_the_bounds_is_kept_as_it_was_beside_the_clamped_one() -> None:
    of = schema({"age": AGE, "label": LABEL}).features
    inside = read_cells(of, {"age": ["0", "50", "100"]}, source="data.csv")["age"]
    assert inside.beyond is None
    beyond = read_cells(of, {"age": ["-50", "50", "1e308"]}, source="data.csv")["age"]
    np.testing.assert_array_equal(beyond.values, inside.values)
    np.testing.assert_allclose(beyond.unclamped, [-2.0, 0.0, 1e308 / 50])
    taken = beyond.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken.unclamped, beyond.unclamped[[2, 0]])
