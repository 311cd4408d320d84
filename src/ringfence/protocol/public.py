"""The base of every public document, and how its validation errors read."""

import base64
import binascii
import hashlib
import json
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ringfence.errors import RingfenceError


def _is_canonical_base64(text: str) -> str:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if base64.b64encode(content).decode() != text:
        raise ValueError("not in canonical base64")
    return text


Base64: TypeAlias = Annotated[str, AfterValidator(_is_canonical_base64)]
"""Bytes as text, written the one way in which equal bytes give equal text."""

Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal."""


class Public(BaseModel):
    """A frozen, strictly validated document that any party may read.

    Unknown fields, NaN and infinity are refused, so that a digest covers everything a document says.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def canonical(self) -> bytes:
        """Serialise so that equal documents have equal bytes: sorted keys, shortest floats, no white space."""
        content = _without_negative_zero(self.model_dump(mode="json"))
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def __copy__(self) -> Self:
        """Copy the fields alone: what was computed from them does not fit a changed copy."""
        copied = super().__copy__()
        for name in set(copied.__dict__) - set(type(self).model_fields):
            del copied.__dict__[name]
        return copied

    def digest(self) -> str:
        """Return the SHA-256 of the canonical bytes: the document's name in messages and ledgers."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @classmethod
    def parse(cls, content: bytes, *, error: type[RingfenceError], limit: int = 16 * 2**20, quote: bool = True) -> Self:
        """Read a document from bytes that anybody may have written; refuse with `error` and one sentence."""
        name = cls.__name__
        if len(content) > limit:
            raise error(f"This {name} has {len(content)} bytes, more than the {limit} allowed; it was not read.")
        try:
            return cls.model_validate_json(content)
        except ValidationError as refused:
            raise error(f"This is not a valid {name}: {explain(refused, quote=quote)}.") from None
        except RecursionError:
            raise error(f"This is not a valid {name}: it is nested too deeply.") from None


def _without_negative_zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_negative_zero(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_negative_zero(inner) for inner in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


def _shortened(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else text[:longest] + "..."


def explain(refused: ValidationError, *, quote: bool = True) -> str:
    """Name the first thing that is wrong, where it stands and how many more there are, but not its value."""
    problems = refused.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    kind, steps = first["type"], first["loc"]
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    if not quote and kind == "extra_forbidden":  # the field's name is the sender's
        steps, message = steps[:-1], "a field that is not permitted here"
    elif not quote and kind == "union_tag_invalid":  # pydantic quotes the tag
        message = "this is none of the kinds that are known here"
    place, message = ".".join(_shortened(str(step)) for step in steps), _shortened(message)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    text = f"{place}: {message}{more}" if place else f"{message}{more}"
    return "".join(character if character.isprintable() else "?" for character in text)
