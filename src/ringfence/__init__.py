"""Ringfence: private federated learning without a trusted server.

The public names are loaded on first use, so that importing the server's side never loads the silo's. Beside them these
modules are public: `losses`, `algorithms`, `domains`, `sampling` and `stages`, which plans are made of; `messages`;
`accounting`; `errors`; `model_selection`, which tries estimators' settings; `simulation`. All others are internal and
may change without notice.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.errors import RingfenceError
    from ringfence.estimators import (
        FederatedGammaRegressor,
        FederatedHuberRegressor,
        FederatedLinearRegression,
        FederatedLinearSVC,
        FederatedLogisticRegression,
        FederatedNegativeBinomialRegressor,
        FederatedOrdinalClassifier,
        FederatedPoissonRegressor,
        FederatedQuantileRegressor,
        FederatedSurvivalRegressor,
    )
    from ringfence.model import Model
    from ringfence.planning.propose import Proposal, make_plan, propose
    from ringfence.planning.request import Member, PlanRequest
    from ringfence.protocol.guarantee import Guarantee
    from ringfence.protocol.plan import Plan, load_plan
    from ringfence.protocol.schema import Schema, load_schema
    from ringfence.silo.budget import Budget
    from ringfence.silo.gate import Gate
    from ringfence.silo.ledger import Ledger
    from ringfence.silo.records import Records, load_records
    from ringfence.training import Silo, train

__version__ = version("ringfence")

_HOMES = {
    "Budget": "ringfence.silo.budget",
    "FederatedGammaRegressor": "ringfence.estimators",
    "FederatedHuberRegressor": "ringfence.estimators",
    "FederatedLinearRegression": "ringfence.estimators",
    "FederatedLinearSVC": "ringfence.estimators",
    "FederatedLogisticRegression": "ringfence.estimators",
    "FederatedNegativeBinomialRegressor": "ringfence.estimators",
    "FederatedOrdinalClassifier": "ringfence.estimators",
    "FederatedPoissonRegressor": "ringfence.estimators",
    "FederatedQuantileRegressor": "ringfence.estimators",
    "FederatedSurvivalRegressor": "ringfence.estimators",
    "Gate": "ringfence.silo.gate",
    "Guarantee": "ringfence.protocol.guarantee",
    "Ledger": "ringfence.silo.ledger",
    "Member": "ringfence.planning.request",
    "Model": "ringfence.model",
    "Plan": "ringfence.protocol.plan",
    "PlanRequest": "ringfence.planning.request",
    "Proposal": "ringfence.planning.propose",
    "Records": "ringfence.silo.records",
    "RingfenceError": "ringfence.errors",
    "Schema": "ringfence.protocol.schema",
    "Silo": "ringfence.training",
    "load_plan": "ringfence.protocol.plan",
    "load_records": "ringfence.silo.records",
    "load_schema": "ringfence.protocol.schema",
    "make_plan": "ringfence.planning.propose",
    "propose": "ringfence.planning.propose",
    "train": "ringfence.training",
}

_NAMESPACES = (
    "accounting",
    "algorithms",
    "domains",
    "errors",
    "losses",
    "messages",
    "model_selection",
    "sampling",
    "simulation",
    "stages",
)

__all__ = [
    "Budget",
    "FederatedGammaRegressor",
    "FederatedHuberRegressor",
    "FederatedLinearRegression",
    "FederatedLinearSVC",
    "FederatedLogisticRegression",
    "FederatedNegativeBinomialRegressor",
    "FederatedOrdinalClassifier",
    "FederatedPoissonRegressor",
    "FederatedQuantileRegressor",
    "FederatedSurvivalRegressor",
    "Gate",
    "Guarantee",
    "Ledger",
    "Member",
    "Model",
    "Plan",
    "PlanRequest",
    "Proposal",
    "Records",
    "RingfenceError",
    "Schema",
    "Silo",
    "__version__",
    "load_plan",
    "load_records",
    "load_schema",
    "make_plan",
    "propose",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ringfence' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_NAMESPACES])
