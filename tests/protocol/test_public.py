"""Public documents: strict, named by their own bytes, and refused in one sentence where a later version wrote them."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import ringfence
from ringfence.errors import MessageError, PlanError
from ringfence.protocol import Document, Public
from ringfence.protocol.public import canonical_json, format_of


class Note(Document):
    """A document of format 3."""

    newest_format: ClassVar[int] = 3

    format: Literal[3] = 3
    text: str = ""
    numbers: tuple[float, ...] = ()
    count: int = Field(default=0, ge=0)


def read(content: bytes, **options: Any) -> Note:
    return Note.parse(content, error=MessageError, **options)


def documents(kind: type[Public] = Public) -> Iterator[type[Public]]:
    for each in kind.__subclasses__():
        yield each
        yield from documents(each)


def test_what_may_be_none_is_left_out_and_may_be_missing() -> None:
    for module in pkgutil.walk_packages(ringfence.__path__, "ringfence."):
        if module.name.split(".")[1] in ("estimates", "evidence", "model", "protocol", "server", "silo"):
            importlib.import_module(module.name)
    found = set(documents())
    assert len(found) > 50
    for kind in found:
        for name, field in kind.model_fields.items():
            if type(None) in get_args(field.annotation):
                assert field.default is None, f"{kind.__name__}.{name}"
                assert not field.is_required(), f"{kind.__name__}.{name}"


# Names


def test_a_document_that_is_made_has_its_canonical_bytes() -> None:
    note = Note(text="a", numbers=(1.0, -0.0))
    assert note.content == b'{"count":0,"format":3,"numbers":[1.0,0.0],"text":"a"}'
    assert read(note.content) == note
    assert read(note.content).digest() == note.digest()


NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_canonical_json_is_one_line_that_reads_back_as_it_was_and_is_written_the_same_again(value: Any) -> None:
    content = canonical_json(value)
    assert json.loads(content) == value
    assert canonical_json(json.loads(content)) == content
    assert b"\n" not in content
    assert content.isascii()


def test_numbers_that_json_cannot_write_are_not_written() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            canonical_json({"a": [value]})


# Formats


UNSTATED = [
    *(b'{"format":"7"}', b'{"format":true}', b'{"format":7.0}', b'{"format":null}', b'{"format":[7]}'),
    *(b'{"inner":{"format":7}}', b"{}", b"[]", b"", b"{", b"\xff", b"[" * 100_000),
]


def test_the_format_is_the_number_that_a_document_states_and_1_where_it_states_none() -> None:
    for stated in (1, 7, -1):
        assert format_of(b'{"format":%d,"more":{}}' % stated) == stated
    assert {content[:24]: format_of(content) for content in UNSTATED} == {content[:24]: 1 for content in UNSTATED}


def test_a_later_format_is_refused_with_what_to_do_whatever_else_the_document_says() -> None:
    for rest in (b"", b',"text":7', b',"surprise":1', b',"numbers":[]'):
        with pytest.raises(MessageError) as refused:
            read(b'{"format":4' + rest + b"}")
        assert str(refused.value) == (
            "This Note has format 4, and this version of Ringfence reads formats up to 3: install a newer version of "
            "Ringfence to read it."
        )


def test_an_earlier_format_or_none_is_not_taken_for_the_newest() -> None:
    for content in (b'{"format":2}', b'{"format":1}', b'{"format":"3"}', b'{"format":3.5}'):
        with pytest.raises(MessageError, match="format"):
            read(content)


# Strictness


WRONG = [b'"surprise":1', b'"text":1', b'"text":"\\ud800"', b'"text":"\xff"']
WRONG += [b'"count":' + wrong for wrong in (b"1.0", b"true", b'"1"')]
WRONG += [b'"numbers":[' + wrong + b"]" for wrong in (b'"1"', b"NaN", b"1e999")]


@pytest.mark.parametrize(
    "content",
    [*(b'{"format":3,' + field + b"}" for field in WRONG), b'\xef\xbb\xbf{"format":3}', b'{"format":3} {}'],
    ids=repr,
)
def test_whatever_a_document_does_not_have_is_refused(content: bytes) -> None:
    with pytest.raises(MessageError, match="This is not a valid Note: "):
        read(content)


def test_a_document_longer_than_the_limit_is_not_read() -> None:
    content = b'{"format":3,"text":"a"}'
    assert read(content, limit=len(content)).text == "a"
    with pytest.raises(MessageError, match="23 bytes, more than the 22 allowed; it was not read"):
        read(content, limit=len(content) - 1)


class Box(Public):
    """A document that holds others."""

    notes: dict[str, Note]


HOSTILE = "EVIL\nTEXT" + "!" * 1000


def test_a_refusal_is_one_short_line_that_names_the_place_and_not_the_value() -> None:
    content = json.dumps({"notes": {"a": {"format": 3, "count": -7_654_321}}}).encode()
    with pytest.raises(PlanError) as refused:
        Box.parse(content, error=PlanError)
    assert str(refused.value) == ("This is not a valid Box: notes.a.count: Input should be greater than or equal to 0.")
    for hostile in ({"notes": {HOSTILE: 1}}, {HOSTILE: 1}, {"notes": {"a": {HOSTILE: 1}}}):
        with pytest.raises(PlanError) as refused:
            Box.parse(json.dumps(hostile).encode(), error=PlanError)
        assert len(str(refused.value)) < 600
        assert "\n" not in str(refused.value)


def test_a_refusal_says_how_many_more_problems_there_are() -> None:
    with pytest.raises(MessageError, match=r"\(and 2 more\)"):
        read(b'{"format":3,"text":1,"count":-1,"surprise":0}')
