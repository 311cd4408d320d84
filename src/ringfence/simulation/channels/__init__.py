"""Simulated noise and how answers are weighed, one file for each channel of `protocol.channels`, of the same name.

The silos' noises are not drawn one by one: the server's average has one noise, scaled to what those of the answering
silos add up to.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ringfence.protocol import BaseChannel, Channel, OwnNoise, Participation, ShufflerChannel
from ringfence.simulation.channels.own_noise import GaussianNoise
from ringfence.simulation.channels.shuffler import BinomialNoise


class SimulatedNoise(Protocol):
    """A channel's noise in a compiled program; frozen, since a program is compiled for it."""

    def check(self, participation: Participation) -> None:
        """Raise TrainingError if this noise cannot be simulated where that many silos answer."""

    def draw(self, key: Any, length: int, available: Any, batch: Any, coins: Any, dtype: Any) -> Any:
        """Draw a round of one stream: numbers of variance 1, independent of all other rounds.

        `available` tells of every silo whether it answers, `batch` how many records its answer is the mean over, and
        `coins` how many coins each of these tosses.
        """

    def memory(self, streams: int, length: int, rounds: int, dtype: Any) -> Any:
        """Return what remembers a simulated stage's noise of earlier rounds."""

    def remember(self, fresh: Any, memory: Any, round: Any) -> tuple[Any, Any]:
        """Return the noise of a stage's round, of all streams, made of what was drawn; and what is remembered now."""

    def rates(self, weights: Any, available: Any, batch: Any) -> Any:
        """Return what the server multiplies each silo's answer by, of all streams: 0 if it is not there."""


NOISES: dict[type[BaseChannel], Callable[[Any], SimulatedNoise]] = {
    OwnNoise: lambda channel: GaussianNoise(channel.correlation),
    ShufflerChannel: lambda channel: BinomialNoise(),
}


def simulated_noise(channel: Channel) -> SimulatedNoise:
    """Return the channel's noise."""
    return NOISES[type(channel)](channel)


def coins_of(channel: Channel) -> int:
    """Return how many coins a record brings through the channel: a number of a run, which no program depends on."""
    return int(getattr(channel, "coins", 0))
