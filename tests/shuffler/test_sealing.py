"""Seals: what they hide, what they are bound to, and that nothing changed passes."""

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import MessageError, PlanError
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.shuffler import sealing

PLAN, OTHER = "a" * 64, "b" * 64


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 2**53))
def test_messages_come_back_as_they_were_in_their_order(messages: list[bytes], round: int) -> None:
    key = sealing.new_key()
    sealed = sealing.seal_messages(sealing.public_key(key), PLAN, round, messages)
    assert sealing.open_messages(key, PLAN, round, sealed) == messages
    assert [len(content) for content in sealed] == [len(message) + SEALED_EXTRA for message in messages]


def test_the_form_of_seals_is_fixed() -> None:
    """Spelled out once more: what one version of Ringfence has sealed another must be able to open."""
    key = sealing.new_key()
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(key)
    [message] = sealing.seal_messages(sealing.public_key(key), PLAN, 3, [b"content"])
    assert suite.decrypt(message, private, f'["ringfence message 1", "{PLAN}", 3]'.encode()) == b"content"
    envelope = sealing.seal_envelope(sealing.public_key(key), PLAN, 3, "süd", b"content")
    assert (
        suite.decrypt(envelope, private, f'["ringfence envelope 1", "{PLAN}", 3, "s\\u00fcd"]'.encode()) == b"content"
    )


def test_equal_messages_look_unrelated() -> None:
    first, second = sealing.seal_messages(sealing.public_key(sealing.new_key()), PLAN, 0, [b"same"] * 2)
    assert first[:32] != second[:32]
    assert first[32:] != second[32:]


def test_the_key_pair_is_one_of_x25519() -> None:
    key = sealing.new_key()
    assert len(key) == 32
    assert key != sealing.new_key()
    assert sealing.public_key(key) == X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw().hex()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda key, sealed: sealing.open_messages(sealing.new_key(), PLAN, 3, [sealed]),
        lambda key, sealed: sealing.open_messages(key, OTHER, 3, [sealed]),
        lambda key, sealed: sealing.open_messages(key, PLAN, 4, [sealed]),
        lambda key, sealed: sealing.open_envelope(key, PLAN, 3, "north", sealed),
        lambda key, sealed: sealing.open_messages(key, PLAN, 3, [sealed, b""]),
        lambda key, sealed: sealing.open_messages(key, PLAN, 3, [sealed, bytes(80)]),
    ],
    ids=["another key", "another plan", "another round", "another purpose", "nothing", "zeros"],
)
def test_a_message_opens_for_its_own_key_plan_and_round_only(attempt: Callable[[bytes, bytes], object]) -> None:
    key = sealing.new_key()
    [sealed] = sealing.seal_messages(sealing.public_key(key), PLAN, 3, [b"content"])
    with pytest.raises(MessageError, match="does not open"):
        attempt(key, sealed)


@pytest.mark.parametrize(
    ("plan", "round", "silo"), [(OTHER, 3, "north"), (PLAN, 4, "north"), (PLAN, 3, "south"), (PLAN, 3, "")]
)
def test_an_envelope_opens_under_its_own_silo_s_name_only(plan: str, round: int, silo: str) -> None:
    """Otherwise a silo could hand in another's messages a second time, and so mark them."""
    key = sealing.new_key()
    envelope = sealing.seal_envelope(sealing.public_key(key), PLAN, 3, "north", b"content")
    with pytest.raises(MessageError, match="does not open"):
        sealing.open_envelope(key, plan, round, silo, envelope)


def test_every_changed_bit_and_every_missing_byte_is_noticed() -> None:
    key = sealing.new_key()
    [sealed] = sealing.seal_messages(sealing.public_key(key), PLAN, 0, [b"content"])
    changed = [
        sealed[:place] + bytes([sealed[place] ^ (1 << bit)]) + sealed[place + 1 :]
        for place in range(len(sealed))
        for bit in range(8)
    ]
    # A bit that X25519 ignores in a public key (RFC 7748, 5) still changes the key that is derived from it.
    for content in changed + [sealed[:length] for length in range(len(sealed))] + [sealed + b"\0"]:
        with pytest.raises(MessageError, match="does not open"):
            sealing.open_messages(key, PLAN, 0, [content])


@pytest.mark.parametrize("public", ["00" * 32, "01" + "00" * 31, "ab" * 31, "xy" * 32])
def test_a_wrong_key_is_refused_before_anything_leaves(public: str) -> None:
    with pytest.raises(PlanError, match="not an X25519 public key"):
        sealing.seal_messages(public, PLAN, 0, [b"content"])


def test_a_signature_is_of_one_key_and_one_content() -> None:
    key = sealing.new_key()
    signature = sealing.sign(key, b"content")
    assert len(signature) == 128
    assert sealing.verify(sealing.verifying_key(key), b"content", signature)
    assert not sealing.verify(sealing.verifying_key(key), b"content.", signature)
    assert not sealing.verify(sealing.verifying_key(sealing.new_key()), b"content", signature)
    assert not sealing.verify(sealing.verifying_key(key), b"content", sealing.sign(sealing.new_key(), b"content"))
    assert not sealing.verify(sealing.verifying_key(key), b"content", signature[:-2])
    assert not sealing.verify("00" * 31, b"content", signature)
    assert not sealing.verify("not hexadecimal", b"content", signature)


def test_joined_messages_are_split_where_they_were_joined() -> None:
    assert sealing.split_messages(b"aabbcc", 2) == [b"aa", b"bb", b"cc"]
    assert sealing.split_messages(b"", 2) == []
    with pytest.raises(MessageError, match="not of equal size"):
        sealing.split_messages(b"aabbc", 2)
