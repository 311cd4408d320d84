"""Numbers only: what releases cost in privacy and how much noise a budget needs; this room never sees a record.

Everything here is a proved upper bound under replace-one adjacency: two data sets are neighbours when one
record of one silo is replaced by another.

- ``events``: what was released, as data that a ledger can store.
- ``accountant``: events to epsilon and delta.
- ``calibrate``: a budget to the least noise that meets it.
- ``charges``: what a plan costs a silo.
- ``filters``: what a budget lets through, and what may be said after, when plans are chosen by earlier answers.
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


def __dir__() -> list[str]:
    return sorted(__all__)
