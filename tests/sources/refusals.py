"""What is said of a table that cannot be read."""

from pathlib import Path

import pytest

from ringfence.errors import RecordsError
from ringfence.protocol import Schema
from ringfence.silo.records.records import load_records

SECRET = "ZX4711Quilliam"


def refusal(source: Path, schema: Schema) -> str:
    """Return the one sentence by which a table is refused; it shows no cell and no other library's error."""
    with pytest.raises(RecordsError) as caught:
        load_records(source, schema)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert SECRET not in sentence
    assert caught.value.__cause__ is None
    return sentence
