"""The estimators' parameters, each declared once; what they mean, the estimators' docstrings say.

An estimator's constructor is the one that a dataclass makes of these declarations: it takes its parameters by name and
does nothing but keep them. scikit-learn reads them off its signature (`get_params`, `clone`), and so do help and type
checkers; help shows annotations as they are written here. The declarations stand apart from the estimators because
scikit-learn ships no types: for a class with a base that it cannot look into, type checkers would let any keyword pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ringfence.planning.request import HELD_OUT
from ringfence.protocol.losses import Loss
from ringfence.protocol.questions import PersonRule
from ringfence.protocol.schema import Schema
from ringfence.silo.budget import Budget

PerSilo = ArrayLike | Mapping[Any, float]
"""One number for all silos, one for each in their order, or a mapping from silo to number."""

Interval = tuple[ArrayLike, ArrayLike]
"""A lower and an upper bound: two numbers, or two sequences of them."""

# Estimators are compared and shown as scikit-learn does it: eq and repr are not ours to make.


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters:
    """Those of every estimator."""

    epsilon: PerSilo = 1.0
    delta: PerSilo | None = None
    bounds: Interval | Mapping[str, Interval] | None = None
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
    cap: Budget | tuple[float, float] | None = None
    ledgers: str | Path | None = None
    equal_rows: str = "copies"
    new_beginning: str = ""
    unusual_budget: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierParameters(Parameters):
    """Those of a classifier."""

    classes: ArrayLike | None = None
    class_weight: Mapping[Any, float] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class RegressorParameters(Parameters):
    """Those of a regression."""

    target_bounds: Interval | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LossParameters(RegressorParameters):
    """Those of a linear regression whose errors may count in several ways."""

    loss: str | Loss = "squared"


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
    cuts: Sequence[float] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class QuantileParameters(RegressorParameters):
    """Those of the regression of a quantile."""

    quantile: float = 0.5
