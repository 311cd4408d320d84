"""Gradients along axes move the weights, by the plan's algorithm."""

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import PreconditionedGradient
from ringfence.server.learned import Learned
from ringfence.server.questions.gradient import argument as weights_asked
from ringfence.server.questions.gradient import receive

__all__ = ["argument", "receive"]


def argument(question: PreconditionedGradient, learned: Learned, step: int) -> FloatArray:
    """Return the weights to ask about, and the axes."""
    return np.concatenate([weights_asked(question, learned, step), learned.settings.axes.packed()])
