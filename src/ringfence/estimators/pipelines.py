"""Steps before an estimator, in a pipeline or for its targets: none may have learned from the records.

A pipeline calls `fit` of its last step and tells it nothing about the others, so we look at who calls. What a step says
of itself decides: one that needs no fit, that only learns how many columns there are, that was given its categories, or
that is frozen, has learned nothing from these records.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from ringfence.errors import EstimatorError

_TAKE_CATEGORIES = {"OneHotEncoder", "OrdinalEncoder"}
"""Encoders that learn only categories, and only if none are given."""

_LEARN_WIDTH_ONLY = {
    "FrozenEstimator",
    "GaussianRandomProjection",
    "PolynomialCountSketch",
    "PolynomialFeatures",
    "RBFSampler",
    "SkewedChi2Sampler",
    "SparseRandomProjection",
}


def require_public_steps(estimator: object) -> None:
    """Refuse to be fitted behind a step that has just learned from the same records."""
    for step in _steps_around(estimator):
        for learner in _learners(step):
            raise EstimatorError(
                f"{type(learner).__name__} comes before this estimator and has learned from all records, without noise "
                "and outside the guarantee. Remove it: `bounds`, or a `schema` with `center`, `scale` and `missing`, "
                "scale and fill in from public knowledge. To learn it from public data, fit it on those and wrap it: "
                "sklearn.frozen.FrozenEstimator(fitted)."
            )


def _steps_around(estimator: object) -> Iterator[Any]:
    """Yield what comes before it in pipelines that end in it, and what changes its targets, from the innermost out."""
    frame, inner = inspect.currentframe(), estimator
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller is not inner and caller.steps[-1][1] is inner:
            yield from (step for _, step in caller.steps[:-1])
            inner = caller
        elif isinstance(caller, TransformedTargetRegressor) and getattr(caller, "regressor_", None) is inner:
            yield caller.transformer_
            inner = caller
        frame = frame.f_back


def _learners(step: Any) -> Iterator[Any]:
    """Yield what learns from records in a pipeline's step, which may be made of steps."""
    if step is None or isinstance(step, str):
        return
    named = [name for name in ("steps", "transformers", "transformer_list") if hasattr(step, name)]
    if named:
        for part in getattr(step, named[0]):
            yield from _learners(part[1])
        yield from _learners(getattr(step, "remainder", None))
    elif not _learns_nothing(step):
        yield step


def _learns_nothing(step: Any) -> bool:
    """Return whether a pipeline's step depends on no record's value, only on the width or on given categories."""
    if type(step).__name__ in _LEARN_WIDTH_ONLY or not get_tags(step).requires_fit:
        return True
    if type(step).__name__ not in _TAKE_CATEGORIES or isinstance(step.categories, str):
        return False
    return step.min_frequency is None and step.max_categories is None
