"""Choosing settings of estimators, privately: `FederatedSearch`."""

from ringfence.estimators.search import FederatedSearch

__all__ = ["FederatedSearch"]


def __dir__() -> list[str]:
    return sorted(__all__)
