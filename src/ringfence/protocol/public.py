"""The base of every public document, and how its validation errors read."""

import hashlib
import json
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ringfence.errors import RingfenceError


class Public(BaseModel):
    """A frozen, strictly validated document that any party may read.

    Unknown fields, NaN and infinity are refused, so that a digest covers everything a document says.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def canonical(self) -> bytes:
        """Serialise so that equal documents have equal bytes: sorted keys, shortest floats, no white space."""
        content = self.model_dump(mode="json")
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def digest(self) -> str:
        """Return the SHA-256 of the canonical bytes: the document's name in messages and ledgers."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @classmethod
    def parse(cls, content: bytes, *, error: type[RingfenceError], limit: int = 16 * 2**20) -> Self:
        """Read a document from bytes that anybody may have written; refuse with `error` and one sentence."""
        name = cls.__name__
        if len(content) > limit:
            raise error(f"This {name} has {len(content)} bytes, more than the {limit} allowed; it was not read.")
        try:
            return cls.model_validate_json(content)
        except ValidationError as refused:
            raise error(f"This is not a valid {name}: {explain(refused)}.") from None
        except RecursionError:
            raise error(f"This is not a valid {name}: it is nested too deeply.") from None


def explain(refused: ValidationError) -> str:
    """Name the first thing that is wrong, where it stands and how many more there are, but not its value."""
    problems = refused.errors(include_url=False, include_input=False, include_context=False)
    place = ".".join(str(step) for step in problems[0]["loc"])
    message = problems[0]["msg"].removeprefix("Value error, ").rstrip(".")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{place}: {message}{more}" if place else f"{message}{more}"
