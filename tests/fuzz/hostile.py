"""Bytes that somebody made to do harm: damaged ones, random ones, and bombs."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from ringfence.errors import RingfenceError, visible

MARK = "7.0625318e-3"
"""A cell that a test can find again if a message quotes it; a number, so that a column of numbers takes it."""


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Change valid bytes: overwrite, insert, cut out, double or cut off, a few times; or forget them altogether."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(changed)))
        end = min(len(changed), start + draw(st.integers(0, 40)))
        match draw(st.integers(0, 4)):
            case 0:
                changed[start:end] = draw(st.binary(min_size=end - start, max_size=end - start))
            case 1:
                changed[start:start] = draw(st.sampled_from(TOKENS) | st.binary(max_size=8))
            case 2:
                del changed[start:end]
            case 3:
                changed[start:start] = changed[start:end]
            case _:
                del changed[start:]
    return bytes(changed)


TOKENS = [
    *(b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"\n", b"\r", b"\x00", b"=", b".", b"#", b"'", b'"""'),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0.0", b"9" * 400, b"9" * 5000, b"0x" + b"f" * 2000, b"1_0"),
    *(b'"\\ud800"', b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", "\u202e\u0661".encode(), b"\x1b[31m", b"\x7f"),
]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=20)
    | st.sampled_from([0, -1, 2**53, 2**63, 10**30, 10**400, 5e-324, 1e-300, 1e300, 1.7e308, 1 - 1e-16, "", "0" * 64])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)


@st.composite
def rewritten(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace, leave out or add values anywhere in a JSON document, and leave it well-formed."""
    document = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        place, step = draw(st.sampled_from(_places(document)))
        match draw(st.integers(0, 4)):
            case 0:
                del place[step]
            case 1 if isinstance(place, dict):
                place[draw(st.text(max_size=5))] = draw(VALUES)
            case 1:
                place.append(draw(VALUES))
            case _:
                place[step] = draw(VALUES)
        if not _places(document):
            break
    return json.dumps(document).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container in a document with each of its keys or indices."""
    if not isinstance(value, dict | list):
        return []
    steps = list(value) if isinstance(value, dict) else range(len(value))
    return [place for step in steps for place in [(value, step), *_places(value[step])]]


def bombs() -> dict[str, bytes]:
    """Return small inputs that careless parsers need much for: each is under two megabytes."""
    return {
        "nothing": b"",
        "nested lists": b"[" * 500_000,
        "nested objects": b'{"a":' * 200_000,
        "nested and closed": b"[" * 150_000 + b"]" * 150_000,
        "nested below the parsers' limits": b'{"plan":' + b"[" * 190 + b"]" * 190 + b"}",
        "digits": b"9" * 1_000_000,
        "digits in a field": b'{"round":' + b"9" * 1_000_000 + b"}",
        "digits in the format": b'{"format":' + b"9" * 4000 + b"}",
        "an exponent": b'{"round":1e999999999}',
        "many fields": b"{" + b",".join(b'"%d":0' % number for number in range(100_000)) + b"}",
        "one field, often": b"{" + b",".join([b'"plan":""'] * 100_000) + b"}",
        "base64": b'{"kind":"request","round":0,"weights":"' + b"A" * 1_000_000 + b'"}',
        "escapes": b'"' + b"\\u0000" * 200_000 + b'"',
        "surrogates": b'"' + b"\\ud800" * 200_000 + b'"',
        "null bytes": bytes(1_000_000),
        "quotes": b'"' * 1_000_001,
        "escaped quotes": b'a = "' + b'\\"' * 500_000,
        "nested TOML lists": b"a = " + b"[" * 500_000,
        "nested TOML tables": b"a = " + b"{a = " * 200_000,
        "a TOML name of many parts": b".".join([b"a"] * 500_000) + b" = 1",
        "a TOML header of many parts": b"[" + b".".join([b"a"] * 500_000) + b"]",
        "many TOML names of some parts": (b".".join([b"a"] * 1000) + b".b%d = 1\n") * 900 % tuple(range(900)),
        "TOML digits": b"a = " + b"9" * 1_000_000,
        "TOML digits in the format": b"format = " + b"9" * 4000,
        "TOML hexadecimal digits in the format": b"format = 0x" + b"f" * 1_000_000,
        "TOML hexadecimal digits": b"a = 0x" + b"f" * 1_000_000,
        "many columns": b",".join(b"c%d" % number for number in range(200_000)) + b"\n",
        "many empty columns": b"," * 1_000_000,
        "one long cell": b"a,b,c,ill\n" + b"1" * 1_000_000 + b",0,0,no\n",
        "one long cell in many rows": b"a,b,c,ill\n" + b"1" * 130_000 + b",0,0,no\n" + b"0,0,0,no\n" * 100_000,
        "an open quote": b'a,b,c,ill\n"' + b"0,0,0,no\n" * 100_000,
        "many blank lines": b"a,b,c,ill\n" + b"\n" * 1_000_000,
        "many short rows": b"a,b,c,ill\n" + b"0\n" * 500_000,
    }


def reads_or_refuses(read: Callable[[bytes], object], content: bytes) -> None:
    """Read the bytes; a refusal must be one of ours, in one short line."""
    with suppress(RingfenceError):
        try:
            read(content)
        except RingfenceError as refused:
            check_sentence(str(refused))
            raise


def check_sentence(sentence: str) -> None:
    """A refusal may be printed: it is short, has no control characters and no traceback."""
    assert len(sentence) < 1500, sentence
    assert visible(sentence) == sentence
    assert "Traceback" not in sentence
