"""What a channel does at the server, and what a third party releases of a round."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import MessageError
from ringfence.protocol import Answer, FloatArray, Plan, SealedUpdate


@dataclass(frozen=True)
class Totals:
    """What a third party releases of a round: how many silos' answers are in it, and the sums of their numbers."""

    silos: int
    numbers: NDArray[np.int64]

    def packed(self) -> str:
        """Write a third party's totals as text."""
        return base64.b64encode(self.numbers.astype("<i8").tobytes()).decode()

    @classmethod
    def unpacked(cls, silos: int, text: str) -> Self:
        """Read a third party's totals from text."""
        content = base64.b64decode(text)
        if len(content) % 8:
            raise MessageError("The totals are not a whole number of 8-byte integers.")
        return cls(silos, np.frombuffer(content, dtype="<i8").astype(np.int64))


Collect = Callable[[int, Sequence[SealedUpdate]], Totals | None]
"""Bring a round's answers to the third party and return what it releases; None if that is nothing yet."""


Averaged = tuple[FloatArray, Mapping[str, FloatArray]]
"""The mean of a round's answers, and every silo's own answer, as far as the channel shows them."""


class ChannelAtServer(Protocol):
    """The functions of a channel's file."""

    def is_usable(self, plan: Plan, number: int, answer: Answer) -> bool:
        """Return whether an answer is valid for the channel of the plan's stage of that number."""

    def average(
        self, channel: Any, plan: Plan, number: int, answers: Mapping[str, Answer], totals: Totals | None
    ) -> Averaged | None:
        """Return the average of the channel's usable answers; None if there is none."""
