"""Base classes of public documents: digest, format number, canonical JSON, and readable validation errors.

`docs/compatibility.md` states the rules that hold for all documents, for ever.
"""

import base64
import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from ringfence.errors import RingfenceError, visible
from ringfence.storage.files import SIZE_LIMIT, require_known_format


def _is_canonical_base64(text: str) -> str:
    """Refuse a field of a public document that is not canonical base64."""
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("not base64") from None
    if base64.b64encode(content).decode() != text:
        raise ValueError("not in canonical base64")
    return text


Base64: TypeAlias = Annotated[str, AfterValidator(_is_canonical_base64)]
"""Bytes as canonical base64: equal bytes give equal text."""

Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal."""

SiloName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]


class Public(BaseModel):
    """A frozen, strictly validated document that any party may read.

    Unknown fields, NaN and infinity are refused, so that a digest covers everything a document says. Fields that are
    None are not written: a later version may add an optional field without changing the bytes of other documents.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    newest_format: ClassVar[int] = 1
    """The newest format that this version reads. A document without a `format` has format 1."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the document in IPython: `str` if it has one, else a line per field."""
        del cycle
        if type(self).__str__ is not BaseModel.__str__:
            printer.text(str(self))
            return
        values = {name: getattr(self, name) for name in type(self).model_fields}
        fields = [f"{name}={value!r}" for name, value in values.items() if value is not None]
        lines = [line if len(line) <= 100 else f"{line[:97]}..." for line in fields]
        printer.text("\n    ".join([f"{type(self).__name__}(", *lines]) + "\n)")

    @model_serializer(mode="wrap")
    def _without_none(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write a public document without its empty fields."""
        fields: dict[str, Any] = written(self)
        return {name: value for name, value in fields.items() if value is not None}

    def canonical(self) -> bytes:
        """Serialise so that equal public documents have equal bytes: sorted keys, shortest floats, no white space."""
        return canonical_json(self.model_dump(mode="json"))

    def __copy__(self) -> Self:
        """Copy a public document's fields without cached properties, which would not fit a changed copy."""
        copied = super().__copy__()
        for name in set(copied.__dict__) - set(type(self).model_fields):
            del copied.__dict__[name]
        return copied

    @classmethod
    def parse(
        cls,
        content: bytes,
        *,
        error: type[RingfenceError],
        limit: int = SIZE_LIMIT,
        quote: bool = True,
        source: str = "This",
    ) -> Self:
        """Read a document from untrusted bytes; refuse them with `error` and one sentence about their `source`."""
        name = cls.__name__
        if len(content) > limit:
            raise error(f"This {name} has {len(content)} bytes, more than the {limit} allowed; it was not read.")
        try:
            require_known_format(name, format_of(content), cls.newest_format, error)
            return cls._read(content)
        except ValidationError as refused:
            raise error(f"{source} is not a valid {name}: {explain(refused, quote=quote)}.") from None
        except RecursionError:
            raise error(f"{source} is not a valid {name}: it is nested too deeply.") from None

    @classmethod
    def _read(cls, content: bytes) -> Self:
        """Read a public document from JSON."""
        return cls.model_validate_json(content)


class Document(Public):
    """A public document with a name: the SHA-256 of the bytes that were approved, sent or signed.

    Those bytes are kept as received and never serialised again to compute the name, so that a document's name outlives
    the version that wrote it. A document made here has its canonical bytes.
    """

    @cached_property
    def content(self) -> bytes:
        """The document's own bytes."""
        return self.canonical()

    @cached_property
    def _digest(self) -> str:
        """The SHA-256 of a document's own bytes."""
        return hashlib.sha256(self.content).hexdigest()

    def digest(self) -> str:
        """Return the document's name in messages and ledgers; computed once, since a document never changes."""
        return self._digest

    @classmethod
    def _read(cls, content: bytes) -> Self:
        """Read a document, and keep the bytes that it was read from."""
        document = super()._read(content)
        document.__dict__["content"] = content
        return document


class _Formatted(BaseModel):
    """Reads a document's format and nothing else."""

    format: Any = 1


def format_of(content: bytes) -> int:
    """Return the format number that a document states; 1 if it states none, or is not a document."""
    try:
        stated = _Formatted.model_validate_json(content).format
    except ValidationError:
        return 1
    return stated if isinstance(stated, int) and not isinstance(stated, bool) else 1


def canonical_json(value: Any) -> bytes:
    """Write JSON of public documents the one way in which equal values have equal bytes."""
    return json.dumps(_without_negative_zero(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _without_negative_zero(value: Any) -> Any:
    """Write 0 for −0 in a JSON value, so that equal documents have equal bytes."""
    if isinstance(value, dict):
        return {key: _without_negative_zero(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_negative_zero(inner) for inner in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


def _shortened(text: str) -> str:
    """Return a text that an error about a public document shows, with at most 200 characters."""
    shown = visible(text)
    return shown if len(shown) <= 200 else shown[:200] + "..."


def explain(refused: ValidationError, *, quote: bool = True) -> str:
    """Name the first error of a refused document, its place and how many more there are, but no value."""
    problems = refused.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    kind, steps = first["type"], first["loc"]
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    if not quote and kind == "extra_forbidden":  # the field's name is the sender's
        steps, message = steps[:-1], "this field is not permitted here"
    elif not quote and kind == "union_tag_invalid":  # pydantic quotes the tag
        message = "this kind is unknown here"
    place, message = ".".join(_shortened(str(step)) for step in steps), _shortened(message)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{place}: {message}{more}" if place else f"{message}{more}"
