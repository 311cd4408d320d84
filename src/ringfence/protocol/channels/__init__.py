"""The channels through which a stage's answers may leave a silo: this table, and four files of each one's name."""

from typing import Annotated, TypeAlias

from pydantic import Field

from ringfence.protocol.channels.base import BaseChannel
from ringfence.protocol.channels.own_noise import OwnNoise
from ringfence.protocol.channels.shuffler import ShufflerChannel

__all__ = ["BaseChannel", "Channel", "OwnNoise", "ShufflerChannel"]

Channel: TypeAlias = Annotated[OwnNoise | ShufflerChannel, Field(discriminator="name")]
