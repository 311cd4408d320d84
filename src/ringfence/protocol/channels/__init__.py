"""The channels through which a stage's answers may leave a silo: a union."""

from typing import Annotated, TypeAlias

from pydantic import Field

from ringfence.protocol.channels.own_noise import OwnNoise as OwnNoise
from ringfence.protocol.channels.shuffler import ShufflerChannel as ShufflerChannel

Channel: TypeAlias = Annotated[OwnNoise | ShufflerChannel, Field(discriminator="name")]
