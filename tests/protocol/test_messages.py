"""Messages: exact on the wire, and nothing but a MessageError from bytes that anybody may have written."""

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ringfence.errors import MessageError
from ringfence.protocol import Batch, NoisyUpdate, Refusal, RefusalReason, RoundRequest, pack, parse_answer, unpack
from ringfence.protocol.documents.messages import SIZE_LIMIT

PLAN = "0123456789abcdef" * 4

Reader = Callable[[bytes], object]
READERS: list[Reader] = [RoundRequest.from_bytes, NoisyUpdate.from_bytes, Refusal.from_bytes, parse_answer]

REQUEST = RoundRequest.at(PLAN, 3, np.array([1.0, -2.5]))
UPDATE = NoisyUpdate(plan=PLAN, round=3, silo="north", vector=pack(np.array([0.5, 7.0])))
REFUSAL = Refusal(plan=PLAN, round=3, silo="north", reason=RefusalReason.BUDGET)

AnyMessage = RoundRequest | NoisyUpdate | Refusal
MESSAGES: list[tuple[AnyMessage, Reader]] = [
    (REQUEST, RoundRequest.from_bytes),
    (UPDATE, NoisyUpdate.from_bytes),
    (UPDATE, parse_answer),
    (REFUSAL, Refusal.from_bytes),
    (REFUSAL, parse_answer),
]
every_message = pytest.mark.parametrize(
    ("message", "read"), MESSAGES, ids=lambda value: getattr(value, "kind", None) or value.__qualname__
)
every_reader = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__qualname__)


def fields(message: AnyMessage, **changes: Any) -> bytes:
    return json.dumps({**json.loads(message.to_bytes()), **changes}).encode()


def refusal(read: Reader, content: bytes) -> str:
    with pytest.raises(MessageError) as caught:
        read(content)
    sentence = str(caught.value)
    assert len(sentence) < 400
    assert "\n" not in sentence
    return sentence


# On the wire


@every_message
def test_a_message_survives_the_wire_byte_for_byte(message: AnyMessage, read: Reader) -> None:
    again = read(message.to_bytes())
    assert again == message
    assert isinstance(again, type(message))
    assert again.to_bytes() == message.to_bytes()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(width=64), min_size=1, max_size=20), st.integers(0, 2**53))
def test_numbers_survive_the_wire_bit_for_bit(numbers: list[float], round: int) -> None:
    request = RoundRequest.at(PLAN, round, np.array(numbers))
    again = RoundRequest.from_bytes(request.to_bytes())
    assert again.round == round
    assert unpack(again.argument).tobytes() == np.array(numbers).tobytes()
    assert again.to_bytes() == request.to_bytes()


def test_a_vector_is_little_endian_base64_whatever_the_array_looked_like() -> None:
    numbers = [1.0, -2.5, 1e-300]
    expected = base64.b64encode(struct.pack("<3d", *numbers)).decode()
    assert pack(np.array(numbers)) == expected
    assert pack(np.array(numbers, dtype=">f8").view()) == expected
    assert pack(np.repeat(numbers, 2)[::2]) == expected
    assert unpack(expected).dtype == np.float64
    np.testing.assert_array_equal(unpack(expected), numbers)


def test_an_unpacked_vector_can_be_computed_with_in_place() -> None:
    vector = unpack(pack(np.ones(2)))
    vector += 1.0
    np.testing.assert_array_equal(vector, [2.0, 2.0])


def test_equal_numbers_have_only_one_spelling() -> None:
    # The last character of the base64 of 8 bytes carries two bits that decoding drops.
    assert base64.b64decode("AAAAAAAAAAB=") == base64.b64decode("AAAAAAAAAAA=") == bytes(8)
    assert RoundRequest.from_bytes(fields(REQUEST, argument="AAAAAAAAAAA="))
    refusal(RoundRequest.from_bytes, fields(REQUEST, argument="AAAAAAAAAAB="))


# Reasons


@pytest.mark.parametrize("reason", list(RefusalReason))
def test_every_reason_survives_the_wire_and_explains_itself_in_a_sentence(reason: RefusalReason) -> None:
    sent = Refusal(plan=PLAN, round=0, silo="north", reason=reason)
    received = parse_answer(sent.to_bytes())
    assert isinstance(received, Refusal)
    assert received.reason is reason
    assert reason.explanation.endswith(".")


def test_only_reasons_that_no_later_round_can_cure_are_final() -> None:
    assert {reason for reason in RefusalReason if reason.is_final} == {
        RefusalReason.NOT_APPROVED,
        RefusalReason.REVOKED,
        RefusalReason.BUDGET,
        RefusalReason.FORGOTTEN,
    }


# What is refused


@pytest.mark.parametrize(("message", "read"), [(REQUEST, RoundRequest.from_bytes), (UPDATE, parse_answer)])
def test_a_message_longer_than_the_limit_is_not_read(message: AnyMessage, read: Reader) -> None:
    content = message.to_bytes()
    padded = content + b" " * (SIZE_LIMIT - len(content))
    assert read(padded) == message
    assert str(SIZE_LIMIT) in refusal(read, padded + b" ")


@pytest.mark.parametrize(
    "vector",
    [
        *("", "=", "é" * 12, "\x00" * 12, None, 1.0, [1.0, 2.0], {"data": "AAAAAAAAAAA="}),
        *("AAAAAAAAAAA", "AAAAAAAAAAA==", "AAAAAAAAAAA=" * 2),  # padding missing, or too much
        *("AAAAAAAAAA==", "AAAAAAAAAAAA", pack(np.ones(4))[:-4]),  # 7, 9 and 29 bytes
        *("AAAA AAAAAAA=", "AAAA\nAAAAAAA=", "AAAAAAAAAAA=\n", "-_AAAAAAAAA="),
    ],
    ids=repr,
)
def test_a_vector_that_is_not_whole_floats_in_base64_is_refused(vector: Any) -> None:
    if vector != "":  # a query about no model comes without an argument
        assert "argument" in refusal(RoundRequest.from_bytes, fields(REQUEST, argument=vector))
    assert "vector" in refusal(parse_answer, fields(UPDATE, vector=vector))


@every_message
def test_a_field_too_many_or_too_few_is_refused(message: AnyMessage, read: Reader) -> None:
    assert "not permitted" in refusal(read, fields(message, sigma=0.0))
    content = json.loads(message.to_bytes())
    for name in content:
        if name == "kind" and read is not parse_answer:
            continue  # the reader's own kind, by default
        rest = {key: value for key, value in content.items() if key != name}
        assert name in refusal(read, json.dumps(rest).encode())


@every_message
@pytest.mark.parametrize(
    "plan", ["", "0" * 63, "0" * 65, "G" * 64, PLAN.upper(), PLAN + "\n", "\n" + PLAN, 0, None], ids=repr
)
def test_a_digest_that_is_not_64_hexadecimal_digits_is_refused(message: AnyMessage, read: Reader, plan: Any) -> None:
    assert "plan" in refusal(read, fields(message, plan=plan))


@every_message
@pytest.mark.parametrize("round", [-1, 2**53 + 1, 10**30, 10**4000, 1.0, 0.5, "1", True, None, [1]], ids=type)
def test_a_round_that_is_not_a_natural_number_of_moderate_size_is_refused(
    message: AnyMessage, read: Reader, round: Any
) -> None:
    assert "round" in refusal(read, fields(message, round=round))


@pytest.mark.parametrize("silo", ["", "a/b", "a\nb", "a\x00", "a" * 201, "\x7f", 3, None], ids=repr)
def test_an_answer_with_an_impossible_silo_name_is_refused(silo: Any) -> None:
    for message in (UPDATE, REFUSAL):
        assert "silo" in refusal(parse_answer, fields(message, silo=silo))


def test_a_refusal_for_a_reason_that_does_not_exist_is_refused() -> None:
    for reason in ("because", "", "BUDGET", None, 3):
        assert "reason" in refusal(parse_answer, fields(REFUSAL, reason=reason))


def test_messages_of_the_wrong_kind_are_refused() -> None:
    for message, own in ((REQUEST, READERS[0]), (UPDATE, READERS[1]), (REFUSAL, READERS[2])):
        for read in READERS[:3]:
            if read is not own:
                refusal(read, message.to_bytes())
    refusal(parse_answer, REQUEST.to_bytes())
    for read in READERS:
        refusal(read, fields(UPDATE, kind="model"))


def test_a_silo_that_builds_an_impossible_message_is_stopped_as_well() -> None:
    with pytest.raises(ValidationError):
        NoisyUpdate(plan=PLAN, round=-1, silo="north", vector=pack(np.ones(1)))
    with pytest.raises(ValidationError):
        NoisyUpdate(plan=PLAN, round=0, silo="north", vector=pack(np.zeros(0)))


@every_reader
def test_a_message_of_a_later_format_is_refused_with_what_to_do(read: Reader) -> None:
    for message in (REQUEST, UPDATE, REFUSAL):
        sentence = refusal(read, fields(message, format=2))
        assert "has format 2, and this version of Ringfence reads formats up to 1: install a newer version" in sentence


def test_a_batch_is_canonical_bytes_and_nothing_of_it_is_quoted() -> None:
    batch = Batch(plan=PLAN, round=3, silos=2, messages="c2VjcmV0")
    assert Batch.from_bytes(batch.to_bytes()) == batch
    for content in (batch.to_bytes()[:-1], batch.to_bytes().replace(b"c2VjcmV0", b"c2VjcmV="), b"secret"):
        sentence = refusal(Batch.from_bytes, content)
        assert "secret" not in sentence
        assert "c2VjcmV" not in sentence


# Hostile bytes


@every_reader
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b"0", b"{", b"\x00", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"NaN", b"[" * 100_000),
        *(b'{"kind":"update","kind":"refusal"}', b'{"kind":"\\ud800"}', b'{"kind":["update"]}'),
        b'{"kind":' * 100_000,
        b'{"kind":"update","plan":' + b"[" * 100_000,
        b'{"kind":"update","plan":' + b"[" * 150 + b"]" * 150 + b"}",
    ],
    ids=lambda content: repr(content[:30]),
)
def test_bytes_that_are_no_message_are_refused(read: Reader, content: bytes) -> None:
    refusal(read, content)


HOSTILE = "EVIL\nTEXT" + "!" * 1000


@pytest.mark.parametrize(
    "changes",
    [{"kind": HOSTILE}, {HOSTILE: 1}, {"plan": HOSTILE}, {"silo": HOSTILE}, {"vector": HOSTILE}, {"reason": HOSTILE}],
    ids=lambda changes: next(iter(changes))[:4],
)
@every_reader
def test_the_words_of_a_refusal_quote_nothing_of_the_message(read: Reader, changes: dict[str, Any]) -> None:
    """Otherwise a stranger writes into our logs: "a reason that quotes nothing"."""
    for message in (REQUEST, UPDATE, REFUSAL):
        assert "EVIL" not in refusal(read, fields(message, **changes))
