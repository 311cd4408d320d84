"""Ringfence: private federated learning without a trusted server.

    >>> from ringfence import Member, PlanRequest, make_plan
    >>> from ringfence.protocol import parse_schema
    >>> number = {"type": "numeric", "lower": 0.0, "upper": 1.0}
    >>> schema = parse_schema({"columns": {"age": number, "cost": number}}, target="cost")
    >>> plan = make_plan(schema, [Member("north", 500, epsilon=1.0)], PlanRequest(rounds=12))
    >>> plan.steps
    12

The public names are loaded on first use, so that importing the server's side never loads the silo's. Beside them these
modules are public: `protocol` (what plans are made of), `accounting`, `estimators`, `simulation`, `errors`, and
`sources.features`. All others are internal and may change without notice, and say so in their packages' docstrings.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.errors import RingfenceError as RingfenceError
    from ringfence.estimators import FederatedGammaRegressor as FederatedGammaRegressor
    from ringfence.estimators import FederatedHuberRegressor as FederatedHuberRegressor
    from ringfence.estimators import FederatedLinearRegression as FederatedLinearRegression
    from ringfence.estimators import FederatedLinearSVC as FederatedLinearSVC
    from ringfence.estimators import FederatedLogisticRegression as FederatedLogisticRegression
    from ringfence.estimators import FederatedNegativeBinomialRegressor as FederatedNegativeBinomialRegressor
    from ringfence.estimators import FederatedOrdinalClassifier as FederatedOrdinalClassifier
    from ringfence.estimators import FederatedPoissonRegressor as FederatedPoissonRegressor
    from ringfence.estimators import FederatedQuantileRegressor as FederatedQuantileRegressor
    from ringfence.estimators import FederatedSurvivalRegressor as FederatedSurvivalRegressor
    from ringfence.federation.custom_loss import custom_loss as custom_loss
    from ringfence.federation.tracking import Recorder as Recorder
    from ringfence.federation.tracking import TensorBoard as TensorBoard
    from ringfence.federation.training import Silo as Silo
    from ringfence.federation.training import TrainingResult as TrainingResult
    from ringfence.federation.training import train as train
    from ringfence.model.model import Model as Model
    from ringfence.planning.propose import Proposal as Proposal
    from ringfence.planning.propose import make_plan as make_plan
    from ringfence.planning.propose import propose as propose
    from ringfence.planning.request import Member as Member
    from ringfence.planning.request import PlanRequest as PlanRequest
    from ringfence.protocol import Guarantee as Guarantee
    from ringfence.protocol import Plan as Plan
    from ringfence.protocol import Schema as Schema
    from ringfence.protocol import load_plan as load_plan
    from ringfence.protocol import load_schema as load_schema
    from ringfence.silo.gate.gate import Gate as Gate
    from ringfence.silo.ledger.budget import Budget as Budget
    from ringfence.silo.ledger.ledger import Ledger as Ledger
    from ringfence.silo.records.records import Records as Records
    from ringfence.silo.records.records import load_records as load_records

__version__ = version("ringfence")

_PUBLIC = {
    "errors": "RingfenceError",
    "estimators": "FederatedGammaRegressor FederatedHuberRegressor FederatedLinearRegression FederatedLinearSVC "
    "FederatedLogisticRegression FederatedNegativeBinomialRegressor FederatedOrdinalClassifier "
    "FederatedPoissonRegressor FederatedQuantileRegressor FederatedSurvivalRegressor",
    "federation.custom_loss": "custom_loss",
    "federation.tracking": "Recorder TensorBoard",
    "federation.training": "Silo TrainingResult train",
    "model.model": "Model",
    "planning.propose": "Proposal make_plan propose",
    "planning.request": "Member PlanRequest",
    "protocol": "Guarantee Plan Schema load_plan load_schema",
    "silo.gate.gate": "Gate",
    "silo.ledger.budget": "Budget",
    "silo.ledger.ledger": "Ledger",
    "silo.records.records": "Records load_records",
}
_HOMES = {name: f"ringfence.{module}" for module, names in _PUBLIC.items() for name in names.split()}
_NAMESPACES = ("accounting", "errors", "estimators", "protocol", "simulation")

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 (names of a table)


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ringfence' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_NAMESPACES])
