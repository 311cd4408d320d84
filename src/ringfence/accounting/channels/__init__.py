"""What answers cost, one file for each channel of `protocol.channels`, of the same name."""

from importlib import import_module
from typing import Any, Protocol, cast

from ringfence.accounting.events import Release
from ringfence.protocol.channels import Channel
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task


class ChannelCost(Protocol):
    """What a channel's file offers here."""

    def event(self, channel: Any, plan: Plan, terms: SiloTerms, work: Task) -> Release:
        """Return what one answer costs the silo, against every observer; AccountingError if that is not proved."""


def cost_of(channel: Channel) -> ChannelCost:
    """Return the file of the channel."""
    return cast(ChannelCost, import_module(f"{__name__}.{channel.name.replace('-', '_')}"))
