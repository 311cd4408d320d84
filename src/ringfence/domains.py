"""The sets that a model's weights are kept in."""

from ringfence.protocol.domain import Ball, Box, Domain, WholeSpace

__all__ = ["Ball", "Box", "Domain", "WholeSpace"]


def __dir__() -> list[str]:
    return sorted(__all__)
