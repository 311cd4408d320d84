"""The privacy cost of answers, one file for each channel of `protocol.channels`, of the same name."""

from typing import Any, Protocol

from ringfence.accounting.channels import own_noise, shuffler
from ringfence.accounting.events import Release
from ringfence.protocol import BaseChannel, OwnNoise, Plan, ShufflerChannel, SiloTerms, Task


class ChannelCost(Protocol):
    """The function of a channel's file."""

    def event(self, channel: Any, plan: Plan, terms: SiloTerms, work: Task) -> Release:
        """Return what one answer costs the silo, against every observer; AccountingError if that is not proved."""


COSTS: dict[type[BaseChannel], ChannelCost] = {OwnNoise: own_noise, ShufflerChannel: shuffler}
