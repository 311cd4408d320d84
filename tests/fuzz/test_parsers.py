"""Bytes from outside are read or refused in one sentence: never another exception, whatever they are.

The choices are the same on every machine; RINGFENCE_EFFORT makes more of them (`tests.generated`).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import RecordsError
from tests.fuzz import parsers
from tests.fuzz.hostile import MARK, damaged, reads_or_refuses, rewritten
from tests.fuzz.parsers import Parser
from tests.generated import examples

PARSERS = parsers.everything()
JSON = parsers.messages() | parsers.documents()
JSON.pop("transcript")  # of several documents; "checked transcript" is one

every_parser = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


@every_parser
def test_what_a_parser_is_given_to_begin_with_is_read(parser: Parser) -> None:
    """Otherwise the tests below would damage what is refused anyway."""
    parser.read(parser.valid)


@every_parser
@examples(60)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused_in_a_sentence(parser: Parser, data: st.DataObject) -> None:
    reads_or_refuses(parser.read, data.draw(damaged(parser.valid)))


@pytest.mark.parametrize("parser", JSON.values(), ids=JSON)
@examples(60)
@given(data=st.data())
def test_any_value_in_any_place_of_a_document_is_read_or_refused_in_a_sentence(
    parser: Parser, data: st.DataObject
) -> None:
    reads_or_refuses(parser.read, data.draw(rewritten(parser.valid)))


@examples(150)
@given(data=st.data())
def test_a_damaged_table_is_refused_without_quoting_a_cell(data: st.DataObject) -> None:
    """The header may be damaged into a cell's place too: not even that is quoted."""
    parser = PARSERS["records"]
    content = data.draw(damaged(parsers.table([[MARK, MARK, MARK, MARK]] * 3)))
    sentence = ""
    try:
        parser.read(content)
    except RecordsError as refused:
        sentence = str(refused)
    assert MARK not in sentence
