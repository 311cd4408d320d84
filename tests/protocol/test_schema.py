"""The public schema: what it refuses, in which words, and a draft that gives nothing of a file away."""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import SchemaError
from ringfence.protocol import Schema, load_schema, parse_schema
from ringfence.protocol.schema.draft import draft_schema, drafted_columns, repeating_identifiers
from ringfence.sources import read_table

AGE: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 100}
LABEL: dict[str, Any] = {"type": "categorical", "categories": ["no", "yes"]}


def schema(columns: dict[str, Any], target: str = "label", **settings: Any) -> Schema:
    return parse_schema({"columns": columns, **settings}, target=target)


def refusal(columns: dict[str, Any], target: str = "label", **settings: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        schema(columns, target, **settings)
    sentence = str(caught.value)
    assert sentence.startswith("In the schema, ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_the_longest_feature_vector_follows_from_bounds_categories_radius_and_intercept() -> None:
    columns = {
        "age": {**AGE, "center": 30, "scale": 10},  # at most 7
        "height": {"type": "numeric", "lower": 1, "upper": 2},  # at most 1
        "town": {"type": "categorical", "categories": ["a", "b", "c"]},  # exactly one 1
        "name": {"type": "ignore"},
        "label": LABEL,
    }
    assert schema(columns, intercept=False).feature_norm == pytest.approx(math.sqrt(49 + 1 + 1))
    assert schema(columns).feature_norm == pytest.approx(math.sqrt(49 + 1 + 1 + 1))
    assert schema(columns, radius=2.0).feature_norm == pytest.approx(math.sqrt(4 + 1))
    assert schema(columns, radius=2.0, intercept=False).feature_norm == pytest.approx(2.0)
    assert schema(columns, radius=50.0).feature_norm == pytest.approx(math.sqrt(49 + 1 + 1 + 1))


def test_feature_names_follow_the_sorted_columns_and_end_with_the_intercept() -> None:
    columns = {
        "town": {"type": "categorical", "categories": ["z", "a"]},
        "name": {"type": "ignore"},
        "label": LABEL,
        "age": AGE,
    }
    assert schema(columns).feature_names == ("age", "town=z", "town=a", "intercept")
    assert schema(columns, intercept=False).feature_names == ("age", "town=z", "town=a")
    assert schema(columns).width == 4
    shuffled = schema(dict(reversed(columns.items())))
    assert shuffled == schema(columns)
    assert shuffled.feature_names == schema(columns).feature_names


def test_the_target_bound_is_that_of_the_scaled_target() -> None:
    assert schema({"age": AGE, "label": LABEL}).target_bound == 1.0
    assert schema({"age": {**AGE, "center": 30, "scale": 10}, "label": LABEL}, "age").target_bound == 7.0


def test_the_target_that_was_asked_for_is_never_silently_replaced_by_one_in_the_file() -> None:
    content = {"columns": {"age": AGE, "label": LABEL, "other": LABEL}, "target": "other"}
    try:
        read = parse_schema(content, target="label")
    except SchemaError:
        return
    assert read.target == "label"


NUMERIC: list[tuple[dict[str, Any], str]] = [
    ({"lower": 5, "upper": 5}, "lower must be smaller than upper"),
    ({"lower": 6, "upper": 5}, "lower must be smaller than upper"),
    ({"lower": math.nan, "upper": 5}, "finite"),
    ({"lower": -math.inf, "upper": 5}, "finite"),
    ({"lower": 0, "upper": math.inf}, "finite"),
    ({"lower": -1e308, "upper": 1e308}, "too wide"),
    ({"lower": 0.0, "upper": 5e-324}, "too close"),
    ({"lower": 0, "upper": 5, "center": 6}, "center must lie between"),
    ({"lower": 0, "upper": 5, "missing": -1}, "missing must lie between"),
    ({"lower": 0, "upper": 5, "scale": 0}, "greater than 0"),
    ({"lower": 0, "upper": 5, "scale": -1}, "greater than 0"),
    ({"lower": 0, "upper": 5, "scale": 1e-7}, "scale is so small"),
    ({"lower": 0}, "`upper`, which is required: write the largest publicly"),
    ({"lower": 0, "upper": 5, "uper": 5}, "not permitted"),
    ({"lower": "low", "upper": 5}, "number"),
]
CATEGORICAL: list[tuple[dict[str, Any], str]] = [
    ({"categories": ["a"]}, "at least 2"),
    ({"categories": []}, "at least 2"),
    ({"categories": ["a", "b", "a"]}, "listed twice"),
    ({"categories": [1, "1"]}, "listed twice"),
    ({"categories": ["a", " b"]}, "spaces around it"),
    ({"categories": ["a", ""]}, "empty"),
    ({"categories": ["a", "b"], "missing": "c"}, "missing must be one of"),
    ({"categories": [True, False]}, 'quote them, as "true" or "false"'),
    ({}, "has no `categories`"),
]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"type": kind, **own}, words)
        for kind, table in (("numeric", NUMERIC), ("categorical", CATEGORICAL))
        for own, words in table
    ],
    ids=str,
)
def test_a_column_that_makes_no_sense_is_refused_by_name(column: dict[str, Any], words: str) -> None:
    sentence = refusal({"town": column, "label": LABEL})
    assert "town" in sentence
    assert words in sentence


def test_a_schema_without_its_target_or_without_features_is_refused() -> None:
    assert "'label' is not among the columns" in refusal({"age": AGE})
    assert "'label' is ignored" in refusal({"age": AGE, "label": {"type": "ignore"}})
    assert "no feature column" in refusal({"label": LABEL})
    assert "no feature column" in refusal({"label": LABEL, "age": {"type": "ignore"}})


@pytest.mark.parametrize(
    "settings",
    [{"radius": 0}, {"radius": -1.0}, {"radius": math.inf}, {"intercept": "perhaps"}, {"colour": 1}],
)
def test_a_schema_with_a_setting_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    assert next(iter(settings)) in refusal({"age": AGE, "label": LABEL}, **settings)


def test_a_schema_without_a_table_of_columns_is_refused() -> None:
    bad: list[Any] = [None, [], {}, {"age": 3, "label": LABEL}]
    contents: list[dict[str, Any]] = [{}, *({"columns": columns} for columns in bad)]
    for content in contents:
        with pytest.raises(SchemaError):
            parse_schema(content, target="label")


def test_a_schema_file_that_is_absent_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"absent\.toml could not be read"):
        load_schema(tmp_path / "absent.toml", "label")
    broken = tmp_path / "broken.toml"
    for content in (b"[columns", b"\xff\xfe"):
        broken.write_bytes(content)
        with pytest.raises(SchemaError, match=r"broken\.toml is not valid TOML"):
            load_schema(broken, "label")


# The draft


CSV = "patient,age,town,label\nQuilliam,4711,Zwolle,positive\nOsterhaus,0815,Deventer,negative\n"
VALUES = ("Quilliam", "Osterhaus", "4711", "0815", "Zwolle", "Deventer", "positive", "negative")


def draft_of(tmp_path: Path, content: str = CSV) -> str:
    data = tmp_path / "data.csv"
    data.write_text(content, encoding="utf-8")
    return draft_schema(drafted_columns(read_table(data)))


def test_a_draft_names_columns_and_types_and_no_value_of_the_file(tmp_path: Path) -> None:
    draft = draft_of(tmp_path)
    columns = tomllib.loads(draft)["columns"]
    types = {"patient": "identifier", "age": "numeric", "town": "categorical", "label": "categorical"}
    assert {name: column["type"] for name, column in columns.items()} == types
    for value in VALUES:
        assert value not in draft
    # Not even how many records there are, or which bounds they keep: other records of these types draft the same.
    assert draft == draft_of(tmp_path, "patient,age,town,label\n" + "x,-1.5e3,y,z\n" * 9)


def test_a_draft_proposes_persons_by_a_column_s_name_and_decides_nothing(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "visit,PatientID,customer ids,identity,videos,users\n1,1,1,1,1,1\n")
    proposed = [line for line in draft.splitlines() if line.startswith("# person")]
    assert proposed == ['# person = "PatientID"', '# person = "customer ids"', '# person = "users"']
    assert "person" not in tomllib.loads(draft)
    uncommented = tomllib.loads(draft.replace("# person", "person", 1))
    assert uncommented["person"] == "PatientID"
    assert '# person = "COLUMN"' in draft_of(tmp_path, "age,label\n1,a\n")


def test_identifiers_whose_values_repeat_are_found_and_categories_and_numbers_are_not(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    names = "patient,clinic_id,row_id,name,code,age,town,gaps,day"
    rows = [
        (n // 3, 7, n, f"n{n // 2}", f"c{n}", n // 2, f"t{n % 9}", "", f"2024-{1 + n % 12:02}-{1 + n % 28:02}")
        for n in range(300)
    ]
    data.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    assert repeating_identifiers(read_table(data)) == ["patient", "name"]
    data.write_text(f"{names}\n", encoding="utf-8")
    assert repeating_identifiers(read_table(data)) == []


def test_a_column_is_numeric_only_if_every_filled_cell_is_a_finite_number(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a,b,c,d,e\n1,1,,1,-nan\n,x,,inf,1\n-2.5e3,3,,2,2\n", encoding="utf-8")
    types = [drafted["type"] for drafted in drafted_columns(read_table(data)).values()]
    assert types == ["numeric", *["categorical"] * 4]


def test_a_draft_is_refused_until_every_field_of_it_is_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    draft = draft_of(tmp_path, "age,town,label\n4711,Zwolle,positive\n")
    steps = [
        ("lower", "age", 'lower = "?"', "lower = 0"),
        ("upper", "age", 'upper = "?"', "upper = 120"),
        ("categories", "town", 'categories = [\n    "?",\n]', 'categories = ["a", "b"]'),
        ("categories", "label", 'categories = [\n    "?",\n]', 'categories = ["no", "yes"]'),
    ]
    for field, column, before, after in steps:
        file.write_text(draft, encoding="utf-8")
        with pytest.raises(SchemaError) as caught:
            load_schema(file, "label")
        assert re.search(rf"'{field}' of column '{column}' is not filled in", str(caught.value))
        assert str(file) in str(caught.value)
        draft = draft.replace(before, after, 1)
    file.write_text(draft, encoding="utf-8")
    assert load_schema(file, "label").feature_names == ("age", "town=a", "town=b", "intercept")


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
        st.sampled_from(["numeric", "categorical"]),
        min_size=1,
        max_size=4,
    )
)
def test_a_draft_is_well_formed_whatever_the_columns_are_called(types: dict[str, Any]) -> None:
    columns = tomllib.loads(draft_schema({name: {"type": kind} for name, kind in types.items()}))["columns"]
    assert {name: column["type"] for name, column in columns.items()} == types


def test_a_draft_is_well_formed_when_a_header_has_a_line_break(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, '"age\n(years)",label\n1,a\n')
    assert list(tomllib.loads(draft)["columns"]) == ["age\n(years)", "label"]
