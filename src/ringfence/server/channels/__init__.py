"""How answers become their mean, one file for each channel of `protocol.channels`, of the same name."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import MessageError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.channels import Channel
from ringfence.protocol.messages import Answer, RoundRequest, SealedUpdate
from ringfence.protocol.plan import Plan


@dataclass(frozen=True)
class Totals:
    """What a third party releases of a round: how many silos' answers are in it, and the sums of their numbers."""

    silos: int
    numbers: NDArray[np.int64]

    def packed(self) -> str:
        """Write the numbers as text."""
        return base64.b64encode(self.numbers.astype("<i8").tobytes()).decode()

    @classmethod
    def unpacked(cls, silos: int, text: str) -> Self:
        """Read the numbers again."""
        content = base64.b64decode(text)
        if len(content) % 8:
            raise MessageError("The totals are not a whole number of 8-byte integers.")
        return cls(silos, np.frombuffer(content, dtype="<i8").astype(np.int64))


Collect = Callable[[int, Sequence[SealedUpdate]], "Totals | None"]
"""Bring a round's answers to the third party and return what it releases; None if that is nothing yet."""


class ChannelAtServer(Protocol):
    """What a channel's file offers here."""

    def is_usable(self, channel: Any, plan: Plan, number: int, request: RoundRequest, answer: Answer) -> bool:
        """Tell whether an answer to this very request, of the stage of that number, can be used."""

    def mean(
        self, channel: Any, plan: Plan, number: int, answers: Mapping[str, Answer], totals: Totals | None
    ) -> FloatArray | None:
        """Return the mean of usable answers; None if there is none."""

    def each(self, channel: Any, answers: Mapping[str, Answer]) -> Mapping[str, FloatArray]:
        """Return every silo's own numbers, as far as the channel shows them."""


def receiving(channel: Channel) -> ChannelAtServer:
    """Return the file of the channel."""
    return cast(ChannelAtServer, import_module(f"{__name__}.{channel.name.replace('-', '_')}"))
