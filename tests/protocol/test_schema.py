"""The public schema: what it refuses, in which words, and a draft that gives nothing of a file away."""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringfence.errors import SchemaError
from ringfence.protocol import Schema, load_schema, parse_schema
from ringfence.protocol.schema.draft import DraftedColumn, draft_schema, drafted_columns, repeating_identifiers
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
NO_TABLES: list[Any] = [None, [], {}, {"age": 3, "label": LABEL}]


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
        *(({"columns": columns}, "columns") for columns in NO_TABLES),
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


# Patterns and defaults: one line for many columns


NUMBER: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 1}
ILL: dict[str, Any] = {"type": "boolean"}


def from_file(content: dict[str, Any], header: list[str] | None = None) -> Schema:
    return parse_schema(content, target="y", header=None if header is None else lambda: header)


def test_five_hundred_like_columns_are_one_line_and_the_plan_names_each() -> None:
    written = from_file({"columns": {"gene_{1..500}": NUMBER, "y": ILL}})
    by_table = from_file({"columns": {"gene_*": NUMBER, "y": ILL}}, ["y", *(f"gene_{n}" for n in range(1, 501)), "id"])
    by_hand = from_file({"columns": {**{f"gene_{n}": NUMBER for n in range(1, 501)}, "y": ILL}})
    assert written.canonical() == by_table.canonical() == by_hand.canonical()


def test_ranges_keep_leading_zeros_and_may_be_several() -> None:
    names = set(from_file({"columns": {"w{08..10}_{1..2}": NUMBER, "y": ILL}}).features)
    assert names == {"w08_1", "w08_2", "w09_1", "w09_2", "w10_1", "w10_2"}


def test_a_column_s_own_name_comes_before_a_pattern() -> None:
    header = ["gene_1", "gene_2", "y"]
    named = from_file({"columns": {"gene_*": NUMBER, "gene_2": {"type": "ignore"}, "y": ILL}}, header)
    assert list(named.features) == ["gene_1"]


def test_a_pattern_of_many_stars_is_matched_without_backtracking() -> None:
    """Trying every way to divide the name would take longer than anybody waits."""
    header = ["y", "a" * 2_000 + "c", "a" * 2_000 + "bc"]
    pattern = "*a" * 12 + "*bc"
    assert list(from_file({"columns": {pattern: NUMBER, "y": ILL}}, header).features) == header[2:]


@examples(400)
@given(st.text("ab*", max_size=6).map(lambda text: f"*{text}"), st.text("ab\n", min_size=1, max_size=7))
def test_a_star_stands_for_any_text(pattern: str, name: str) -> None:
    found = {"columns": {pattern: NUMBER, "y": ILL}}
    if re.fullmatch(pattern.replace("*", ".*"), name, re.DOTALL):
        assert list(from_file(found, ["y", name]).features) == [name]
    else:
        with pytest.raises(SchemaError, match="no column matches"):
            from_file(found, ["y", name])


def test_a_name_that_looks_like_a_pattern_is_a_name_where_a_table_has_it() -> None:
    assert list(from_file({"columns": {"dose*": NUMBER, "y": ILL}}, ["dose*", "dose2", "y"]).features) == ["dose*"]
    assert list(from_file({"columns": {"age [years]?": NUMBER, "y": ILL}}).features) == ["age [years]?"]


@pytest.mark.parametrize(
    ("patterns", "header", "words"),
    [
        (["gene_*"], None, "give the numbers, as in gene_{1..500}"),
        (["gen_*"], ["gene_1", "y"], "no column matches the pattern"),
        (["gene_*", "*_1"], ["gene_1", "y"], "'gene_1' matches two patterns"),
        (["g{1..999999}_{1..9}"], None, "more than 100000 columns"),
    ],
)
def test_a_pattern_that_cannot_be_written_out_says_why(
    patterns: list[str], header: list[str] | None, words: str
) -> None:
    with pytest.raises(SchemaError, match=re.escape(words)):
        from_file({"columns": {**dict.fromkeys(patterns, NUMBER), "y": ILL}}, header)


def test_defaults_fill_in_what_a_column_of_that_type_does_not_say() -> None:
    content = {
        "defaults": {"numeric": {"lower": 0, "upper": 9, "missing": 3}},
        "missing_tokens": ["NA", -9],
        "columns": {
            "a": {"type": "numeric"},
            "b": {"type": "numeric", "upper": 5, "missing_tokens": ["?!"]},
            "y": ILL,
            "z": {"type": "ignore"},
        },
    }
    by_hand = {
        "columns": {
            "a": {"type": "numeric", "lower": 0, "upper": 9, "missing": 3, "missing_tokens": ["NA", "-9"]},
            "b": {"type": "numeric", "lower": 0, "upper": 5, "missing": 3, "missing_tokens": ["?!"]},
            "y": {"type": "boolean", "missing_tokens": ["NA", "-9"]},
            "z": {"type": "ignore"},
        }
    }
    assert from_file(content).canonical() == from_file(by_hand).canonical()
    for defaults, words in [({"number": {}}, "`defaults.number` is not a type"), (3, "a table for each type")]:
        with pytest.raises(SchemaError, match=words):
            from_file({**content, "defaults": defaults})


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


def test_a_short_column_is_numeric_only_if_every_filled_cell_is_a_finite_number() -> None:
    table = {"a": ["1", "", "-2.5e3"], "b": ["1", "x", "3"], "c": ["", "", ""], "d": ["1", "inf"], "e": ["-nan", "1"]}
    types = [drafted.fields["type"] for drafted in drafted_columns(table).values()]
    assert types == ["numeric", "categorical", "ignore", "categorical", "categorical"]


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
    columns = tomllib.loads(draft_schema({name: DraftedColumn({"type": kind}) for name, kind in types.items()}))[
        "columns"
    ]
    assert {name: column["type"] for name, column in columns.items()} == types
