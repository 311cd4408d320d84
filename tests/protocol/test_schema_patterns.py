"""What a schema file says in one line for many columns."""

from typing import Any

import pytest

from ringfence.errors import SchemaError
from ringfence.protocol import Schema, parse_schema

NUMBER: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 1}
LABEL: dict[str, Any] = {"type": "boolean"}


def schema(content: dict[str, Any], header: list[str] | None = None) -> Schema:
    return parse_schema(content, target="y", header=None if header is None else lambda: header)


def refusal(content: dict[str, Any], header: list[str] | None = None) -> str:
    with pytest.raises(SchemaError) as caught:
        schema(content, header)
    return str(caught.value)


def test_five_hundred_like_columns_are_one_line_and_the_plan_names_each() -> None:
    written = schema({"columns": {"gene_{1..500}": NUMBER, "y": LABEL}})
    by_table = schema({"columns": {"gene_*": NUMBER, "y": LABEL}}, ["y", *(f"gene_{n}" for n in range(1, 501)), "id"])
    by_hand = schema({"columns": {**{f"gene_{n}": NUMBER for n in range(1, 501)}, "y": LABEL}})
    assert written.canonical() == by_table.canonical() == by_hand.canonical()


def test_ranges_keep_leading_zeros_and_may_be_several() -> None:
    names = set(schema({"columns": {"w{08..10}_{1..2}": NUMBER, "y": LABEL}}).features)
    assert names == {"w08_1", "w08_2", "w09_1", "w09_2", "w10_1", "w10_2"}


def test_a_column_s_own_name_comes_before_a_pattern() -> None:
    header = ["gene_1", "gene_2", "y"]
    named = schema({"columns": {"gene_*": NUMBER, "gene_2": {"type": "ignore"}, "y": LABEL}}, header)
    assert list(named.features) == ["gene_1"]


def test_a_name_that_looks_like_a_pattern_is_a_name_where_a_table_has_it() -> None:
    assert list(schema({"columns": {"dose*": NUMBER, "y": LABEL}}, ["dose*", "dose2", "y"]).features) == ["dose*"]
    assert list(schema({"columns": {"age [years]?": NUMBER, "y": LABEL}}).features) == ["age [years]?"]


def test_a_pattern_that_cannot_be_written_out_says_why() -> None:
    assert "give the numbers, as in gene_{1..500}" in refusal({"columns": {"gene_*": NUMBER, "y": LABEL}})
    assert "no column matches the pattern" in refusal({"columns": {"gen_*": NUMBER, "y": LABEL}}, ["gene_1", "y"])
    both = {"columns": {"gene_*": NUMBER, "*_1": NUMBER, "y": LABEL}}
    assert "'gene_1' matches two patterns" in refusal(both, ["gene_1", "y"])
    assert "more than 100000 columns" in refusal({"columns": {"g{1..999999}_{1..9}": NUMBER, "y": LABEL}})


def test_defaults_fill_in_what_a_column_of_that_type_does_not_say() -> None:
    content = {
        "defaults": {"numeric": {"lower": 0, "upper": 9, "missing": 3}},
        "missing_tokens": ["NA", -9],
        "columns": {
            "a": {"type": "numeric"},
            "b": {"type": "numeric", "upper": 5, "missing_tokens": ["?!"]},
            "y": LABEL,
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
    assert schema(content).canonical() == schema(by_hand).canonical()
    assert "`defaults.number` is not a type" in refusal({**content, "defaults": {"number": {}}})
    assert "must have a table for each type" in refusal({**content, "defaults": 3})
