"""What releases cost in privacy, and how much noise a budget needs. Numbers only: no record is read here.

    >>> from ringfence.accounting import GaussianRelease, epsilon, noise
    >>> round(epsilon([(GaussianRelease(shift=0.2), 25)], delta=1e-6), 2)
    4.89
    >>> round(noise("full", records=1000, batch=1000, rounds=25, clip=1.0, epsilon=1.0, delta=1e-6), 4)
    0.0422

Everything here is a proved upper bound under replace-one adjacency: two data sets are neighbours when one
record of one silo is replaced by another.

- ``events``: what was released, as data that a ledger can store.
- ``accountant``: events to epsilon and delta.
- ``calibrate``: a budget to the least noise that meets it.
- ``charges``: the cost of a plan to a silo, as events.
- ``filters``: privacy filters and odometers, for plans that are chosen in the light of earlier answers.
- ``profiles`` and ``pld``: the privacy profiles and their composition, which the accountant rests on.

The names below are public.
"""

import typing as _typing
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from ringfence.accounting.accountant import delta as delta
from ringfence.accounting.accountant import epsilon as epsilon
from ringfence.accounting.accountant import gaussian_shift as gaussian_shift
from ringfence.accounting.charges import cost as cost
from ringfence.accounting.charges import costs as costs
from ringfence.accounting.charges import plan_events as plan_events
from ringfence.accounting.events import BinomialRelease as BinomialRelease
from ringfence.accounting.events import DisjointBatchRelease as DisjointBatchRelease
from ringfence.accounting.events import Event as Event
from ringfence.accounting.events import Events as Events
from ringfence.accounting.events import FixedSizeRelease as FixedSizeRelease
from ringfence.accounting.events import GaussianRelease as GaussianRelease
from ringfence.accounting.events import PoissonRelease as PoissonRelease
from ringfence.accounting.events import of_group as of_group
from ringfence.accounting.events import seen_by as seen_by
from ringfence.accounting.filters import Commitment as Commitment
from ringfence.accounting.filters import guaranteed as guaranteed
from ringfence.accounting.filters import left as left
from ringfence.accounting.filters import odometer as odometer
from ringfence.accounting.filters import used as used

if _typing.TYPE_CHECKING:
    from ringfence.accounting.calibrate import least_noise as least_noise
    from ringfence.accounting.calibrate import noise as noise
    from ringfence.accounting.runs import per_round_event as per_round_event
    from ringfence.accounting.runs import run_events as run_events

# Loaded on first use: no silo's agent needs them.
_FOR_PLANNERS = {"least_noise": "calibrate", "noise": "calibrate", "per_round_event": "runs", "run_events": "runs"}

_LOADED = [name for name, thing in globals().items() if name[0] != "_" and not isinstance(thing, _ModuleType)]
__all__ = [*_LOADED, *_FOR_PLANNERS]  # noqa: PLE0604 (names, as in `ringfence`)


def __getattr__(name: str) -> _typing.Any:
    if name not in _FOR_PLANNERS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(_import_module(f"{__name__}.{_FOR_PLANNERS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
