"""Shares: how whole numbers travel through a shuffler so that only their total over all silos can be read.

P_vec asks for every bit to be shuffled by itself; sealed one by one, that is millions of ciphertexts a round. Instead a
silo's counts are split into shares that are uniformly random, except that they add up to the counts modulo 256^width
(split and mix; Ishai, Kushilevitz, Ostrovsky & Sahai 2006). All silos' shares, shuffled together, look like random
numbers with the right total: nothing else can be learned from them, up to a statistical distance that
`accounting.shuffled_sums.mixing_distance` bounds and that the number of shares makes as small as one likes.

Numbers are divided into blocks, each shared by itself; a message is the number of its block and one share of it, padded
to the same length as all others.
"""

import os
import random as randoms
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import MessageError
from ringfence.protocol.channels.shuffler import LABEL_BYTES, ShufflerChannel

Numbers = NDArray[np.int64]


def make_shares(channel: ShufflerChannel, numbers: Numbers) -> list[bytes]:
    """Split a silo's numbers into random shares, and return one message per share."""
    blocks = channel.blocks(len(numbers))
    padded = np.zeros((blocks, 1, channel.block), dtype=np.uint64)
    padded.reshape(-1)[: len(numbers)] = numbers
    random = np.frombuffer(os.urandom(8 * blocks * (channel.shares - 1) * channel.block), dtype="<u8")
    shares = random.reshape(blocks, channel.shares - 1, channel.block)
    rest = padded - shares.sum(axis=1, keepdims=True, dtype=np.uint64)  # modulo 2⁶⁴, of which 256^width is a divisor
    shares = np.concatenate([shares, rest], axis=1)
    content = (
        shares.astype("<u8").view(np.uint8).reshape(blocks, channel.shares, channel.block, 8)[..., : channel.width]
    )
    return [
        block.to_bytes(LABEL_BYTES, "little") + share.tobytes()
        for block, shares_of_block in enumerate(content)
        for share in shares_of_block
    ]


def shuffle_messages(messages: list[bytes]) -> None:
    """Shuffle all silos' messages in place: every order is equally likely, whatever the order of arrival."""
    randoms.SystemRandom().shuffle(messages)  # Fisher and Yates with exact draws from the operating system


def add_shares(channel: ShufflerChannel, messages: list[bytes], *, silos: int, numbers: int) -> Numbers:
    """Add all silos' shares and return the totals; MessageError if a message is missing, too many or malformed."""
    if any(len(message) != channel.message_bytes for message in messages):
        raise MessageError("A shuffled message does not have the plan's length: the batch is not used.")
    blocks = channel.blocks(numbers)
    labels = [int.from_bytes(message[:LABEL_BYTES], "little") for message in messages]
    if Counter(labels) != dict.fromkeys(range(blocks), silos * channel.shares):
        raise MessageError(
            f"The batch does not hold {channel.shares} shares of each block from each of {silos} silos: it is not used."
        )
    content = np.frombuffer(b"".join(message[LABEL_BYTES:] for message in messages), dtype=np.uint8)
    wide = np.zeros((len(messages), channel.block, 8), dtype=np.uint8)
    wide[..., : channel.width] = content.reshape(len(messages), channel.block, channel.width)
    totals = np.zeros((blocks, channel.block), dtype=np.uint64)
    np.add.at(totals, np.array(labels), wide.view("<u8").reshape(len(messages), channel.block))
    if channel.width < 8:
        totals &= np.uint64(256**channel.width - 1)
    return totals.reshape(-1)[:numbers].astype(np.int64)
