"""The public schema: what it refuses, in which words, and a draft that gives nothing of a file away."""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringfence.errors import SchemaError
from ringfence.protocol import Schema, load_schema, parse_schema
from ringfence.protocol.schema.draft import draft_schema, drafted_columns, repeating_identifiers
from tests.generated import examples

AGE: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 100}
LABEL: dict[str, Any] = {"type": "categorical", "categories": ["no", "yes"]}


def schema(columns: dict[str, Any], target: str = "label", **settings: Any) -> Schema:
    return parse_schema({"columns": columns, **settings}, target=target)


COLUMNS: dict[str, Any] = {
    "town": {"type": "categorical", "categories": ["z", "a", "b"]},  # exactly one 1
    "name": {"type": "ignore"},
    "label": LABEL,
    "height": {"type": "numeric", "lower": 1, "upper": 2},  # at most 1
    "age": {**AGE, "center": 30, "scale": 10},  # at most 7
}


def test_the_longest_feature_vector_follows_from_bounds_categories_radius_and_intercept() -> None:
    assert schema(COLUMNS, intercept=False).feature_norm == pytest.approx(math.sqrt(49 + 1 + 1))
    assert schema(COLUMNS).feature_norm == pytest.approx(math.sqrt(49 + 1 + 1 + 1))
    assert schema(COLUMNS, radius=2.0).feature_norm == pytest.approx(math.sqrt(4 + 1))
    assert schema(COLUMNS, radius=2.0, intercept=False).feature_norm == pytest.approx(2.0)
    assert schema(COLUMNS, radius=50.0).feature_norm == pytest.approx(math.sqrt(49 + 1 + 1 + 1))
    assert schema(COLUMNS).target_bound == 1.0
    assert schema(COLUMNS, "age").target_bound == 7.0


def test_feature_names_follow_the_sorted_columns_and_end_with_the_intercept() -> None:
    names = ("age", "height", "town=z", "town=a", "town=b")
    assert schema(COLUMNS, intercept=False).feature_names == names
    for columns in (COLUMNS, dict(reversed(COLUMNS.items()))):
        assert schema(columns) == schema(COLUMNS)
        assert schema(columns).feature_names == (*names, "intercept")
    assert schema(COLUMNS).width == 6


def test_the_target_that_was_asked_for_is_never_silently_replaced_by_one_in_the_file() -> None:
    content = {"columns": {**COLUMNS, "other": LABEL}, "target": "other"}
    assert parse_schema(content, target="label").target == "label"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"columns": {"age": AGE}}, "'label' is not among the columns"),
        ({"columns": {"age": AGE, "label": {"type": "ignore"}}}, "'label' is ignored"),
        ({"columns": {"label": LABEL}}, "no feature column"),
        ({"columns": {"label": LABEL, "age": {"type": "ignore"}}}, "no feature column"),
        *(
            ({"columns": COLUMNS, name: value}, name)
            for name, value in [
                ("radius", 0),
                ("radius", -1.0),
                ("radius", math.inf),
                ("intercept", "?!"),
                ("colour", 1),
            ]
        ),
        *(({"columns": columns}, "columns") for columns in (None, [], {}, {"age": 3, "label": LABEL})),
        ({}, "columns"),
    ],
    ids=str,
)
def test_a_schema_that_makes_no_sense_is_refused_in_one_sentence(content: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(content, target="label")
    sentence = str(caught.value)
    assert sentence.startswith("In the schema, ")
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_a_schema_file_that_is_absent_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"absent\.toml could not be read"):
        load_schema(tmp_path / "absent.toml", "label")
    broken = tmp_path / "broken.toml"
    for content in (b"[columns", b"\xff\xfe"):
        broken.write_bytes(content)
        with pytest.raises(SchemaError, match=r"broken\.toml is not valid TOML"):
            load_schema(broken, "label")


# The draft


def draft_of(**table: list[str]) -> str:
    return draft_schema(drafted_columns(table))


def test_a_draft_names_columns_and_types_and_no_value_of_the_table() -> None:
    names, town, label = ["Quilliam", "Osterhaus"], ["Zwolle", "Deventer"], ["positive", "negative"]
    draft = draft_of(patient=names, age=["4711", "0815"], town=town, label=label)
    types = {"patient": "identifier", "age": "numeric", "town": "categorical", "label": "categorical"}
    assert {name: column["type"] for name, column in tomllib.loads(draft)["columns"].items()} == types
    assert not any(value in draft for value in [*names, *town, *label, "4711", "0815"])
    # Not even how many records there are, or which bounds they keep: other records of these types draft the same.
    assert draft == draft_of(patient=["x"] * 9, age=["-1.5e3"] * 9, town=["y"] * 9, label=["z"] * 9)


def test_a_draft_proposes_persons_by_a_column_s_name_and_decides_nothing() -> None:
    draft = draft_of(**{name: ["1"] for name in ["visit", "PatientID", "customer ids", "identity", "videos", "users"]})
    proposed = [line for line in draft.splitlines() if line.startswith("# person")]
    assert proposed == ['# person = "PatientID"', '# person = "customer ids"', '# person = "users"']
    assert "person" not in tomllib.loads(draft)
    assert tomllib.loads(draft.replace("# person", "person", 1))["person"] == "PatientID"
    assert '# person = "COLUMN"' in draft_of(age=["1"], label=["a"])


def test_identifiers_whose_values_repeat_are_found_and_categories_and_numbers_are_not() -> None:
    names = ["patient", "clinic_id", "row_id", "name", "code", "age", "town", "gaps", "day"]
    rows = [
        (n // 3, 7, n, f"n{n // 2}", f"c{n}", n // 2, f"t{n % 9}", "", f"2024-{1 + n % 12:02}-{1 + n % 28:02}")
        for n in range(300)
    ]
    columns = [list(map(str, cells)) for cells in zip(*rows, strict=True)]
    assert repeating_identifiers(dict(zip(names, columns, strict=True))) == ["patient", "name"]
    assert repeating_identifiers({name: [] for name in names}) == []


def test_a_column_is_numeric_only_if_every_filled_cell_is_a_finite_number() -> None:
    table = {"a": ["1", "", "-2.5e3"], "b": ["1", "x", "3"], "c": ["", "", ""], "d": ["1", "inf"], "e": ["-nan", "1"]}
    types = [drafted["type"] for drafted in drafted_columns(table).values()]
    assert types == ["numeric", *["categorical"] * 4]


def test_a_draft_is_refused_until_every_field_of_it_is_filled_in(tmp_path: Path) -> None:
    file, draft = tmp_path / "schema.toml", draft_of(age=["4711"], town=["Zwolle"], label=["positive"])
    steps = [
        ("lower", "age", 'lower = "?"', "lower = 0"),
        ("upper", "age", 'upper = "?"', "upper = 120"),
        ("categories", "town", 'categories = [\n    "?",\n]', 'categories = ["a", "b"]'),
        ("categories", "label", 'categories = [\n    "?",\n]', 'categories = ["no", "yes"]'),
    ]
    for field, column, before, after in steps:
        file.write_text(draft, encoding="utf-8")
        with pytest.raises(SchemaError, match=f"^In {file}, '{field}' of column '{column}' is not filled in"):
            load_schema(file, "label")
        draft = draft.replace(before, after, 1)
    file.write_text(draft, encoding="utf-8")
    assert load_schema(file, "label").feature_names == ("age", "town=a", "town=b", "intercept")


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@examples(200)
@given(st.dictionaries(NAMES, st.sampled_from(["numeric", "categorical"]), min_size=1, max_size=4))
@example({"age\n(years)": "numeric"})
def test_a_draft_is_well_formed_whatever_the_columns_are_called(types: dict[str, Any]) -> None:
    columns = tomllib.loads(draft_schema({name: {"type": kind} for name, kind in types.items()}))["columns"]
    assert {name: column["type"] for name, column in columns.items()} == types
