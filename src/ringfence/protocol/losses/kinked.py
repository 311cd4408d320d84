"""Losses with kinks, which may be smoothed over a width."""

from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import WIDEST, NonSmooth, TargetKind, beside


class Hinge(NonSmooth):
    """max(0, 1 − y·u) for labels y = ±1: the support vector machine's."""

    target_kind: ClassVar[TargetKind] = "label"
    name: Literal["hinge"] = "hinge"

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        xp = namespace(scores)
        y = beside(scores, targets)
        return xp.maximum(1.0 - y * scores, 0.0), -y


class Absolute(NonSmooth):
    """|u − y|: its minimum is the median. With a width τ it is the Huber loss of threshold τ, divided by τ."""

    name: Literal["absolute"] = "absolute"

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        return scores - beside(scores, targets), 1.0


class Pinball(NonSmooth):
    """max(q·(y − u), (q − 1)·(y − u)): its minimum is the quantile q."""

    name: Literal["pinball"] = "pinball"
    quantile: float = Field(gt=0, lt=1)

    @property
    def aimed_share(self) -> float:
        """The quantile."""
        return self.quantile

    @property
    def _slopes(self) -> tuple[float, float]:
        return -self.quantile, 1.0 - self.quantile

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        return scores - beside(scores, targets), 1.0


class EpsilonInsensitive(NonSmooth):
    """max(0, |u − y| − margin): errors up to the margin are free. The support vector regression's."""

    name: Literal["epsilon-insensitive"] = "epsilon-insensitive"
    margin: float = Field(ge=0, le=WIDEST)

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        xp = namespace(scores)
        error = scores - beside(scores, targets)
        return xp.maximum(xp.abs(error) - self.margin, 0.0), xp.sign(error)
