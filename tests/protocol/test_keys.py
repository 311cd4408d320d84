"""Everybody's public keys come from one file, and nothing else is taken for them."""

from pathlib import Path

import pytest

from ringfence.errors import PlanError
from ringfence.protocol.keys import load_keys


def test_everybody_s_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'server = "{"5e" * 32}"\nshuffler = "{"5f" * 32}"\n[silos]\nnorth = "{"a0" * 32}"\n')
    keys = load_keys(path)
    assert (keys.server, keys.shuffler, keys.silos) == ("5e" * 32, "5f" * 32, {"north": "a0" * 32})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"server = ", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (b"", "does not hold everybody's public keys"),
        (b'server = "12"\nshuffler = "34"\n[silos]\n', "does not hold everybody's public keys"),
        (None, "could not be read"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused_in_a_sentence(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "keys.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanError, match=says):
        load_keys(path)
