"""Each type of column: what its cells become, how long that may be, and what is said of cells that do not fit."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import RecordsError, SchemaError
from ringfence.model.export import LinearFunction
from ringfence.protocol import Schema, Squared, parse_schema
from ringfence.protocol.queries.second_moments import independent_features
from ringfence.protocol.schema.encoding import encode_features, encode_target

AGE: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 100}
TOWN: dict[str, Any] = {"type": "categorical", "categories": ["a", "b", "c"]}
SEEN: dict[str, Any] = {"type": "date", "lower": "2020-01-01", "upper": "2020-01-11"}
IMAGE: dict[str, Any] = {"type": "vector", "length": 2, "norm": 5.0, "extractor": "halves", "digest": "0" * 64}


def schema(column: dict[str, Any], **settings: Any) -> Schema:
    columns = {"x": column, "y": {"type": "numeric", "lower": 0, "upper": 1}}
    return parse_schema({"columns": columns, "intercept": False, **settings}, target="y")


def encoded(column: dict[str, Any], cells: list[str], **settings: Any) -> list[list[float]]:
    features = encode_features(schema(column, **settings), {"x": cells}, source="data.csv")
    rows: list[list[float]] = features.round(9).tolist()
    return rows


def refusal(column: dict[str, Any], cells: list[str]) -> str:
    with pytest.raises(RecordsError) as caught:
        encoded(column, cells)
    return str(caught.value)


@pytest.mark.parametrize(
    ("false", "true"), [("false", "true"), ("No", "YES"), ("0", "1"), ("f", "t"), ("n", "Y"), ("0.0", "1.0")]
)
def test_a_boolean_is_true_or_false_in_any_usual_spelling(false: str, true: str) -> None:
    assert encoded({"type": "boolean"}, [false, true]) == [[-1.0], [1.0]]
    assert "row 2, column 'x': this is neither true nor false" in refusal({"type": "boolean"}, ["2"])


def test_a_boolean_target_has_the_classes_no_and_yes() -> None:
    of = parse_schema({"columns": {"age": AGE, "ill": {"type": "boolean"}}}, target="ill")
    assert of.target_column.classes == ("no", "yes")
    assert encode_target(of, {"ill": ["true", "0"]}, source="").tolist() == [1, -1]


def test_a_date_becomes_a_number_between_public_dates() -> None:
    assert encoded(SEEN, ["2020-01-01", "2020-01-06", "2020-01-06T12:00", "1999-01-01"]) == [[-1], [0], [0.1], [-1]]
    german = {**SEEN, "format": "%d.%m.%Y"}
    assert encoded(german, ["11.01.2020"]) == [[1.0]]
    assert "not in the schema's `format`" in refusal(german, ["2020-01-11"])
    assert "state the dates' `format` in the schema" in refusal(SEEN, ["11.01.2020"])
    zoned = encoded(SEEN, ["2020-01-06T02:00+02:00"])
    assert zoned == [[0.0]]


def test_a_date_s_own_number_counts_from_a_public_origin_in_a_public_unit() -> None:
    of = schema({**SEEN, "origin": "2020-01-01", "counted_in": "hour"})
    function = LinearFunction.of(of, Squared(), np.ones((1, 1)))
    assert function.matrix({"x": ["2020-01-02", "2021-01-01"]}).tolist() == [[24.0], [366 * 24.0]]


def test_typed_times_are_read_as_their_texts_are() -> None:
    of = schema(SEEN)
    times = np.array(["2020-01-06T12:00", "2020-01-01"], dtype="datetime64[s]")
    typed = encode_features(of, {"x": times}, source="")
    np.testing.assert_array_equal(typed, encode_features(of, {"x": ["2020-01-06T12:00", "2020-01-01"]}, source=""))


def test_codes_are_whole_numbers_in_any_spelling() -> None:
    ward = {"type": "code", "codes": [1, 12]}
    assert encoded(ward, ["01", "1.0", "12", "+1"]) == [[1, 0], [1, 0], [0, 1], [1, 0]]
    assert "this code is not in the schema's public list" in refusal(ward, ["2"])
    assert encoded({**ward, "other": 12}, ["2"]) == [[0, 1]]


def test_words_are_hashed_into_a_dictionary_of_a_public_size() -> None:
    note = {"type": "text", "words": 64}
    same, turned, other, none = encoded(note, ["Fever, and COUGH!", "cough and fever", "broken arm", ""])
    assert same == turned
    assert same != other
    assert none == [0.0] * 64
    assert np.linalg.norm(same) == pytest.approx(1.0)
    assert encoded({**note, "ngrams": 2}, ["cough and fever"]) != encoded({**note, "ngrams": 2}, ["fever and cough"])


def test_a_vector_is_cut_to_its_public_norm() -> None:
    assert encoded(IMAGE, ["[3, 4]", "30 40", "0;1"]) == [[0.6, 0.8], [0.6, 0.8], [0.0, 0.2]]
    for wrong in ("1", "1 2 3", "1 nan", "1 x"):
        assert "not a vector of 2 finite numbers; make it again" in refusal(IMAGE, [wrong])
    assert schema(IMAGE).feature_names == ("x[0]", "x[1]")


def test_an_identifier_is_never_a_feature() -> None:
    columns = {"id": {"type": "identifier"}, "age": AGE, "ill": {"type": "boolean"}}
    of = parse_schema({"columns": columns, "person": "id"}, target="ill")
    assert of.feature_names == ("age", "intercept")


def test_tokens_mean_that_a_cell_is_empty_in_any_spelling_of_a_number() -> None:
    column = {**AGE, "missing": 50, "missing_tokens": ["NA", "-9"]}
    assert encoded(column, ["NA", "-9", "-9.0", "", "100"]) == [[0], [0], [0], [0], [1]]
    assert "the cell is empty" in refusal({**AGE, "missing_tokens": ["NA"]}, ["1", "NA"])
    numbers = encode_features(schema(column), {"x": np.array([-9.0, np.nan, 100.0])}, source="")
    assert numbers.tolist() == [[0], [0], [1]]


def test_an_empty_category_gives_the_same_hint_as_an_empty_number() -> None:
    hints = {refusal(column, [""]).split(": ", 1)[1] for column in (AGE, TOWN, SEEN, {"type": "boolean"})}
    assert len(hints) == 1
    assert "public `missing` value" in hints.pop()


def test_an_indicator_is_one_feature_more_and_being_missing_a_category_of_its_own() -> None:
    assert encoded({**AGE, "indicator": True}, ["", "75"]) == [[0, 1], [0.5, 0]]
    assert encoded({**TOWN, "indicator": True}, ["", "b"]) == [[0, 0, 0, 1], [0, 1, 0, 0]]
    assert schema({**AGE, "indicator": True}).feature_names == ("x", "x is missing")
    assert "only a feature can have" in refused({"x": AGE, "y": {**TOWN, "indicator": True}})


def test_synonyms_and_other_send_every_cell_to_a_category() -> None:
    column = {**TOWN, "synonyms": {"a": ["A", 1]}, "other": "c"}
    assert encoded(column, ["A", "1", "a", "Zwolle"]) == [[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1]]


def refused(columns: dict[str, Any]) -> str:
    with pytest.raises(SchemaError) as caught:
        parse_schema({"columns": columns}, target="y")
    return str(caught.value)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({**TOWN, "synonyms": {"z": ["q"]}}, "not among the categories"),
        ({**TOWN, "synonyms": {"a": ["b"]}}, "a synonym is"),
        ({**TOWN, "other": "z"}, "other must be one of"),
        ({**TOWN, "missing": "a", "indicator": True}, "leave `missing` out"),
        ({**SEEN, "lower": "yesterday"}, "lower must be an ISO 8601 date"),
        ({**SEEN, "lower": "2021-01-01"}, "lower must be before upper"),
        ({**SEEN, "format": "%A"}, "format may hold"),
        ({"type": "code", "codes": [1, 1]}, "listed twice"),
        ({**IMAGE, "digest": "abc"}, "digest"),
        ({"type": "vector"}, "has no `length`"),
        ({"type": "text", "words": 1}, "words"),
    ],
    ids=str,
)
def test_a_column_that_makes_no_sense_is_refused_by_name(column: dict[str, Any], words: str) -> None:
    sentence = refused({"x": column, "y": AGE})
    assert "x" in sentence
    assert words in sentence


def test_a_text_or_a_vector_is_no_target() -> None:
    for column in ({"type": "text"}, IMAGE):
        assert "neither a number nor one of several classes" in refused({"x": AGE, "y": column})


COLUMNS = st.fixed_dictionaries(
    {},
    optional={
        "age": st.just(AGE),
        "town": st.just(TOWN),
        "seen": st.just(SEEN),
        "note": st.just({"type": "text", "words": 5, "scale": 0.3}),
        "image": st.just(IMAGE),
        "ward": st.just({"type": "code", "codes": [1, 2]}),
        "ill": st.just({"type": "boolean", "scale": 2.0}),
    },
).filter(bool)
CELLS = {
    "age": ["", "NA", "0", "1e9"],
    "town": ["", "NA", "a", "c"],
    "seen": ["", "NA", "2020-01-03", "2999-01-01"],
    "note": ["", "NA", "one", "one two three"],
    "image": ["", "3 4", "300 400", "0 0"],
    "ward": ["", "NA", "1", "2"],
    "ill": ["", "NA", "yes", "f"],
}


@settings(max_examples=80, deadline=None)
@given(COLUMNS, st.booleans())
def test_no_row_is_longer_than_the_feature_norm_whatever_the_columns(columns: dict[str, Any], indicator: bool) -> None:
    gaps = {"missing_tokens": ["NA"], "indicator": True}
    said = {name: {**column, **gaps} if indicator else column for name, column in columns.items()}
    of = parse_schema({"columns": {**said, "y": AGE}, "intercept": False}, target="y")
    rows = range(0 if indicator else 2, 4)
    table = {name: [CELLS[name][row] for row in rows] for name in columns}
    features = encode_features(of, table, source="")
    assert features.shape == (len(rows), of.width)
    assert of.width == sum(len(column.scaling) for column in of.features.values())
    assert np.linalg.norm(features, axis=1).max() <= of.feature_norm * (1 + 1e-12)
    plain = LinearFunction.of(of, Squared(), np.ones((of.width, 1)))
    offsets, units = np.array([pair for column in of.features.values() for pair in column.scaling]).T
    inside = ~np.isin(
        np.array(
            [[cell in ("1e9", "2999-01-01", "300 400") for cell in row] for row in zip(*table.values(), strict=True)]
        ).any(axis=1),
        [True],
    )
    np.testing.assert_allclose(plain.matrix(table)[inside], (features * units + offsets)[inside], atol=1e-9)


def test_only_categories_that_add_up_leave_one_out_of_a_summary() -> None:
    def places(**columns: dict[str, Any]) -> list[int]:
        found: list[int] = independent_features(parse_schema({"columns": {**columns, "y": AGE}}, target="y")).tolist()
        return found

    assert places(x=TOWN) == [1, 2, 3]
    assert places(x=IMAGE) == [0, 1, 2]
    assert places(x={"type": "text", "words": 3}) == [0, 1, 2, 3]
    assert places(x={**AGE, "indicator": True}) == [0, 1, 2]
    assert math.isclose(schema(TOWN).features["x"].constant, 1.0)


def test_a_question_mark_may_be_a_cell_that_holds_nothing() -> None:
    column = {"type": "numeric", "lower": 0, "upper": 9, "missing": 5, "missing_tokens": ["?"]}
    table = {"dose": ["?", "9"], "ill": ["no", "yes"]}
    of = parse_schema({"columns": {"dose": column, "ill": {"type": "boolean"}}}, target="ill")
    np.testing.assert_allclose(encode_features(of, table, source="x")[:, 0], [(5 - 4.5) / 4.5, 1.0])
