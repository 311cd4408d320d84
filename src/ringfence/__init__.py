"""Ringfence: private federated learning without a trusted server.

The public names are loaded on first use, so that importing the server's side never loads the silo's.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.errors import RingfenceError
    from ringfence.estimators import (
        FederatedHuberRegressor,
        FederatedLinearRegression,
        FederatedLinearSVC,
        FederatedLogisticRegression,
        FederatedQuantileRegressor,
    )
    from ringfence.model import Model
    from ringfence.planning.prescribe import Member, make_plan
    from ringfence.protocol.plan import Plan
    from ringfence.protocol.schema import Schema, load_schema
    from ringfence.silo.gate import Gate
    from ringfence.silo.ledger import Budget, Ledger
    from ringfence.silo.records import Records, load_records
    from ringfence.training import Silo, train

__version__ = version("ringfence")

_HOMES = {
    "Budget": "ringfence.silo.ledger",
    "FederatedHuberRegressor": "ringfence.estimators",
    "FederatedLinearRegression": "ringfence.estimators",
    "FederatedLinearSVC": "ringfence.estimators",
    "FederatedLogisticRegression": "ringfence.estimators",
    "FederatedQuantileRegressor": "ringfence.estimators",
    "Gate": "ringfence.silo.gate",
    "Ledger": "ringfence.silo.ledger",
    "Member": "ringfence.planning.prescribe",
    "Model": "ringfence.model",
    "Plan": "ringfence.protocol.plan",
    "Records": "ringfence.silo.records",
    "RingfenceError": "ringfence.errors",
    "Schema": "ringfence.protocol.schema",
    "Silo": "ringfence.training",
    "load_records": "ringfence.silo.records",
    "load_schema": "ringfence.protocol.schema",
    "make_plan": "ringfence.planning.prescribe",
    "train": "ringfence.training",
}

__all__ = [
    "Budget",
    "FederatedHuberRegressor",
    "FederatedLinearRegression",
    "FederatedLinearSVC",
    "FederatedLogisticRegression",
    "FederatedQuantileRegressor",
    "Gate",
    "Ledger",
    "Member",
    "Model",
    "Plan",
    "Records",
    "RingfenceError",
    "Schema",
    "Silo",
    "__version__",
    "load_records",
    "load_schema",
    "make_plan",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ringfence' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
