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

from ringfence.accounting.accountant import delta, epsilon
from ringfence.accounting.calibrate import gaussian_shift, least_noise, noise
from ringfence.accounting.charges import cost, costs, plan_events
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    Events,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    of_group,
    seen_by,
)
from ringfence.accounting.filters import Commitment, guaranteed, left, odometer, used
from ringfence.accounting.sampling import per_round_event, run_events

__all__ = [
    "BinomialRelease",
    "Commitment",
    "DisjointBatchRelease",
    "Event",
    "Events",
    "FixedSizeRelease",
    "GaussianRelease",
    "PoissonRelease",
    "cost",
    "costs",
    "delta",
    "epsilon",
    "gaussian_shift",
    "guaranteed",
    "least_noise",
    "left",
    "noise",
    "odometer",
    "of_group",
    "per_round_event",
    "plan_events",
    "run_events",
    "seen_by",
    "used",
]
