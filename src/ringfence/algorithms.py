"""What a server may do with the answers, as a plan states it."""

from ringfence.protocol.algorithms import (
    Accelerated,
    AlgorithmSpec,
    Average,
    Localized,
    MinibatchSGD,
    MultiStage,
    Phase,
    Restart,
)

__all__ = ["Accelerated", "AlgorithmSpec", "Average", "Localized", "MinibatchSGD", "MultiStage", "Phase", "Restart"]


def __dir__() -> list[str]:
    return sorted(__all__)
