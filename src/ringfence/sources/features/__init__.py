"""Public, frozen feature extractors: functions of one record alone, with nothing learnt from anybody's private records.

What they compute goes into a `vector` column; a linear model on it is trained like any other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.sources.features.components import PublicComponents
    from ringfence.sources.features.ngrams import NGrams
    from ringfence.sources.features.scattering import Scattering

_HOMES = {"NGrams": "ngrams", "PublicComponents": "components", "Scattering": "scattering"}

__all__ = ["NGrams", "PublicComponents", "Scattering"]


def __getattr__(name: str) -> Any:
    """Load an extractor on first use, so that n-grams need no Fourier transforms."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringfence.sources.features' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
