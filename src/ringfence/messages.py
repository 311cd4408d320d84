"""What crosses the wire: requests, noisy updates, refusals, and how their vectors are read and written."""

from ringfence.protocol.messages import (
    Answer,
    Batch,
    NoisyUpdate,
    Refusal,
    RefusalReason,
    RoundRequest,
    SealedUpdate,
    pack,
    parse_answer,
    unpack,
)

__all__ = [
    "Answer",
    "Batch",
    "NoisyUpdate",
    "Refusal",
    "RefusalReason",
    "RoundRequest",
    "SealedUpdate",
    "pack",
    "parse_answer",
    "unpack",
]


def __dir__() -> list[str]:
    return sorted(__all__)
