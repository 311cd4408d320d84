"""Public, frozen feature extractors: functions of one record alone, with nothing learned from private records.

What they compute goes into a `vector` column; a linear model on it is trained like any other.
"""

from ringfence.sources.features.components import PublicComponents
from ringfence.sources.features.ngrams import NGrams
from ringfence.sources.features.scattering import Scattering

__all__ = ["NGrams", "PublicComponents", "Scattering"]
