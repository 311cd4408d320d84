"""Shares: they add up, say nothing alone, and a batch that is not whole is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from ringfence.errors import MessageError
from ringfence.protocol import ShufflerChannel
from ringfence.protocol.channels.shuffler import LABEL_BYTES
from ringfence.shuffler.shares import add_shares, make_shares

FALSE_ALARM = 1e-6


def shuffle_with(**shape: Any) -> ShufflerChannel:
    said = {"levels": 4, "coins": 20, "quorum": 2, "slack": 1e-9, "shares": 3, "block": 2, "width": 2, **shape}
    return ShufflerChannel(**said, server_key="0" * 64, shuffler_key="1" * 64)


shapes = st.builds(
    lambda shares, block, width: shuffle_with(shares=shares, block=block, width=width),
    st.integers(2, 9),
    st.integers(1, 7),
    st.integers(1, 7),
)


@settings(max_examples=200, deadline=None)
@given(shuffle=shapes, silos=st.integers(1, 4), numbers=st.integers(1, 15), data=st.data())
def test_whatever_the_silos_numbers_are_their_shares_add_up_in_any_order(
    shuffle: ShufflerChannel, silos: int, numbers: int, data: st.DataObject
) -> None:
    largest = 256**shuffle.width // silos - 1
    held = [data.draw(st.lists(st.integers(0, largest), min_size=numbers, max_size=numbers)) for _ in range(silos)]
    messages = [message for own in held for message in make_shares(shuffle, np.array(own))]
    assert len(messages) == silos * shuffle.messages(numbers)
    assert {len(message) for message in messages} == {shuffle.message_bytes}, "one length for all"
    mixed = data.draw(st.permutations(messages))
    found = add_shares(shuffle, mixed, silos=silos, numbers=numbers)
    assert found.tolist() == [sum(column) for column in zip(*held, strict=True)]


def test_totals_are_read_modulo_the_width_and_no_further() -> None:
    """A plan sees to it that no total reaches 256^width; here is what would happen."""
    for width in range(1, 8):
        shuffle, most = shuffle_with(width=width), 256**width - 1
        assert add_shares(shuffle, make_shares(shuffle, np.array([most, 0, most])), silos=1, numbers=3).tolist() == [
            most,
            0,
            most,
        ]
        both = [*make_shares(shuffle, np.array([most, 0, 1])), *make_shares(shuffle, np.array([1, most, 1]))]
        assert add_shares(shuffle, both, silos=2, numbers=3).tolist() == [0, most, 2]


@pytest.mark.parametrize("left_out", range(3))
def test_every_share_but_all_of_them_together_is_uniform_whatever_the_number(left_out: int) -> None:
    """χ² on the pair of shares that is left when one of three is missing: 65,536 cells, three in each."""
    shuffle = shuffle_with(shares=3, block=1, width=1)
    draws = 200_000
    for number in (0, 201):
        seen = np.zeros(2**16)
        for _ in range(draws // 50_000):
            content = np.frombuffer(b"".join(make_shares(shuffle, np.full(50_000, number))), dtype=np.uint8)
            shares = content.reshape(50_000, 3, LABEL_BYTES + 1)[:, :, LABEL_BYTES].astype(np.int64)
            assert np.all(shares.sum(axis=1) % 256 == number)
            kept = np.delete(shares, left_out, axis=1)
            seen += np.bincount(kept[:, 0] * 256 + kept[:, 1], minlength=2**16)
        statistic = float(np.sum((seen - draws / 2**16) ** 2) / (draws / 2**16))
        assert statistic < chi2.isf(FALSE_ALARM / 4, 2**16 - 1)
        assert statistic > chi2.ppf(FALSE_ALARM / 4, 2**16 - 1), "nor more even than chance"


def test_two_silos_in_which_something_is_moved_from_one_to_the_other_look_alike() -> None:
    """One share of each is left out: what is there is uniform and independent of who holds what."""
    shuffle = shuffle_with(shares=2, block=1, width=1)
    draws, statistics = 60_000, []
    for held in ((7, 0), (0, 7)):
        ours, theirs = (
            np.frombuffer(b"".join(make_shares(shuffle, np.full(draws, own))), dtype=np.uint8).reshape(draws, 2, -1)
            for own in held
        )
        pair = ours[:, 1, LABEL_BYTES].astype(np.int64) * 256 + theirs[:, 0, LABEL_BYTES]
        seen = np.bincount(pair // 64, minlength=1024)
        statistics.append(float(np.sum((seen - draws / 1024) ** 2) / (draws / 1024)))
    assert max(statistics) < chi2.isf(FALSE_ALARM / 2, 1023)


def test_the_same_numbers_are_shared_afresh_every_time() -> None:
    shuffle = shuffle_with(width=7)
    first, second = (make_shares(shuffle, np.arange(6)) for _ in range(2))
    assert not set(first) & set(second)


def changed(messages: list[bytes], how: str) -> list[bytes]:
    other = (0).to_bytes(LABEL_BYTES, "little")
    return {
        "missing": messages[1:],
        "twice": [*messages, messages[0]],
        "twice instead of another": [messages[-1], *messages[1:]],
        "foreign block": [(9).to_bytes(LABEL_BYTES, "little") + messages[0][LABEL_BYTES:], *messages[1:]],
        "relabelled": [*messages[:-1], other + messages[-1][LABEL_BYTES:]],
        "cut short": [messages[0][:-1], *messages[1:]],
        "too long": [messages[0] + b"\0", *messages[1:]],
        "empty": [],
    }[how]


@pytest.mark.parametrize(
    "how",
    ["missing", "twice", "twice instead of another", "foreign block", "relabelled", "cut short", "too long", "empty"],
)
def test_a_batch_that_is_not_whole_is_refused(how: str) -> None:
    shuffle = shuffle_with()
    messages = [message for silo in range(2) for message in make_shares(shuffle, np.arange(5) + silo)]
    assert add_shares(shuffle, messages, silos=2, numbers=5).tolist() == [1, 3, 5, 7, 9]
    with pytest.raises(MessageError, match="not used"):
        add_shares(shuffle, changed(messages, how), silos=2, numbers=5)
    for silos in (1, 3):
        with pytest.raises(MessageError, match=f"each of {silos} silos"):
            add_shares(shuffle, messages, silos=silos, numbers=5)


def test_what_fills_the_last_block_up_is_not_part_of_the_totals() -> None:
    shuffle = shuffle_with(block=4)
    assert shuffle.blocks(5) == 2
    assert shuffle.messages(5) == 6
    assert len(add_shares(shuffle, make_shares(shuffle, np.arange(5)), silos=1, numbers=5)) == 5
