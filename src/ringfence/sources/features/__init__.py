"""Public, frozen feature extractors: functions of one record alone, with nothing learned from private records.

What they compute goes into a `vector` column; a linear model on it is trained like any other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringfence.sources.features.ngrams import NGrams

if TYPE_CHECKING:
    from ringfence.sources.features.components import PublicComponents
    from ringfence.sources.features.scattering import Scattering

__all__ = ["NGrams", "PublicComponents", "Scattering"]

_ON_FIRST_USE = {"PublicComponents": "components", "Scattering": "scattering"}  # a schema's texts need n-grams alone


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_ON_FIRST_USE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
