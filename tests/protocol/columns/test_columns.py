"""Each type of column: what its cells become, how long that may be, and what is said of cells that do not fit."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import RecordsError, SchemaError
from ringfence.model.export import LinearFunction
from ringfence.protocol import FloatArray, Schema, Squared, parse_schema
from ringfence.protocol.queries.second_moments import independent_features
from ringfence.protocol.schema.encoding import encode_features
from ringfence.research.datasets import encode_target
from tests.generated import examples

AGE: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 100}
TOWN: dict[str, Any] = {"type": "categorical", "categories": ["b", "a", "c"]}
OFTEN: dict[str, Any] = {"type": "categorical", "categories": ["no", "sometimes", "often"], "ordered": True}
SEEN: dict[str, Any] = {"type": "date", "lower": "2020-01-01", "upper": "2020-01-11"}
IMAGE: dict[str, Any] = {"type": "vector", "length": 2, "norm": 5.0, "extractor": "halves", "digest": "0" * 64}
ILL: dict[str, Any] = {"type": "boolean"}
WARD: dict[str, Any] = {"type": "code", "codes": [1, 12]}
NOTE: dict[str, Any] = {"type": "text", "words": 64}
TOKENS = {**AGE, "missing": 50, "missing_tokens": ["NA", "-9", "?"]}
GERMAN = {**SEEN, "format": "%d.%m.%Y"}


def schema(column: dict[str, Any]) -> Schema:
    columns = {"x": column, "y": {"type": "numeric", "lower": 0, "upper": 1}}
    return parse_schema({"columns": columns, "intercept": False}, target="y")


def encoded(column: dict[str, Any], cells: Any) -> FloatArray:
    return encode_features(schema(column), {"x": cells}, source="data.csv")


@pytest.mark.parametrize(
    ("column", "cells", "expected"),
    [
        (AGE, ["0", "100", "50", "75", "-3", "1e9", " 25 "], [-1, 1, 0, 0.5, -1, 1, -0.5]),
        ({**AGE, "center": 30, "scale": 10}, ["30", "40", "0", "100", "200"], [0, 1, -3, 7, 7]),
        ({**AGE, "center": 0, "scale": 1}, ["1e-310", "1e-200", "1e-140"], [0, 0, 1e-140]),  # too small: slow products
        ({**AGE, "missing": 75}, ["", "0", ""], [0.5, -1, 0.5]),
        ({**AGE, "missing": 0}, ["", "50"], [-1, 0]),
        ({**AGE, "indicator": True}, ["", "75"], [[0, 1], [0.5, 0]]),
        (TOKENS, ["NA", "-9", "-9.0", "", "?", "100"], [0, 0, 0, 0, 0, 1]),
        (TOKENS, np.array([-9.0, np.nan, 100.0]), [0, 0, 1]),
        (TOWN, ["a", "b", "c"], [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),  # in the order of the schema
        ({**TOWN, "scale": 0.25}, ["a"], [[0, 0.25, 0]]),
        ({**TOWN, "missing": "c"}, ["", "b"], [[0, 0, 1], [1, 0, 0]]),
        ({**TOWN, "indicator": True}, ["", "b"], [[0, 0, 0, 1], [1, 0, 0, 0]]),
        ({**TOWN, "synonyms": {"b": ["B", 1]}, "other": "c"}, ["B", "1", "b", "Zwolle"], np.eye(3)[[0, 0, 0, 2]]),
        ({**OFTEN, "scale": 0.5}, ["no", "sometimes", "often"], [-0.5, 0, 0.5]),
        (ILL, ["false", "true", "No", "YES", "0", "1", "f", "t", "n", "Y", "0.0", "1.0"], [-1, 1] * 6),
        (SEEN, ["2020-01-01", "2020-01-06", "2020-01-06T12:00", "1999-01-01"], [-1, 0, 0.1, -1]),
        (SEEN, ["2020-01-06T02:00+02:00"], [0]),
        (SEEN, np.array(["2020-01-06T12:00", "2020-01-01"], dtype="datetime64[s]"), [0.1, -1]),
        (GERMAN, ["11.01.2020"], [1]),
        (WARD, ["01", "1.0", "12", "+1"], [[1, 0], [1, 0], [0, 1], [1, 0]]),
        ({**WARD, "other": 12}, ["2"], [[0, 1]]),
        (IMAGE, ["[3, 4]", "30 40", "0;1"], [[0.6, 0.8], [0.6, 0.8], [0.0, 0.2]]),  # clipped to the norm
    ],
    ids=str,
)
def test_cells_become_features(column: dict[str, Any], cells: Any, expected: Any) -> None:
    found = encoded(column, cells)
    np.testing.assert_allclose(found, np.reshape(expected, (len(cells), -1)), rtol=1e-9, atol=1e-150)


def test_words_are_hashed_into_a_dictionary_of_a_public_size() -> None:
    same, turned, other, none = encoded(NOTE, ["Fever, and COUGH!", "cough and fever", "broken arm", ""]).tolist()
    assert same == turned
    assert same != other
    assert none == [0.0] * 64
    assert np.linalg.norm(same) == pytest.approx(1.0)
    pairs = encoded({**NOTE, "ngrams": 2}, ["cough and fever", "fever and cough"]).tolist()
    assert pairs[0] != pairs[1]


EMPTY = "the cell is empty; give the column a public `missing` value"


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        *((column, [""], EMPTY) for column in (AGE, TOWN, SEEN, ILL)),
        ({**AGE, "missing_tokens": ["NA"]}, ["NA"], EMPTY),
        (TOWN, ["A"], "this category is not in the schema's public list"),
        (ILL, ["2"], "this is neither true nor false"),
        (GERMAN, ["2020-01-11"], "not in the schema's `format`"),
        (SEEN, ["11.01.2020"], "state the dates' `format` in the schema"),
        (WARD, ["2"], "this code is not in the schema's public list"),
        *(
            (IMAGE, [cell], "not a vector of 2 finite numbers; make it again")
            for cell in ("1", "1 2 3", "1 nan", "1 x")
        ),
    ],
    ids=str,
)
def test_a_cell_that_does_not_fit_is_named_by_row_and_column_with_the_remedy(
    column: dict[str, Any], cells: list[str], words: str
) -> None:
    with pytest.raises(RecordsError) as caught:
        encoded(column, cells)
    assert str(caught.value).startswith("data.csv, row 2, column 'x': ")
    assert words in str(caught.value)


def test_every_feature_has_a_name() -> None:
    assert schema(IMAGE).feature_names == ("x[0]", "x[1]")
    assert schema(OFTEN).feature_names == ("x",)
    assert schema(TOWN).feature_names == ("x=b", "x=a", "x=c")
    assert schema({**AGE, "indicator": True}).feature_names == ("x", "x is missing")


@pytest.mark.parametrize(
    ("target", "cells", "expected"),
    [
        (ILL, ["true", "0"], [1, -1]),  # of two classes, the second is +1
        ({"type": "categorical", "categories": [0, 1]}, ["0", "1"], [-1, 1]),  # texts, as the cells of a file are
        (TOWN, ["a", "c", "b"], [1, 2, 0]),  # of more, their index
        (AGE, ["75", "999"], [0.5, 1.0]),  # numbers are scaled and clamped as features are
    ],
    ids=str,
)
def test_targets_are_signs_indices_or_scaled_numbers(
    target: dict[str, Any], cells: list[str], expected: list[float]
) -> None:
    of = parse_schema({"columns": {"age": AGE, "y": target}}, target="y")
    np.testing.assert_allclose(encode_target(of, {"y": cells}, source=""), expected)
    assert target is not ILL or of.target_column.classes == ("no", "yes")


def test_a_date_s_own_number_counts_from_a_public_origin_in_a_public_unit() -> None:
    of = schema({**SEEN, "origin": "2020-01-01", "counted_in": "hour"})
    function = LinearFunction.of(of, Squared(), np.ones((1, 1)))
    assert function.matrix({"x": ["2020-01-02", "2021-01-01"]}).tolist() == [[24.0], [366 * 24.0]]


def test_an_identifier_is_never_a_feature() -> None:
    columns = {"id": {"type": "identifier"}, "age": AGE, "ill": ILL}
    of = parse_schema({"columns": columns, "person": "id"}, target="ill")
    assert of.feature_names == ("age", "intercept")


NUMERIC: list[tuple[dict[str, Any], str]] = [
    ({"lower": 5, "upper": 5}, "lower must be smaller than upper"),
    ({"lower": 6, "upper": 5}, "lower must be smaller than upper"),
    ({"lower": math.nan, "upper": 5}, "finite"),
    ({"lower": -math.inf, "upper": 5}, "finite"),
    ({"lower": 0, "upper": math.inf}, "finite"),
    ({"lower": -1e308, "upper": 1e308}, "too wide"),
    ({"lower": 0.0, "upper": 5e-324}, "too close"),
    ({**AGE, "center": 101}, "center must lie between"),
    ({**AGE, "missing": -1}, "missing must lie between"),
    ({**AGE, "scale": 0}, "greater than 0"),
    ({**AGE, "scale": -1}, "greater than 0"),
    ({**AGE, "scale": 1e-7}, "scale is so small"),
    ({"lower": 0}, "`upper`, which is required: write the largest publicly"),
    ({**AGE, "uper": 5}, "not permitted"),
    ({"lower": "low", "upper": 5}, "number"),
]
CATEGORICAL: list[tuple[dict[str, Any], str]] = [
    ({"categories": ["a"]}, "at least 2"),
    ({"categories": []}, "at least 2"),
    ({"categories": ["a", "b", "a"]}, "listed twice"),
    ({"categories": [1, "1"]}, "listed twice"),
    ({"categories": ["a", " b"]}, "spaces around it"),
    ({"categories": ["a", ""]}, "empty"),
    ({**TOWN, "missing": "d"}, "missing must be one of"),
    ({"categories": [True, False]}, 'quote them, as "true" or "false"'),
    ({}, "has no `categories`"),
    ({**TOWN, "synonyms": {"z": ["q"]}}, "not among the categories"),
    ({**TOWN, "synonyms": {"a": ["b"]}}, "a synonym is"),
    ({**TOWN, "other": "z"}, "other must be one of"),
    ({**TOWN, "missing": "a", "indicator": True}, "leave `missing` out"),
]
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({**SEEN, "lower": "yesterday"}, "lower must be an ISO 8601 date"),
    ({**SEEN, "lower": "2021-01-01"}, "lower must be before upper"),
    ({**SEEN, "format": "%A"}, "format may hold"),
    ({**WARD, "codes": [1, 1]}, "listed twice"),
    ({**IMAGE, "digest": "abc"}, "digest"),
    ({"type": "vector"}, "has no `length`"),
    ({**NOTE, "words": 1}, "words"),
]


def refused(columns: dict[str, Any]) -> str:
    with pytest.raises(SchemaError) as caught:
        parse_schema({"columns": columns}, target="y")
    return str(caught.value)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        *(({"type": "numeric", **column}, words) for column, words in NUMERIC),
        *(({"type": "categorical", **column}, words) for column, words in CATEGORICAL),
        *OTHERS,
    ],
    ids=str,
)
def test_a_column_that_makes_no_sense_is_refused_by_name(column: dict[str, Any], words: str) -> None:
    sentence = refused({"town": column, "y": AGE})
    assert sentence.startswith("In the schema, ")
    assert "town" in sentence
    assert words in sentence


def test_a_text_a_vector_or_a_column_with_an_indicator_is_no_target() -> None:
    for column in (NOTE, IMAGE):
        assert "neither a number nor one of several classes" in refused({"x": AGE, "y": column})
    assert "only a feature can have" in refused({"x": AGE, "y": {**TOWN, "indicator": True}})


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a numeric column with any bounds, centre, scale and stand-in."""
    lower = draw(st.floats(-1e6, 1e6))
    upper = lower + draw(st.floats(1e-3, 1e6))
    given: dict[str, Any] = {"type": "numeric", "lower": lower, "upper": upper}
    center = {"center": draw(st.floats(lower, upper))} if draw(st.booleans()) else {}
    scale = {"scale": (upper - lower) * draw(st.floats(0.01, 100.0))} if draw(st.booleans()) else {}
    missing = {"missing": draw(st.floats(lower, upper))} if draw(st.booleans()) else {}
    return given | center | scale | missing


GIVEN = {
    "town": (TOWN, ["", "NA", "a", "c"]),
    "often": ({**OFTEN, "scale": 3.0, "center": 0.2}, ["", "NA", "no", "often"]),
    "seen": (SEEN, ["", "NA", "2020-01-03", "2999-01-01"]),
    "note": ({"type": "text", "words": 5, "scale": 0.3}, ["", "NA", "one", "one two three"]),
    "image": (IMAGE, ["", "3 4", "300 400", "0 0"]),
    "ward": (WARD, ["", "NA", "1", "12"]),
    "ill": ({**ILL, "scale": 2.0}, ["", "NA", "yes", "f"]),
}
"""Columns, and cells of which the first two may be empty."""
BEYOND = ("-1e300", "1e300", "2999-01-01", "300 400")


@examples(400)
@given(
    numbers(),
    st.lists(numbers(), max_size=3),
    st.sets(st.sampled_from(sorted(GIVEN))),
    st.booleans(),
    st.none() | st.floats(0.01, 9),
)
def test_no_row_is_longer_than_the_feature_norm_whatever_the_columns(
    target: dict[str, Any], drawn: list[dict[str, Any]], names: set[str], indicator: bool, radius: float | None
) -> None:
    chosen = {f"n{place}": (column, ["", "NA", "-1e300", "1e300"]) for place, column in enumerate(drawn)}
    chosen |= {name: GIVEN[name] for name in names} or {"town": GIVEN["town"]}
    gaps = {"missing_tokens": ["NA"], "indicator": True} if indicator else {}
    columns = {name: {**column, **gaps} for name, (column, _) in chosen.items()}
    of = parse_schema({"columns": {**columns, "y": target}, "intercept": indicator, "radius": radius}, target="y")
    table = {name: cells[0 if indicator else 2 :] for name, (_, cells) in chosen.items()}
    features = encode_features(of, table, source="")
    rows = list(zip(*table.values(), strict=True))
    assert features.shape == (len(rows), of.width)
    assert of.width == sum(len(column.scaling) for column in of.features.values()) + indicator
    assert np.linalg.norm(features, axis=1).max() <= of.feature_norm * (1 + 1e-12)
    assert np.abs(encode_target(of, {"y": ["-1e300", "1e300"]}, source="")).max() <= of.target_bound * (1 + 1e-12)
    inside = [not any(cell in BEYOND for cell in row) for row in rows]
    if radius is None and any(inside):
        plain = LinearFunction.of(of, Squared(), np.ones((of.width, 1))).matrix(table)
        offsets, units = np.array([pair for column in of.features.values() for pair in column.scaling]).T
        own = features[:, : len(units)]
        np.testing.assert_allclose(plain[inside], (own * units + offsets)[inside], rtol=1e-9, atol=1e-9)


def test_only_categories_that_add_up_leave_one_out_of_a_summary() -> None:
    def places(column: dict[str, Any]) -> list[int]:
        own = parse_schema({"columns": {"x": column, "y": AGE}}, target="y")
        found: list[int] = independent_features(own).tolist()
        return found

    assert places(TOWN) == [1, 2, 3]
    assert places(IMAGE) == [0, 1, 2]
    assert places({"type": "text", "words": 3}) == [0, 1, 2, 3]
    assert places({**AGE, "indicator": True}) == [0, 1, 2]
    assert math.isclose(schema(TOWN).features["x"].constant, 1.0)
