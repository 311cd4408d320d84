"""How answers become their mean, one file for each channel of `protocol.channels`, of the same name."""

from ringfence.protocol import BaseChannel, OwnNoise, ShufflerChannel
from ringfence.server.channels import own_noise, shuffler
from ringfence.server.channels.base import ChannelAtServer, Collect, Totals

__all__ = ["RECEIVERS", "Collect", "Totals"]

RECEIVERS: dict[type[BaseChannel], ChannelAtServer] = {OwnNoise: own_noise, ShufflerChannel: shuffler}
