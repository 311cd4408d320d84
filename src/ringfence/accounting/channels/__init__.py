"""The privacy cost of answers, one file for each channel of `protocol.channels`, of the same name."""

from collections.abc import Callable

from ringfence.accounting.channels import own_noise, shuffler
from ringfence.accounting.events import Release
from ringfence.protocol import BaseChannel, OwnNoise, ShufflerChannel

COSTS: dict[type[BaseChannel], Callable[..., Release]] = {OwnNoise: own_noise.event, ShufflerChannel: shuffler.event}
"""The function of a channel, a plan, a silo's terms and a task that returns the cost of one answer against every
observer; AccountingError if it is not proved."""
