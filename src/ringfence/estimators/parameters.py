"""The estimators' parameters, each declared once; what they mean, the estimators' docstrings say.

An estimator's constructor is the one that a dataclass makes of these declarations: it takes its parameters by name and
does nothing but keep them. scikit-learn reads them off its signature (`get_params`, `clone`), and so do help and type
checkers. The declarations stand apart from the estimators because scikit-learn ships no types: for a class with a base
that it cannot look into, a type checker would let any keyword pass.
"""

from dataclasses import dataclass
from typing import Any

from ringfence.planning.request import HELD_OUT
from ringfence.protocol.questions import PersonRule
from ringfence.protocol.schema import Schema

# Estimators are compared and shown as scikit-learn does it: eq and repr are not ours to make.


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters:
    """Those of every estimator."""

    epsilon: Any = 1.0
    delta: Any = None
    bounds: Any = None
    schema: Schema | None = None
    algorithm: str = "auto"
    max_rounds: int | None = None
    ridge: float = 0.0
    lasso: float = 0.0
    clip: float | None = None
    sample_weight_bound: float | None = None
    fit_intercept: bool = True
    person_rule: PersonRule | None = None
    rows_per_person: int | None = None
    held_out: float | None = HELD_OUT
    cap: Any = None
    ledgers: Any = None
    equal_rows: str = "copies"
    new_beginning: str = ""
    unusual_budget: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierParameters(Parameters):
    """Those of a classifier."""

    classes: Any = None
    class_weight: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class RegressorParameters(Parameters):
    """Those of a regression."""

    target_bounds: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class LossParameters(RegressorParameters):
    """Those of a linear regression whose errors may count in several ways."""

    loss: Any = "squared"


@dataclass(kw_only=True, eq=False, repr=False)
class HuberParameters(RegressorParameters):
    """Those of a Huber regression."""

    threshold: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class DispersionParameters(RegressorParameters):
    """Those of a negative binomial regression."""

    dispersion: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class SurvivalParameters(Parameters):
    """Those of a regression of times until an event."""

    time_bound: float | None = None
    cuts: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class QuantileParameters(RegressorParameters):
    """Those of the regression of a quantile."""

    quantile: float = 0.5
