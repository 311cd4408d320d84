"""A custom loss: its source is part of the plan, and it runs only where an operator has installed it.

Reading a plan runs none of it. What is computed is what was installed in this process under the source's digest
(`ringfence.custom_loss`, `federation.custom_loss.install_loss`), never what a message carries.
"""

import hashlib
import math
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ringfence.errors import PlanError, visible_lines
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.base import BaseLoss, Constants, LinearLoss
from ringfence.protocol.public import Digest

_GRID = 201
"""Scores, and targets, at which a loss is checked."""

INSTALLED: dict[str, LinearLoss] = {}
"""What may be computed in this process, by the digest of its source."""


class Custom(BaseLoss):
    """A convex loss of a score and a number, written for one study.

    `lipschitz` and `smoothness` are the largest |∂φ/∂u| and ∂²φ/∂u² for scores up to `largest_score` and scaled
    targets up to `largest_target`. They were found on a grid, so no loss bound is stated with them. A gate
    checks the grid again before it approves: the plan's author need not have done so.
    """

    may_be_negative: ClassVar[bool] = True
    is_proved: ClassVar[bool] = False
    name: Literal["custom"] = "custom"
    title: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    source: str = Field(min_length=1, max_length=20_000)
    digest: Digest
    largest_score: float = Field(gt=0, le=1e6)
    largest_target: float = Field(gt=0, le=1e6)
    lipschitz: float = Field(ge=0, le=1e30)
    smoothness: float = Field(gt=0, le=1e30)

    @model_validator(mode="after")
    def _shows_its_source(self) -> Self:
        """Refuse a custom loss whose digest does not match its source, or whose source has invisible characters."""
        if digest_of(self.source) != self.digest:
            raise ValueError("the digest of the custom loss does not match its source")
        plain = self.source.replace("\t", " ")
        if visible_lines(plain) != plain:
            raise ValueError(
                "the source of the custom loss has invisible characters, so it may not do what it seems to do: remove "
                "them"
            )
        return self

    @property
    def called(self) -> str:
        """The title of a custom loss, and which program it is."""
        return f"custom '{self.title}' (a program of sha256 {self.digest[:12]}…)"

    @property
    def program(self) -> Self:
        """The custom loss itself: operators must install its source."""
        return self

    @property
    def missing(self) -> str:
        """Return why a custom loss cannot be computed here, such as that it is not installed; empty if it can."""
        named = f"its loss '{self.title}' (sha256 {self.digest[:12]}…)"
        if self.digest not in INSTALLED:
            return (
                f"{named} is custom code that is not installed here: read it with `ringfence silo loss FOLDER PLAN` "
                "and, if you agree to run it, install it with the same command"
            )
        try:
            found = examined(self.digest, self.largest_score, self.largest_target)
        except PlanError as refused:
            return f"{named} {refused}: ask for a plan with a convex and smooth one"
        if not np.allclose(found, (self.lipschitz, self.smoothness), rtol=1e-6):
            return (
                f"{named} does not have the slope or curvature that the plan states: ask for a plan that states its own"
            )
        return ""

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the values of the installed custom loss."""
        return self._installed().values(scores, targets)

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of the custom loss, by automatic differentiation."""
        return self._installed().residuals(scores, targets)

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return a third of the weights that the custom loss was checked for: its largest score over 3X."""
        return self.largest_score / (3.0 * feature_norm)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L and β of a custom loss by its largest derivatives on the checked grid; infinite beyond it."""
        within = weight_norm * feature_norm <= self.largest_score * (1 + 1e-9) and target_bound <= self.largest_target
        lipschitz, smoothness = (self.lipschitz, self.smoothness) if within else (math.inf, math.inf)
        return Constants(feature_norm * lipschitz, feature_norm**2 * smoothness, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return half of the largest gradient of the custom loss on the checked grid."""
        return max(0.5 * feature_norm * self.lipschitz, 1e-12)

    def _installed(self) -> LinearLoss:
        """Return the installed program of the custom loss; PlanError if it is missing here."""
        if self.missing:
            raise PlanError(f"This plan cannot be computed here: {self.missing}.")
        return INSTALLED[self.digest]


@lru_cache(maxsize=64)
def examined(digest: str, largest_score: float, largest_target: float) -> tuple[float, float]:
    """Return the largest |∂φ/∂u| and ∂²φ/∂u² of an installed loss, on a grid of scores and targets up to these sizes.

    PlanError, with a clause, if it raises there, is not finite, not convex or not smooth.
    """
    derived = INSTALLED[digest]
    scores = np.linspace(-largest_score, largest_score, _GRID)
    targets = np.linspace(-largest_target, largest_target, _GRID)
    grid, beside = np.repeat(scores, _GRID)[:, None], np.tile(targets, _GRID)
    try:
        values, slopes = derived.values(grid, beside), derived.residuals(grid, beside)[:, 0]
    except Exception as raised:  # whatever a custom function may raise
        raise PlanError(f"raises {type(raised).__name__}: {raised}") from None
    slopes = slopes.reshape(_GRID, _GRID)
    changes = np.diff(slopes, axis=0) / np.diff(scores)[:, None]
    lipschitz, smoothness = float(np.abs(slopes).max()), float(changes.max())
    problem = ""
    if not (np.isfinite(values).all() and np.isfinite(slopes).all()):
        problem = "is not finite"
    elif changes.min() < -1e-9 * max(smoothness, 1.0):
        problem = "is not convex: its slope falls somewhere"
    elif smoothness <= 0 or _is_kinked(derived, scores, targets, smoothness):
        problem = "is not smooth: its slope jumps, or never changes"
    if problem:
        raise PlanError(f"{problem}, for scores up to {largest_score:g} and targets up to {largest_target:g}")
    return lipschitz, smoothness


def _is_kinked(derived: LinearLoss, scores: FloatArray, targets: FloatArray, smoothness: float) -> bool:
    """Tell whether a custom loss's slope changes, between two scores, a hundred times as fast as on average there.

    A jump does so on a grid a thousand times as fine, wherever it is; a smooth slope does not.
    """
    for target in targets[:: _GRID // 4]:
        slopes = derived.residuals(scores[:, None], np.full(len(scores), target))[:, 0]
        place = int(np.argmax(np.diff(slopes)))
        fine = np.linspace(scores[place], scores[place + 1], 1001)
        closer = derived.residuals(fine[:, None], np.full(len(fine), target))[:, 0]
        if np.max(np.diff(closer)) / (fine[1] - fine[0]) > 100 * smoothness:
            return True
    return False


def digest_of(source: str) -> str:
    """Return the digest that identifies the source of a custom loss."""
    return hashlib.sha256(source.encode()).hexdigest()
