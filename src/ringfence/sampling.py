"""Which of a silo's records take part in a round."""

from ringfence.protocol.sampling import FixedSize, Full, OnePass, Phased, Poisson, Sampling, SamplingName

__all__ = ["FixedSize", "Full", "OnePass", "Phased", "Poisson", "Sampling", "SamplingName"]


def __dir__() -> list[str]:
    return sorted(__all__)
