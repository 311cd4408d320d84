"""How answers leave a silo, one file for each channel of `protocol.channels`, of the same name."""

from importlib import import_module
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.channels import Channel
from ringfence.protocol.messages import NoisyUpdate, SealedUpdate
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task


class ChannelAtSilo(Protocol):
    """What a channel's file offers here."""

    def require(self, channel: Any, terms: SiloTerms, key: bytes | None) -> None:
        """Raise ApprovalError if this silo cannot send through the channel: before a round is charged, not after."""

    def draw(self, channel: Any, work: Task) -> Any:
        """Draw the noise of one answer from the operating system's randomness."""

    def memory(self, channel: Any) -> object:
        """Return what remembers a stage's rounds, in the silo's memory only; None if each stands by itself."""

    def encode(self, channel: Any, plan: Plan, work: Task, exact: FloatArray, noise: Any, memory: Any) -> NDArray[Any]:
        """Return the numbers that are sent: a pure function, but for what it remembers."""

    def message(
        self, channel: Any, plan: Plan, terms: SiloTerms, round: int, key: bytes | None, numbers: NDArray[Any]
    ) -> NoisyUpdate | SealedUpdate:
        """Write the numbers as the message that leaves."""


def sending(channel: Channel) -> ChannelAtSilo:
    """Return the file of the channel."""
    return cast(ChannelAtSilo, import_module(f"{__name__}.{channel.name.replace('-', '_')}"))
