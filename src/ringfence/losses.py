"""Convex losses that plans may name, and what every loss is (`BaseLoss`)."""

from ringfence.protocol.losses import (
    Absolute,
    BaseLoss,
    Constants,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    NonSmooth,
    Pinball,
    Softmax,
    Squared,
)

__all__ = [
    "Absolute",
    "BaseLoss",
    "Constants",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "NonSmooth",
    "Pinball",
    "Softmax",
    "Squared",
]
