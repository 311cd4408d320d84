"""Drafts of tables with codes for missing values, free text and gaps."""

import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.protocol.schema.codes import DATES, NUMBERS, TOKENS, beyond_bounds, outlying, token_line, token_texts
from ringfence.protocol.schema.draft import draft_schema, drafted_columns, has_tokens, repeating_identifiers
from ringfence.sources.cells import ArrayCells, CodedCells, Table, TextCells
from tests.generated import examples

AGES = [str(18 + row % 70) for row in range(200)]
DAYS = [f"2023-{1 + row % 12:02}-{1 + row % 28:02}" for row in range(200)]
SECRET = "ZX4711Quilliam"


def drafted(cells: Any, name: str = "column") -> dict[str, Any]:
    """Return the drafted column, as its file says."""
    table = {name: cells}
    columns = drafted_columns(table)
    text = draft_schema(columns, tokens=has_tokens(table, columns))
    column: dict[str, Any] = tomllib.loads(text)["columns"][name]
    return column


@pytest.mark.parametrize(
    "code", ["k.A.", "K. A.", "keine Angabe", "unbekannt", "Unknown", "missing", "#N/A", "n.a.", "--"]
)
def test_a_column_of_numbers_and_a_word_for_a_missing_value_is_numeric_and_names_the_word(code: str) -> None:
    column = drafted([code, *AGES, code])
    assert column == {"type": "numeric", "lower": "?", "upper": "?", "missing_tokens": [code]}
    [own] = drafted_columns({"age": [code, *AGES, code]}).values()
    assert own.remark.startswith(f"2 cells hold '{code}', listed in `missing_tokens`")


@pytest.mark.parametrize("code", ["-999", "-99", "-9", "999", "9999", "777", "-999.0", "999.9", "-1"])
def test_a_repeated_common_number_far_from_all_others_is_a_code_for_a_missing_value(code: str) -> None:
    column = drafted([code, *AGES, code])
    assert column["type"] == "numeric"
    assert column["missing_tokens"] == [code.removesuffix(".0")]


@pytest.mark.parametrize(
    "cells",
    [
        ["99", "99", *AGES],  # within reach of ages to 87
        ["-999", *AGES],  # a single cell: the check finds it by the bounds
        ["4711", "4711", *AGES],  # no common code: a draft may not copy it
        [str(value) for value in range(-9, 10)] * 9,
        ["-5", "-12.5", "-99", "-99", "-200"] * 9,
        ["-999", "-999", "5"],
        ["-1", "-1", "0", "1", "2"] * 9,
        ["4", "5", "6", "7", "8", "9"] * 9,
        ["55", "66", "77", "88", "99"] * 9,
    ],
)
def test_numbers_that_may_be_values_are_not_drafted_as_codes(cells: list[str]) -> None:
    assert drafted(cells) == {"type": "numeric", "lower": "?", "upper": "?"}


def test_codes_are_found_in_arrays_and_coded_columns_and_with_decimal_commas() -> None:
    ages = np.array([*map(float, AGES), -999.0, -999.0])
    assert drafted(ArrayCells(ages))["missing_tokens"] == ["-999"]
    assert drafted(ArrayCells(ages.astype(np.int64)))["missing_tokens"] == ["-999"]
    comma = TextCells([*(f"{age},5" for age in AGES), "-999,0", "-999,00", "k.A."], comma=True)
    assert drafted(comma) == {"type": "numeric", "lower": "?", "upper": "?", "missing_tokens": ["k.A.", "-999"]}
    texts = ["N/A", "k.A.", *sorted(set(DAYS))]
    coded = CodedCells(np.arange(len(texts)), texts)
    assert drafted(coded) == {"type": "date", "lower": "?", "upper": "?", "missing_tokens": ["N/A", "k.A."]}
    days = np.array([*DAYS, "9999-12-31", "9999-12-31"], dtype="datetime64[D]")
    assert drafted(ArrayCells(days))["missing_tokens"] == ["9999-12-31"]


def test_codes_among_dates_and_truth_values_leave_the_type_as_it_is() -> None:
    assert drafted([*DAYS, "unbekannt"]) == {
        "type": "date", "lower": "?", "upper": "?", "missing_tokens": ["unbekannt"],
    }  # fmt: skip
    german = [".".join(reversed(day.split("-"))) for day in DAYS]
    column = drafted([*german, "31.12.9999", "31.12.9999", "01.01.1900", "01.01.1900"])
    assert (column["type"], column["format"]) == ("date", "%d.%m.%Y")
    assert column["missing_tokens"] == ["01.01.1900", "31.12.9999"]
    assert drafted([*DAYS, "-9"])["missing_tokens"] == ["-9"]
    assert drafted(["yes", "no", "k.A."] * 5) == {"type": "boolean", "missing_tokens": ["k.A."]}
    assert drafted(["yes", "no", "-9"] * 5) == {"type": "boolean", "missing_tokens": ["-9"]}
    assert drafted(["0", "1", "9"] * 5) == {"type": "boolean", "missing_tokens": ["9"]}


def test_a_word_for_a_missing_value_may_be_a_category() -> None:
    assert drafted(["surgery", "medicine", "unknown"] * 5) == {"type": "categorical", "categories": ["?"]}


def test_common_texts_are_still_listed_once_for_all_columns() -> None:
    table = {"age": [*AGES, "N/A"], "day": [*DAYS, "-"]}
    columns = drafted_columns(table)
    draft = tomllib.loads(draft_schema(columns, tokens=has_tokens(table, columns)))
    assert draft["missing_tokens"] == list(TOKENS)
    assert not any("missing_tokens" in column for column in draft["columns"].values())
    assert drafted([*AGES, "N/A", "k.A."])["missing_tokens"] == ["N/A", "k.A."]  # a column's own list is the whole list
    notes = [f"- no pain on day {row}" for row in range(30)] + ["-"]
    assert not has_tokens({"note": notes}, drafted_columns({"note": notes}))


@pytest.mark.parametrize(("cells", "kind"), [(AGES, "numeric"), (DAYS, "date")])
def test_cells_of_no_common_code_do_not_change_the_type_and_are_not_copied(cells: list[str], kind: str) -> None:
    codes = ["-999", "-999"] if kind == "numeric" else ["9999-12-31", "9999-12-31"]
    [own] = drafted_columns({"column": [*cells, *codes, SECRET, f"<{SECRET}"]}).values()
    assert own.fields["type"] == kind
    assert own.fields["missing_tokens"] == codes[:1]
    assert "2 of 204 cells do not fit" in own.remark
    assert SECRET not in draft_schema({"column": own}) + own.remark


@pytest.mark.parametrize("cells", [["", "", ""], ["NA", "", "?"], ["k.A."] * 9, ["k.A.", "", "N/A"]])
def test_a_column_without_a_value_is_ignored(cells: list[str]) -> None:
    assert drafted(cells) == {"type": "ignore"}
    [own] = drafted_columns({"column": cells}).values()
    assert own.remark == "no cell holds a value; the draft ignores it."


def test_a_table_without_records_is_drafted_for_its_names() -> None:
    assert drafted([]) == {"type": "categorical", "categories": ["?"]}


@pytest.mark.parametrize(
    "cells",
    [
        [f"has had a cough for {days} days" for days in range(200)],
        [f"Anna Muster{row}" for row in range(200)],
        ["see the letter", "no known allergies", "pain in the arm"],
    ],
)
def test_free_text_and_mostly_distinct_texts_are_ignored_until_one_word_is_changed(cells: list[str]) -> None:
    columns = drafted_columns({"note": cells})
    assert columns["note"].remark
    text = draft_schema(columns)
    assert tomllib.loads(text)["columns"]["note"] == {"type": "ignore"}
    edited = tomllib.loads(text.replace('type = "ignore"', 'type = "text"'))
    assert edited["columns"]["note"] == {"type": "text"}


def test_few_long_texts_that_repeat_are_categories() -> None:
    cells = ["referred by a physician", "came by ambulance", "came on their own"] * 50
    assert drafted(cells) == {"type": "categorical", "categories": ["?"]}


def test_columns_called_like_case_numbers_are_identifiers_in_german_too() -> None:
    assert [drafted(AGES, name)["type"] for name in ("Fallnr", "Patienten-ID", "PatNr")] == ["identifier"] * 3


def test_words_that_are_mostly_distinct_are_ignored_and_dates_are_not() -> None:
    assert drafted([f"F{row}x" for row in range(100)] + ["F1x", "F2x"])["type"] == "ignore"
    assert drafted([f"F{row % 9}x" for row in range(100)])["type"] == "categorical"
    assert drafted([f"{1960 + row}-05-01" for row in range(40)])["type"] == "date"


def test_dates_with_gaps_and_notes_are_not_taken_for_identifiers_that_repeat() -> None:
    assert repeating_identifiers({"note": [f"a cough for {row // 2} days" for row in range(100)]}) == []
    assert repeating_identifiers({"admitted": [*DAYS, "?", "unbekannt"]}) == []


CELLS = st.one_of(
    st.sampled_from(["k.A.", "-999", "9999", "", "1", "2.5", "2023-05-01", "yes", "no"]),
    st.integers(-10_000, 10_000).map(str),
    st.text(st.characters(codec="utf-8"), max_size=8),
)


@examples(200)
@given(st.dictionaries(st.sampled_from("abc"), st.lists(CELLS, min_size=1, max_size=40), min_size=1))
def test_a_draft_copies_no_value_but_those_of_public_lists(table: Table) -> None:
    columns = drafted_columns(table)
    text = draft_schema(columns, tokens=has_tokens(table, columns))
    assert list(tomllib.loads(text)["columns"]) == list(table)
    for own in columns.values():
        for token in own.fields.pop("missing_tokens", ()):
            is_word = token in TOKENS or token_texts(TextCells([token]))
            assert is_word or token in DATES or float(token) in {*NUMBERS, 7.0, 8.0, 9.0}
        known = {"?", "numeric", "categorical", "boolean", "date", "identifier", "ignore"}
        said = {str(value) for value in own.fields.values()} - known - {"['?']"}
        assert all(value.startswith("%") for value in said)  # a date's format


def test_codes_beyond_bounds_are_common_numbers_or_repeat_far_out() -> None:
    ages = np.array([20.0, 50.0, 79.0])
    for codes, others in [
        ([-999.0], []),
        ([-999.0], [85.0, 86.0, 87.0]),
        ([-9.0, -9.0, -8.0, -8.0], [-3.5]),
        ([99.0] * 5, [81.0, 82.0]),
        ([0.0, 0.0], []),
        ([4711.0] * 10, [81.0] * 10),
    ]:
        assert beyond_bounds(np.array([*ages, *codes, *others]), 10, 80) == sorted(set(codes))
    for others in (
        [99.0, 81.0, 82.0, 83.0],
        [0.0],
        [-9.0],
        [99.0],
        [4711.0] * 9,
        [4711.0] * 10 + [4712.0] * 10 + [4713.0],
        [-3.0],
    ):
        assert beyond_bounds(np.array([*ages, *others]), 10, 80) == []
    assert beyond_bounds(np.array([]), 10, 80) == []
    assert outlying(np.array([])) == []


def test_a_line_of_codes_reads_back_as_the_same_codes() -> None:
    tokens = ["k.A.", "-999", 'a "quoted" one', "back\\slash", "ü, ]"]
    assert tomllib.loads(token_line(tokens)) == {"missing_tokens": tokens}
