"""Everybody's public keys come from one file, and nothing else is taken for them."""

from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from ringfence.errors import PlanError
from ringfence.protocol import PublicKeys, load_keys
from ringfence.protocol.documents.keys import is_low_order
from ringfence.shuffler.sealing import new_key, public_key, verify, verifying_key


def keys_in(path: Path, **changes: str) -> PublicKeys:
    """Write three parties' keys into a file, some of them changed, and read them."""
    keys = {"server": "5e" * 32, "shuffler": "5f" * 32, "north": "a0" * 32, **changes}
    lines = [f'{party} = "{key}"' for party, key in keys.items()]
    path.write_text("\n".join([*lines[:2], "[silos]", lines[2]]))
    return load_keys(path)


def test_everybody_s_keys_are_read_from_a_file(tmp_path: Path) -> None:
    keys = keys_in(tmp_path / "keys.toml")
    assert (keys.server, keys.shuffler, keys.silos) == ("5e" * 32, "5f" * 32, {"north": "a0" * 32})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"server = ", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (b"", "does not hold the public keys of all parties"),
        (b'server = "12"\nshuffler = "34"\n[silos]\n', "does not hold the public keys of all parties"),
        (None, "could not be read"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused_in_a_sentence(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "keys.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanError, match=says):
        load_keys(path)


FULL, EMPTY = "ff" * 30, "00" * 30
X25519_LOW = [
    # https://cr.yp.to/ecdh.html#validate, all twelve
    *("00" + EMPTY + "00", "01" + EMPTY + "00"),
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    *("ec" + FULL + "7f", "ed" + FULL + "7f", "ee" + FULL + "7f"),
    "cdeb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b880",
    "4c9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f11d7",
    *("d9" + FULL + "ff", "da" + FULL + "ff", "db" + FULL + "ff"),
]
ED25519_LOW = [
    # the eight points, and the ways of writing them that no honest encoder uses
    *("01" + EMPTY + "00", "ec" + FULL + "7f", "00" + EMPTY + "80", "00" + EMPTY + "00"),
    *(f"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03{last}" for last in ("7a", "fa")),
    *(f"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc{last}" for last in ("05", "85")),
    *("01" + EMPTY + "80", "ec" + FULL + "ff", "ee" + FULL + "7f", "ee" + FULL + "ff"),
    *("ed" + FULL + "ff", "ed" + FULL + "7f"),
]
# X25519 reads no top bit: with it, a point is written once more. (Two of the list are of those that add the prime
# beyond 255 bits, which X25519 takes for other points: RFC 7748 cuts before it reduces.)
NOT_LOW_IN_X25519 = set(X25519_LOW[7:])


@pytest.mark.parametrize("key", sorted({*X25519_LOW, *ED25519_LOW} - NOT_LOW_IN_X25519))
def test_keys_of_low_order_are_found_in_any_encoding(key: str) -> None:
    assert is_low_order(key)


@pytest.mark.parametrize("key", X25519_LOW)
def test_every_key_that_x25519_agrees_on_no_secret_with_is_found(key: str) -> None:
    """The library refuses a shared secret of zeros, with or without the bit that it does not read."""
    for written in (key, f"{key[:-2]}{int(key[-2:], 16) ^ 0x80:02x}"):
        try:
            X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(written)))
        except ValueError:
            assert is_low_order(written)
        else:
            assert not is_low_order(written)


def test_a_signature_that_fits_anything_is_not_taken_for_one_of_a_low_order_key() -> None:
    key, anything = ED25519_LOW[0], (ED25519_LOW[0] + "00" * 32)
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(anything), b"never signed")
    except InvalidSignature:
        pytest.fail("the library refuses it by itself: then our own check may go")
    assert not verify(key, b"never signed", anything)


def test_true_keys_are_of_no_low_order() -> None:
    for _ in range(20):
        private = new_key()
        assert not is_low_order(public_key(private))
        assert not is_low_order(verifying_key(private))


@pytest.mark.parametrize("party", ["server", "shuffler", "north"])
def test_a_file_with_a_key_of_low_order_is_refused_and_says_whose(tmp_path: Path, party: str) -> None:
    with pytest.raises(PlanError, match=f"the key of .*{party}.* is not a valid key"):
        keys_in(tmp_path / "keys.toml", **{party: ED25519_LOW[6]})
