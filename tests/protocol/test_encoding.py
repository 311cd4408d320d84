"""From cells to numbers by the public schema alone; errors name row and column and show no value."""

import math
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.protocol import Schema, parse_schema
from ringfence.protocol.schema.encoding import encode_features, read_cells
from ringfence.research.datasets import encode_target
from ringfence.sources import read_table

SECRET = "ZX4711Quilliam"
"""A cell whose content must never show."""

AGE: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 100}
TOWN: dict[str, Any] = {"type": "categorical", "categories": ["b", "a", "c"]}
LABEL: dict[str, Any] = {"type": "categorical", "categories": ["no", "yes"]}


def schema(columns: dict[str, Any], **settings: Any) -> Schema:
    return parse_schema({"columns": {**columns, "label": LABEL}, **settings}, target="label")


BOTH = schema({"town": TOWN, "age": AGE})


def encode(file: Path, of: Schema) -> None:
    table = read_table(file)
    encode_features(of, table, source=file.name)
    encode_target(of, table, source=file.name)


def refusal(directory: Path, content: str | bytes) -> str:
    """Read and encode a bad file; return the error's words, after checking that they give no cell away."""
    file = directory / "data.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecordsError) as caught:
        encode(file, BOTH)
    sentence = str(caught.value)
    assert "data.csv" in sentence
    assert sentence.endswith(".")
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in sentence + shown
    assert "another exception" not in shown  # of a library that may quote what it could not read
    return sentence


def test_columns_are_taken_by_name_in_sorted_order_and_the_intercept_comes_last() -> None:
    features = encode_features(BOTH, {"label": ["no"], "town": ["c"], "age": ["100"]}, source="")
    np.testing.assert_array_equal(features, [[1, 0, 0, 1, 1]])
    assert BOTH.feature_names == ("age", "town=b", "town=a", "town=c", "intercept")


def test_an_encoded_row_does_not_depend_on_the_other_rows() -> None:
    both = schema({"age": AGE, "town": TOWN}, radius=0.8)
    alone = encode_features(both, {"age": ["30"], "town": ["c"]}, source="")
    among = encode_features(both, {"age": ["1", "30", "9e9"], "town": ["a", "c", "b"]}, source="")
    np.testing.assert_array_equal(alone[0], among[1])


def test_long_vectors_are_scaled_down_to_the_radius_and_short_ones_left_alone() -> None:
    two = schema({"a": AGE, "b": AGE}, radius=0.5, intercept=True)
    features = encode_features(two, {"a": ["100", "60", "0"], "b": ["50", "50", "100"]}, source="")
    half = 0.5 / math.sqrt(2)
    np.testing.assert_allclose(features, [[0.5, 0, 1], [0.2, 0, 1], [-half, half, 1]])


def test_the_feature_norm_is_attained_so_noise_is_not_wasted_on_it() -> None:
    columns = {"age": {**AGE, "center": 30, "scale": 10}, "b": AGE, "town": {**TOWN, "scale": 0.25}}
    of = schema(columns, intercept=0.5)
    corner = encode_features(of, {"age": ["100"], "b": ["0"], "town": ["a"]}, source="")
    assert corner[0, -1] == 0.5
    assert np.linalg.norm(corner) == pytest.approx(of.feature_norm)


def test_a_number_beyond_the_bounds_is_kept_as_it_was_beside_the_clamped_one() -> None:
    of = schema({"age": AGE}).features
    inside = read_cells(of, {"age": ["0", "50", "100"]}, source="data.csv")["age"]
    assert inside.beyond is None
    beyond = read_cells(of, {"age": ["-50", "50", "1e308"]}, source="data.csv")["age"]
    np.testing.assert_array_equal(beyond.values, inside.values)
    np.testing.assert_allclose(beyond.unclamped, [-2.0, 0.0, 1e308 / 50])
    taken = beyond.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken.unclamped, beyond.unclamped[[2, 0]])


# What is refused, and in which words

HEADER = "age,town,label\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{HEADER}1,a,no\n{SECRET},a,no\n3,a,no\n", "row 3, column 'age': this is not a finite number"),
        *(
            (f"{HEADER}1,a,no\n2,b,yes\n{number},a,no\n", "row 4, column 'age': this is not a finite number")
            for number in ("inf", "-Infinity", "nan", "1e999", "-1e999")
        ),
        (f"{HEADER}1,a,no\n,a,no\n{SECRET},a,no\n", "row 3, column 'age'"),  # the first bad row
        (f'note,{HEADER}"two\nlines",1,a,no\nplain,{SECRET},a,no\n', "row 3, column 'age'"),  # as in a spreadsheet
        (f"{HEADER}1,{SECRET},no\n", "row 2, column 'town'"),
        (f"{HEADER}1,a,no\n1,a,{SECRET}\n", "row 3, column 'label'"),
        (f"{HEADER}1,a,no\n  ,a,no\n", "row 3, column 'age': the cell is empty; give the column a public `missing`"),
        (f"{HEADER}1,,no\n", "row 2, column 'town': the cell is empty"),
        (f"{HEADER}1,a,\n", "row 2, column 'label': the cell is empty"),
        (f"{HEADER}1,a,no\n\n{SECRET},a,no\n", "line 3 is blank"),  # it may stand for a lost record
        *((f"{HEADER}1,a,no\n{row}\n", "line 3") for row in (f"{SECRET},a", f"1,a,no,{SECRET}", SECRET)),
        (f"age,{SECRET},{SECRET}\n1,a,no\n", "two columns of the same name"),
        *((first, "first line that names every column") for first in ("", "\n", f"\n{HEADER}", " , , \n", "age,,b\n")),
        (f"31,{SECRET},no\n32,a,no\n", "no column 'age'"),
        ("age,town\n1,a\n", "no column 'label'"),
        (f"age,{SECRET},label\n1,a,no\n", "has no column 'town', which the schema names: add or rename it."),
        ("age, To-Wn,label\n1,a,no\n", "differs only in capitals"),
        (HEADER.encode() + b"1,\0,no\n", "not a text file"),
        (f'{HEADER}1,"{SECRET},no\n', "not well-formed CSV"),
    ],
    ids=repr,
)
def test_a_file_that_does_not_fit_is_refused_by_row_and_column_without_a_cell(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    assert words in refusal(tmp_path, content)


# Files as people have them


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"age,town\n1,a\n2,b\n\n\n", {"age": ["1", "2"], "town": ["a", "b"]}),  # blank lines at the end
        (b" age , town\n 1 , a \n", {"age": ["1"], "town": ["a"]}),
        (HEADER.encode(), {"age": [], "town": [], "label": []}),
        *(
            ("åge,town\n1,é\n".encode(encoding), {"åge": ["1"], "town": ["é"]})
            for encoding in ("utf-8", "utf-8-sig", "latin-1", "utf-16")
        ),
    ],
)
def test_a_file_is_read_as_it_was_meant(tmp_path: Path, content: bytes, expected: dict[str, list[str]]) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(content)
    assert {name: cells.texts() for name, cells in read_table(file).items()} == expected


def test_a_file_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"absent\.csv could not be read"):
        read_table(tmp_path / "absent.csv")


def test_a_table_without_records_and_columns_that_the_schema_does_not_read_are_no_problem() -> None:
    assert encode_features(BOTH, {"age": [], "town": []}, source="").shape == (0, BOTH.width)
    of = schema({"age": AGE, "note": {"type": "ignore"}}, intercept=False)
    assert encode_features(of, {"age": ["1"], "note": [SECRET], "extra": [""]}, source="").shape == (1, 1)
