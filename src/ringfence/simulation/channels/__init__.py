"""Simulated noise and how answers are weighed, one file for each channel of `protocol.channels`, of the same name.

The silos' noises are not drawn one by one: the server's average has one noise, scaled to what those of the answering
silos add up to.
"""

from importlib import import_module
from typing import Any, Protocol

from ringfence.protocol.channels import Channel
from ringfence.protocol.plan import Participation


class SimulatedNoise(Protocol):
    """What the compiled program needs to know about a channel: frozen, since a program is compiled for it."""

    def check(self, participation: Participation) -> None:
        """Raise TrainingError if this noise cannot be simulated where that many silos answer."""

    def draw(self, key: Any, length: int, available: Any, batch: Any, dtype: Any) -> Any:
        """Draw a round of one stream: numbers of variance 1, independent of all other rounds.

        `available` tells of every silo whether it answers, and `batch` how many records its answer is the mean over.
        """

    def memory(self, streams: int, length: int, rounds: int, dtype: Any) -> Any:
        """Return what remembers the rounds of a stage."""

    def remember(self, fresh: Any, memory: Any, round: Any) -> tuple[Any, Any]:
        """Return the noise of a stage's round, of all streams, made of what was drawn; and what is remembered now."""

    def rates(self, weights: Any, available: Any, batch: Any) -> Any:
        """Return what the server multiplies each silo's answer by, of all streams: 0 if it is not there."""


def simulating(channel: Channel) -> SimulatedNoise:
    """Return the channel's noise."""
    module: Any = import_module(f"{__name__}.{channel.name.replace('-', '_')}")
    found: SimulatedNoise = module.noise(channel)
    return found
