"""Choosing settings of estimators, privately: `FederatedSearch`."""

from ringfence.estimators.search import FederatedSearch

__all__ = ["FederatedSearch"]
