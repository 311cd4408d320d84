"""How answers leave a silo, one file for each channel of `protocol.channels`, of the same name."""

from typing import Any, Protocol

from numpy.typing import NDArray

from ringfence.protocol import BaseChannel, FloatArray, NoisyUpdate, OwnNoise, SealedUpdate, ShufflerChannel
from ringfence.protocol.plan.plan import Plan, SiloTerms, Task
from ringfence.silo.channels import own_noise, shuffler


class ChannelAtSilo(Protocol):
    """The functions of a channel's file."""

    def require(self, channel: Any, terms: SiloTerms, key: bytes | None) -> None:
        """Raise ApprovalError if this silo cannot send through the channel: before a round is charged, not after."""

    def draw(self, channel: Any, work: Task) -> Any:
        """Draw the noise of one answer from the operating system's randomness."""

    def memory(self, channel: Any) -> object:
        """Return a stage's memory of its rounds, never stored; None if rounds are independent."""

    def encode(self, channel: Any, plan: Plan, work: Task, exact: FloatArray, noise: Any, memory: Any) -> NDArray[Any]:
        """Return the numbers to send: a pure function, but for the memory."""

    def message(
        self, channel: Any, plan: Plan, terms: SiloTerms, round: int, key: bytes | None, numbers: NDArray[Any]
    ) -> NoisyUpdate | SealedUpdate:
        """Write the numbers as the message that leaves."""


SENDERS: dict[type[BaseChannel], ChannelAtSilo] = {OwnNoise: own_noise, ShufflerChannel: shuffler}
