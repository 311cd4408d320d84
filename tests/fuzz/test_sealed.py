"""Envelopes, deposits, batches, shares and frames with any bytes in them: used or refused, in our own words."""

import base64
import json
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import MessageError
from ringfence.protocol import Batch
from ringfence.server.channels import Totals
from ringfence.server.channels.shuffler import read_batch
from ringfence.shuffler import sealing, shares
from ringfence.shuffler.shuffler import Receipt, Shuffler, ShufflerRefusal
from ringfence.transport.relay import Wire
from tests.fuzz.hostile import damaged, reads_or_refuses, rewritten
from tests.generated import examples
from tests.shuffler.depositors import Depositors, make_shuffler
from tests.shuffler.shuffled_federation import numbers_of

PLAN = "0123456789abcdef" * 4
KEY = sealing.new_key()


@examples(100)
@given(data=st.data())
def test_a_damaged_seal_does_not_open(data: st.DataObject) -> None:
    content = sealing.seal_envelope(sealing.public_key(KEY), PLAN, 0, "north", b"counts")
    changed = data.draw(damaged(content))
    if changed != content:
        with pytest.raises(MessageError, match="does not open"):
            sealing.open_envelope(KEY, PLAN, 0, "north", changed)


@examples(100)
@given(st.binary(max_size=64), st.text(max_size=130))
def test_any_bytes_are_no_signature(content: bytes, signature: str) -> None:
    assert not sealing.verify(sealing.public_key(KEY), content, signature)
    assert not sealing.verify(content.hex(), content, "0" * 128)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shuffler, Depositors]]:
    shuffler, silos = make_shuffler(tmp_path_factory.mktemp("fuzz") / "shuffler")
    with shuffler:
        yield shuffler, silos


@examples(100)
@given(data=st.data())
def test_a_changed_deposit_is_refused_for_a_reason_that_exists(
    data: st.DataObject, mixed: tuple[Shuffler, Depositors]
) -> None:
    shuffler, silos = mixed
    content = silos.update(silos.names[0])
    changed = data.draw(damaged(content) | rewritten(content))
    outcome = shuffler.deposit(changed)
    if isinstance(outcome, Receipt):  # white space, or the order of fields: the silo signed what is in it
        assert json.loads(changed) == json.loads(content)


@examples(60)
@given(data=st.data())
def test_whatever_a_member_signs_and_seals_is_mixed_whole_or_refused(
    data: st.DataObject, mixed: tuple[Shuffler, Depositors]
) -> None:
    """A hostile silo holds a real key: what it seals may be anything."""
    shuffler, silos = mixed
    joined = b"".join(silos.sealed(silos.names[1], 1))
    changed = data.draw(damaged(joined) | st.binary(max_size=100))
    outcome = shuffler.deposit(silos.update(silos.names[1], 1, [changed]))
    if len(changed) != len(joined):
        assert outcome is ShufflerRefusal.WRONG_SIZE


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Depositors]:
    shuffler, silos = make_shuffler(tmp_path_factory.mktemp("batch") / "shuffler")
    with shuffler:
        for silo in silos.names:
            shuffler.deposit(silos.update(silo))
        released = shuffler.release(silos.plan.digest(), 0)
    assert isinstance(released, bytes)
    return released, silos


@examples(100)
@given(data=st.data())
def test_a_changed_batch_is_refused_with_a_message_error(data: st.DataObject, batch: tuple[bytes, Depositors]) -> None:
    content, silos = batch
    changed = data.draw(damaged(content) | rewritten(content))
    reads_or_refuses(lambda raw: read_batch(silos.plan, silos.server, 0, raw), changed)


@examples(100)
@given(data=st.data())
def test_any_messages_in_a_batch_that_opens_are_added_up_or_refused(
    data: st.DataObject, batch: tuple[bytes, Depositors]
) -> None:
    """A hostile silo's messages open too; and a hostile shuffler says what it likes about how many silos there are."""
    _, silos = batch
    right = b"".join(silos.plain(silos.names[0]))
    size = silos.shuffle.message_bytes
    content = data.draw(damaged(right))
    messages = [content[start : start + size] for start in range(0, len(content), size)]
    many = data.draw(st.integers(0, 4) | st.integers(0, 2**70))
    reads_or_refuses(
        lambda _: shares.add_shares(silos.shuffle, messages, silos=many, numbers=numbers_of(silos.plan)), b""
    )
    sealed = sealing.seal_messages(silos.shuffle.server_key, silos.plan.digest(), 0, messages)
    made = Batch(
        plan=silos.plan.digest(), round=0, silos=max(1, many), messages=base64.b64encode(b"".join(sealed)).decode()
    )
    reads_or_refuses(lambda raw: read_batch(silos.plan, silos.server, 0, raw), made.to_bytes())


@examples(60)
@given(st.binary(max_size=40))
def test_totals_of_any_bytes_are_read_or_refused(content: bytes) -> None:
    reads_or_refuses(lambda raw: Totals.unpacked(2, base64.b64encode(raw).decode()), content)


@examples(150)
@given(data=st.data())
def test_frames_of_any_bytes_are_read_or_the_connection_counts_as_lost(data: st.DataObject) -> None:
    head = json.dumps({"exchange": 1, "site": "clinic"}).encode()
    content = data.draw(damaged(struct.pack("!i", len(head) + 4) + head + b"\nabc"))
    near, far = socket.socketpair()
    with far:
        far.sendall(content)
        far.shutdown(socket.SHUT_WR)
        try:
            frame = Wire(near).receive(1.0)
        except ConnectionError:
            return
    assert frame is not None
    assert isinstance(frame[0], dict)


@pytest.mark.parametrize("length", [struct.pack("!i", 2**31 - 1), struct.pack("!iQ", -1, 2**40)])
def test_a_frame_that_announces_more_than_any_message_has_is_not_waited_for(length: bytes) -> None:
    """The other end stays silent: had the length been believed, this would wait for bytes for ever."""
    near, far = socket.socketpair()
    with far:
        far.sendall(length + b"{}")
        with pytest.raises(ConnectionError, match="not a frame"):
            Wire(near).receive(1.0)


def test_frames_survive_the_wire() -> None:
    near, far = map(Wire, socket.socketpair())
    far.send({"site": "clinic"}, b"a\nbc")
    assert near.receive(1.0) == ({"site": "clinic"}, b"a\nbc")
    assert not near.lost()
    far.close()
    assert near.lost()
    near.close()
